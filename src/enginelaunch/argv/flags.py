"""The flags of a command line as data: what they are called and how they take their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Nargs = int | Literal["?", "*", "+"]
"""How many values follow a flag, in argparse's notation; 0 means that it takes none."""

ValueKind = Literal[
    "string",
    "lower_case_string",
    "integer",
    "float",
    "boolean",
    "human_readable_integer",
    "human_readable_integer_or_auto",
    "port",
    "json",
    "json_or_string",
    "config",
    "key_value",
    "lora_modules",
]
"""What a flag's value is read as.

`lower_case_string`: letters become small and dashes underscores, before choices are looked at.
`human_readable_integer`: `4k` is 4000 and `4K` is 4096; `..._or_auto` also takes `auto` and -1.
`config`: JSON for the class that `Flag.config_class` names. `boolean`: a switch, no value follows.
`lora_modules`: `name=path` or one JSON object each. `key_value`: `name=count`.
"""


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag of an engine's command line in one release.

    Attributes:
        name: its long spelling with dashes, such as `--tensor-parallel-size`.
        destination: the name under which the engine keeps the value, such as `tensor_parallel_size`.
        aliases: other spellings of the same flag, such as `-tp`.
        negations: spellings that switch it off, such as `--no-enable-lora`.
        nargs: how many values follow; 0 for a switch.
        append: True when each repeat adds a value instead of replacing the last one.
        value: what a value is read as.
        choices: the only values allowed, as text; empty when any is.
        none_allowed: True when the text `None`, and the empty one, stand for no value.
        config_class: the class that a JSON value fills, when `value` is `config`.
        deprecated: True when the release says so itself.
        api_server: True when only a process that takes requests has a use for it.
    """

    name: str
    destination: str
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    nargs: Nargs = 1
    append: bool = False
    value: ValueKind = "string"
    choices: tuple[str, ...] = ()
    none_allowed: bool = False
    config_class: str | None = None
    deprecated: bool = False
    api_server: bool = False


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine's parser reads spellings, apart from which flags there are.

    Attributes:
        underscore_is_dash: `--max_model_len` is `--max-model-len` (up to the first dot).
        equals_sign: `--flag=value` is allowed beside `--flag value`.
        abbreviations: an unambiguous beginning of a long flag is that flag.
        dotted_keys: `--flag.key value` sets one key inside a JSON flag.
        dotted_append: `--flag.key+ a,b` appends to a list inside a JSON flag.
        json_number_suffixes: `{"size": 80m}` is read as `{"size": 80000000}`.
        shorthand: a prefix that takes its value glued on, such as `-O` in `-O3`.
        shorthand_means: what the shorthand stands for, such as `--optimization-level`.
        shorthand_dotted_means: what replaces the shorthand in front of a dot; None where a dot
            is part of the glued value.
        positionals: how many arguments without a flag are taken.
    """

    underscore_is_dash: bool = True
    equals_sign: bool = True
    abbreviations: bool = True
    dotted_keys: bool = True
    dotted_append: bool = True
    json_number_suffixes: bool = False
    shorthand: str | None = None
    shorthand_means: str | None = None
    shorthand_dotted_means: str | None = None
    positionals: int = 0


class FlagTable:
    """All flags of one command of one release, with the grammar that its parser follows.

    Args:
        flags: the flags; no spelling may stand for two of them.
        grammar: how spellings are read.

    Raises:
        ValueError: two flags share a spelling.

    Example:
        >>> table = FlagTable([Flag(name="--tensor-parallel-size", destination="tensor_parallel_size",
        ...                         aliases=("-tp",), value="integer")], Grammar())
        >>> table.find("--tensor_parallel_size").name
        '--tensor-parallel-size'
    """

    __slots__ = ("_by_spelling", "_glued", "flags", "grammar", "names")

    def __init__(self, flags: Iterable[Flag], grammar: Grammar) -> None:
        self.flags = tuple(flags)
        self.grammar = grammar
        self.names = frozenset(flag.name for flag in self.flags)
        by_spelling: dict[str, tuple[Flag, bool]] = {}
        for flag in self.flags:
            for spelling in (flag.name, *flag.aliases, *flag.negations):
                known = self.normalise(spelling)
                if known in by_spelling:
                    raise ValueError(
                        f"{spelling} stands for both {by_spelling[known][0].name} and {flag.name}"
                    )
                by_spelling[known] = (flag, spelling in flag.negations)
        self._by_spelling = by_spelling
        self._glued = {s for s in by_spelling if len(s) == 2 and s[0] == "-" and s[1] != "-"}

    def __contains__(self, spelling: str) -> bool:
        """Whether this exact spelling, dashes and underscores aside, is a flag."""
        return self.normalise(spelling) in self._by_spelling

    def normalise(self, spelling: str) -> str:
        """Write underscores of a long flag as dashes, up to the first dot, where the grammar does so."""
        if not self.grammar.underscore_is_dash or not spelling.startswith("--"):
            return spelling
        head, dot, rest = spelling.partition(".")
        return head.replace("_", "-") + dot + rest

    def find(self, spelling: str) -> Flag | None:
        """The flag with this exact spelling (name, alias or negation), or None."""
        found = self._by_spelling.get(self.normalise(spelling))
        return found[0] if found else None

    def resolve(self, spelling: str) -> list[tuple[Flag, bool, str | None]]:
        """Every reading of an option item: (flag, negated, glued value or None).

        One entry is a clear reading, none an unknown flag, several an ambiguous abbreviation.
        """
        exact = self._by_spelling.get(spelling)
        if exact:
            return [(*exact, None)]
        name, equals, value = spelling.partition("=")
        glued_value = value if equals else None
        if equals and self.grammar.equals_sign:
            exact = self._by_spelling.get(name)
            if exact:
                return [(*exact, glued_value)]
        elif equals:
            return []
        if not self.grammar.abbreviations:
            return []
        readings: list[tuple[Flag, bool, str | None]] = []
        if not spelling.startswith("--") and spelling[:2] in self._glued and len(spelling) > 2:
            flag, negated = self._by_spelling[spelling[:2]]
            readings.append((flag, negated, spelling[2:]))
        for candidate, (flag, negated) in self._by_spelling.items():
            if candidate.startswith(name) and len(name) > 1:
                readings.append((flag, negated, glued_value))
        return readings

    def nearest(self, spelling: str) -> str | None:
        """The known long spelling that looks most like this one, or None when nothing is close."""
        import difflib  # noqa: PLC0415 - only needed for an error message

        name = self.normalise(spelling.partition("=")[0])
        close = difflib.get_close_matches(name, [s for s in self._by_spelling if s.startswith("--")], n=1)
        return close[0] if close else None
