"""From the text of a flag's value to what the parser makes of it, and JSON in one fixed form."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from enginelaunch.argv.flags import Flag

JSONValue = Any
"""None, a bool, a number, text, or lists and string-keyed dicts of these."""


class BadValueError(ValueError):
    """A value does not have its flag's type or is none of its choices."""


def canonical_json(value: JSONValue) -> str:
    """One text for one value: keys sorted, no spaces, no escapes for letters of any script.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON does not have.

    Example:
        >>> canonical_json({"topic": "kv", "enable": True})
        '{"enable":true,"topic":"kv"}'
    """
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)


_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def human_readable_integer(text: str) -> int:
    """`4k` is 4000, `4K` is 4096, `25.6k` is 25600.

    Raises:
        ValueError: the text is no such number.
    """
    match = _SUFFIXED.fullmatch(text.strip())
    if not match:
        return int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        product = float(number) * _DECIMAL[suffix]
        if math.isinf(product):
            raise ValueError(f"{text!r} is too large")
        return int(product)
    if "." in number:
        raise ValueError(
            f"{text!r}: {suffix} is a power of two and takes no decimals; write {suffix.lower()}"
        )
    return int(number) * _BINARY[suffix]


def read_value(flag: Flag, text: str, json_number_suffixes: bool = False) -> JSONValue:
    """What the parser makes of one value of a flag.

    Raises:
        BadValueError: naming the flag, the value and what is allowed.
    """
    try:
        value = _read(flag, text, json_number_suffixes)
        # argparse compares what was read: 016 is 16.
        if not flag.choices or value in [_read(flag, choice, False) for choice in flag.choices]:
            return value
        raise BadValueError(f"{flag.name} must be one of {', '.join(flag.choices)}, not {text!r}")
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadValueError):
            raise
        raise BadValueError(f"{flag.name} takes {_ALLOWED[flag.value]}, not {text!r}") from None


_ALLOWED = {
    "integer": "a whole number",
    "float": "a number",
    "human_readable_integer": "a whole number, as in 4096, 4k (4000) or 4K (4096)",
    "human_readable_integer_or_auto": "a whole number, as in 4096, 4k (4000) or 4K (4096), or auto",
    "port": "a port from 1024 to 65535",
    "json": "JSON",
    "json_or_string": "text or a JSON object",
    "config": "a JSON object",
    "key_value": "name=count, or a JSON object",
    "lora_modules": "name=path, or a JSON object with name and path",
}


def _read(flag: Flag, text: str, json_number_suffixes: bool) -> JSONValue:
    if flag.none_allowed and text in ("", "None"):
        return None
    match flag.value:
        case "lower_case_string":
            return text.lower().replace("-", "_")
        case "integer":
            return int(text)
        case "float":
            return float(text)
        case "human_readable_integer":
            return human_readable_integer(text)
        case "human_readable_integer_or_auto":
            return -1 if text.strip().lower() in ("-1", "auto") else human_readable_integer(text)
        case "port":
            return _port(text)
        case "json":
            return json.loads(text)
        case "config":
            return _object(_expand_suffixes(text) if json_number_suffixes else text)
        case "json_or_string":
            return json.loads(text) if _looks_like_object(text) else text
        case "key_value":
            return _key_value(text)
        case "lora_modules":
            return _lora_module(text)
        case _:
            return text


def _port(text: str) -> int:
    port = int(text)
    if not 1024 <= port <= 65535:
        raise ValueError(text)
    return port


def _object(text: str) -> JSONValue:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def _looks_like_object(text: str) -> bool:
    stripped = text.strip()
    return stripped.startswith("{") and stripped.endswith("}")


def _key_value(text: str) -> JSONValue:
    if _looks_like_object(text):
        return json.loads(text)
    counts: dict[str, int] = {}
    for pair in text.split(","):
        name, equals, count = pair.partition("=")
        if not equals or name.strip().lower() in counts:
            raise ValueError(text)
        counts[name.strip().lower()] = int(count)
    return counts


def _lora_module(text: str) -> JSONValue:
    if not text:  # vLLM passes over an empty item
        return None
    # A path may hold commas and a JSON object holds '=' at will: JSON first.
    if _looks_like_object(text):
        module = _object(text)
        if not isinstance(module.get("name"), str) or not isinstance(module.get("path"), str):
            raise ValueError(text)
        return module
    name, equals, path = text.partition("=")
    if not equals or not name or "," in text:
        raise ValueError(text)
    return {"name": name, "path": path}


_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_SUFFIXED_WORD = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")


def _expand_suffixes(text: str) -> str:
    parts = _QUOTED.split(text)
    parts[::2] = [
        _SUFFIXED_WORD.sub(lambda found: str(human_readable_integer(found[0])), part) for part in parts[::2]
    ]
    return "".join(parts)


def dotted_value(entries: Sequence[tuple[tuple[str, ...], str, bool]]) -> JSONValue:
    """The one JSON value that dotted keys make together.

    Args:
        entries: (keys, text, appends) of each dotted spelling, in order. A later text replaces an
            earlier one under the same keys; lists are joined.

    Example:
        >>> dotted_value([(("level",), "3", False), (("pass", "fuse"), "true", False)])
        {'level': 3, 'pass': {'fuse': True}}
    """
    merged: dict[str, JSONValue] = {}
    for keys, text, appends in entries:
        value: JSONValue = text.split(",") if appends else _scalar_or_json(text)
        for key in reversed(keys):
            value = {key: value}
        _merge(merged, value)
    return merged


def _scalar_or_json(text: str) -> JSONValue:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return human_readable_integer(text)
    except ValueError:
        return text


def _merge(original: dict[str, JSONValue], update: dict[str, JSONValue]) -> None:
    for key, value in update.items():
        present = original.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge(present, value)
        elif isinstance(value, list) and isinstance(present, list):
            original[key] = present + value
        else:
            original[key] = value
