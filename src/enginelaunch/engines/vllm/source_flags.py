"""Turns what a release gives to `add_argument` into flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from enginelaunch.argv import Flag, Nargs, ValueKind
from enginelaunch.engines.vllm.source_values import Argument, EngineClass, EngineFunction, Unknown

_SWITCH_ACTIONS: Final = frozenset(
    {"store_true", "store_false", "store_const", "append_const", "count", "help"}
)
_APPENDING_ACTIONS: Final = frozenset({"append", "extend"})
_DEPRECATION: Final = re.compile(
    r"(^|[.:]\s)\s*[\[(]?deprecated\b|\bis deprecated\b|\bwill be removed in (v\d|a future)", re.IGNORECASE
)
"""What the help text of a deprecated flag says somewhere; `deprecated` alone also names other things."""

_KIND_BY_NAME: Final[Mapping[str, ValueKind]] = {
    "human_readable_int": "human_readable_integer",
    "human_readable_int_or_auto": "human_readable_integer_or_auto",
    "union_dict_and_str": "json_or_string",
    "json.loads": "json",
    "check_port": "port",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How the text of one value is turned into a value.

    Attributes:
        kind: what it is read as.
        none_allowed: the text `None`, and the empty one, stand for no value.
        config_class: the class that it fills.
        validated: True when pydantic validates the text against that class, False when the class is
            called with what the text holds.
    """

    kind: ValueKind = "string"
    none_allowed: bool = False
    config_class: EngineClass | None = None
    validated: bool = False


def read_flag(
    argument: Argument, inverse_prefixes: Mapping[str, str], engine_destinations: Container[str]
) -> Flag:
    """Makes a flag of one `add_argument` call.

    Args:
        argument: the call.
        inverse_prefixes: how each spelling of a boolean flag that begins with a key of this is also
            accepted, to switch the flag off.
        engine_destinations: the destinations that a process without an API server has a use for.
    """
    settings = argument.settings
    long = [option for option in argument.options if option.startswith("--")] or list(argument.options)
    action = settings.get("action")
    boolean = isinstance(action, Unknown) and action.path == "argparse.BooleanOptionalAction"
    switch = boolean or action in _SWITCH_ACTIONS
    reading = Reading("boolean") if switch else value_reading(settings.get("type"))
    if isinstance(action, EngineClass) and action.name == "LoRAParserAction":
        reading = Reading("lora_modules", none_allowed=reading.none_allowed)
    config_class = reading.config_class
    destination = settings.get("dest") or long[0].lstrip("-").replace("-", "_")
    return Flag(
        name=long[0],
        destination=destination,
        aliases=tuple(option for option in argument.options if option != long[0]),
        negations=_negations(argument.options, inverse_prefixes) if boolean else (),
        nargs=0 if switch else _nargs(settings.get("nargs")),
        append=action in _APPENDING_ACTIONS,
        value=reading.kind,
        choices=_choices(settings.get("choices"), reading),
        none_allowed=reading.none_allowed,
        config_class=config_class.name if config_class else None,
        deprecated=_is_deprecated(settings),
        api_server=destination not in engine_destinations,
    )


def value_reading(converter: object) -> Reading:
    """Tells what the function given as `type` makes of a value's text."""
    if isinstance(converter, type):
        kinds: dict[type, ValueKind] = {int: "integer", float: "float"}
        return Reading(kinds.get(converter, "string"))
    if isinstance(converter, Unknown):
        return Reading(_KIND_BY_NAME.get(converter.path, "string"))
    if isinstance(converter, EngineFunction):
        return _function_reading(converter)
    return Reading(_KIND_BY_NAME.get(getattr(converter, "__name__", ""), "string"))


def _function_reading(converter: EngineFunction) -> Reading:
    if "return_type" in converter.scope and converter.name in ("_optional_type", "_parse_type"):
        inner = value_reading(converter.scope["return_type"])
        if inner.kind == "json" and _takes_pairs(converter):
            inner = replace(inner, kind="key_value")
        return replace(inner, none_allowed=inner.none_allowed or converter.name == "_optional_type")
    if isinstance(converter.node, ast.Lambda) and ".lower().replace('-', '_')" in ast.unparse(converter.node):
        return Reading("lower_case_string")
    if converter.name in _KIND_BY_NAME:
        return Reading(_KIND_BY_NAME[converter.name])
    for value in (converter, *converter.defaults.values()):
        filled = _filled_class(value)
        if filled is not None:
            made_by = value if isinstance(value, EngineFunction) else converter
            return Reading("config", config_class=filled, validated="validate" in ast.unparse(made_by.node))
    return Reading()


def _filled_class(value: object) -> EngineClass | None:
    """The class that a value names, or whose method it is."""
    if isinstance(value, EngineClass):
        return value
    if isinstance(value, EngineFunction) and isinstance(value.node, ast.FunctionDef):
        return (value.bound or value.owner) if not value.scope else None
    return None


def _takes_pairs(converter: EngineFunction) -> bool:
    return "nullable_kvs" in ast.unparse(converter.node)


def _nargs(value: object) -> Nargs:
    if value is None:
        return 1
    if isinstance(value, int) or value in ("?", "*", "+"):
        return value
    raise ValueError(f"nargs is {value!r}; a number, '?', '*' or '+' is allowed")


def _negations(options: tuple[str, ...], inverse_prefixes: Mapping[str, str]) -> tuple[str, ...]:
    negated = [f"--no-{option[2:]}" for option in options if option.startswith("--")]
    inverses = [
        inverse + option.removeprefix(prefix)
        for option in options
        for prefix, inverse in inverse_prefixes.items()
        if option.startswith(prefix)
    ]
    return (*negated, *inverses)


def _choices(choices: Any, reading: Reading) -> tuple[str, ...]:
    """The texts that pass the parser's check, which it makes on the value that it read.

    Where a registry that is filled while running, or the platform, has a say, every text is let through.
    """
    if choices is None or isinstance(choices, Unknown) or any(isinstance(one, Unknown) for one in choices):
        return ()
    return tuple(
        dict.fromkeys(str(choice) for choice in choices if _read_again(str(choice), reading) == choice)
    )


def _read_again(text: str, reading: Reading) -> object:
    if reading.none_allowed and text == "None":
        return None
    if reading.kind == "lower_case_string":
        return text.lower().replace("-", "_")
    if reading.kind == "integer":
        return int(text) if text.lstrip("-").isdigit() else text
    return float(text) if reading.kind == "float" else text


def _is_deprecated(settings: Mapping[str, Any]) -> bool:
    action, text = settings.get("action"), settings.get("help")
    return (
        bool(settings.get("deprecated"))
        or (isinstance(action, EngineClass) and action.name.startswith("Deprecated"))
        or (isinstance(text, str) and _DEPRECATION.search(text) is not None)
    )
