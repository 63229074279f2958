"""What a release's configuration classes say to the JSON that fills them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from enginelaunch.argv import Arguments, BadValueError
from enginelaunch.engines.catalogue import Catalogue, ConfigClass, ConfigField
from enginelaunch.findings import Finding
from enginelaunch.spec import shown


def json_findings(arguments: Arguments, release: str) -> list[Finding]:
    """Keys and values in JSON arguments that the release refuses.

    Args:
        arguments: arguments that have been read.
        release: a release of the catalogue.
    """
    findings: list[Finding] = []
    uses = {use.flag.name: use for use in arguments.occurrences if use.flag.config_class}
    for name, use in uses.items():
        try:
            value = arguments.value(name)
        except BadValueError:  # already among the problems
            continue
        findings += [
            Finding(
                severity="error",
                code=code,
                message=f"{name}: {message}",
                where=f"profile.args[{use.start}]",
            )
            for code, message in _problems(use.flag.config_class or "", value, release, "")
        ]
    return findings


def _problems(class_name: str, value: Any, release: str, path: str) -> Iterator[tuple[str, str]]:
    known = Catalogue.load("vllm").config_class(release, class_name)
    if known is None or not isinstance(value, dict):
        return
    fields = {field.name: field for field in known.fields}
    for key, inner in value.items():
        field = fields.get(key)
        if field is None:
            if not known.extra:
                yield "unknown-json-key", _unknown_key(f"{path}{key}", key, known, release)
            continue
        yield from _value_problems(field, inner, release, f"{path}{key}")
    for field in known.fields:
        if field.required and field.name not in value:
            yield "missing-json-key", f"{path}{field.name} is required"


def _value_problems(field: ConfigField, value: Any, release: str, path: str) -> Iterator[tuple[str, str]]:
    if field.choices and isinstance(value, str) and value not in field.choices:
        yield "bad-json-value", f"{path} must be one of {', '.join(field.choices)}, not {shown(value)}"
    if len(field.config_classes) == 1:
        yield from _problems(field.config_classes[0], value, release, f"{path}.")


def _unknown_key(path: str, key: str, known: ConfigClass, release: str) -> str:
    import difflib  # noqa: PLC0415 - only needed for an error message

    close = difflib.get_close_matches(key, [field.name for field in known.fields], n=1)
    nearest = f"; did you mean {close[0]}?" if close else ""
    return f"vLLM {release} has no key {path}{nearest}"
