"""An argument vector as data: read it by a table of flags, ask it, override it, write it back.

An engine's parser decides what an argv means, so the table and the grammar come from outside:
a `FlagTable` says which flags there are and how each takes its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Nargs = int | Literal["?", "*", "+"]
"""How many values follow a flag, in argparse's notation; 0 means that it takes none."""

ValueKind = Literal[
    "string",
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

`human_readable_integer`: `4k` is 4000 and `4K` is 4096; `..._or_auto` also takes `auto` and -1.
`config`: JSON for the class that `Flag.config_class` names. `boolean`: a switch, no value follows.
`lora_modules`: `name=path` or one JSON object each. `key_value`: `name=count`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
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
        config_class: the class that a JSON value fills, when `value` is `config`.
        deprecated: True when the release says so itself.
    """

    name: str
    destination: str
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    nargs: Nargs = 1
    append: bool = False
    value: ValueKind = "string"
    choices: tuple[str, ...] = ()
    config_class: str | None = None
    deprecated: bool = False
