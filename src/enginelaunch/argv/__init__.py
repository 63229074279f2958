"""An argument vector as data: read it by a table of flags, ask it, override it, write it back.

An engine's parser decides what an argv means, so the table and the grammar come from outside: a
`FlagTable` says which flags there are and how each takes its values, `parse` reads an argv by it,
and the result keeps every item in its place, so that writing it back changes nothing else.
"""

from enginelaunch.argv.flags import Flag, FlagTable, Grammar, Nargs, ValueKind
from enginelaunch.argv.overriding import Override, overrides
from enginelaunch.argv.reading import Arguments, Occurrence, Problem, ProblemKind, parse
from enginelaunch.argv.values import (
    BadValueError,
    JSONValue,
    canonical_json,
    human_readable_integer,
    read_value,
)

__all__ = [
    "Arguments",
    "BadValueError",
    "Flag",
    "FlagTable",
    "Grammar",
    "JSONValue",
    "Nargs",
    "Occurrence",
    "Override",
    "Problem",
    "ProblemKind",
    "ValueKind",
    "canonical_json",
    "human_readable_integer",
    "overrides",
    "parse",
    "read_value",
]
