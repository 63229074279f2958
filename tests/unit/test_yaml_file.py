"""Reading YAML without losing anything."""

from __future__ import annotations

from typing import Any

import pytest

from enginelaunch.findings import Finding, LaunchError
from enginelaunch.yaml_file import read_yaml


def refusal(text: str) -> str:
    with pytest.raises(LaunchError) as raised:
        read_yaml(text, "f.yaml")
    (finding,) = raised.value.report.findings
    assert finding == Finding(
        severity="error", code="unreadable-file", message=finding.message, where="f.yaml"
    )
    return finding.message


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", None),
        ("# nothing\n", None),
        ("a: 1\nb: [x, {c: 2.5}]", {"a": 1, "b": ["x", {"c": 2.5}]}),
        ("\ufeffa: ü漢", {"a": "ü漢"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: {x: 1}\nb: {x: 1}", {"a": {"x": 1}, "b": {"x": 1}}),
        ("- {a: 1}\n- {a: 1}", [{"a": 1}, {"a": 1}]),
    ],
)
def test_yaml_is_read(text: str, data: Any) -> None:
    assert read_yaml(text, "f.yaml") == data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("base: &b {a: 1, c: 3}\nx: {<<: *b, a: 2}", {"a": 2, "c": 3}),
        ("base: &b {a: 1, c: 3}\nx: {a: 2, <<: *b}", {"a": 2, "c": 3}),
        ("base: [&a {a: 1}, &b {a: 2, b: 2}]\nx: {<<: [*a, *b]}", {"a": 1, "b": 2}),
        ("base: [&a {a: 1}, &b {<<: *a, a: 2}]\nx: {<<: *b, a: 3}", {"a": 3}),
    ],
)
def test_a_merged_key_can_be_replaced(text: str, data: Any) -> None:
    assert read_yaml(text, "f.yaml")["x"] == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml, line 3: the key 'a' stands twice"),
        ("x:\n  - y: 1\n    y: 1", "f.yaml, line 3: the key 'y' stands twice"),
        ("a: 1\n'a': 1", "f.yaml, line 2: the key 'a' stands twice"),
        ("1: x\n0x1: y", "f.yaml, line 2: the key 1 stands twice"),
        ("base: &b {q: 1}\nx: {<<: *b, a: 1, a: 2}", "f.yaml, line 2: the key 'a' stands twice"),
        ("? [a]\n: 1", "f.yaml, line 1: a key must be plain text"),
        ("? {a: 1}\n: 1", "f.yaml, line 1: a key must be plain text"),
        ("a: 1\n---\nb: 2", "f.yaml, line 2: but found another document"),
        ("a: *nope", "f.yaml, line 1: found undefined alias 'nope'"),
        ("a: &a [*a]", "f.yaml, line 1: found unconstructable recursive node"),
        ("a:\tb: c", "f.yaml, line 1: found character '\\t' that cannot start any token"),
        ("a: [1", "f.yaml, line 1: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c", "f.yaml, line 1: mapping values are not allowed here"),
        ("a: \0", "f.yaml: unacceptable character #x0000: special characters are not allowed"),
        (
            "x: 1\na: !!python/object/apply:os.system [reboot]",
            "f.yaml, line 2: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.system'",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    "value",
    [
        "2024-99-99",
        "0x_",
        "0b_",
        "!!int ''",
        "!!int x",
        "!!bool maybe",
        "!!timestamp x",
        "!!float x",
        "1" * 5000,
    ],
)
def test_a_value_that_only_looks_like_its_type_is_an_error_with_its_line(value: str) -> None:
    assert refusal(f"x: 1\na: {value}").startswith("f.yaml, line 2: ")


@pytest.mark.parametrize("text", ["[" * 1500, "{a: " * 1500], ids=["lists", "mappings"])
def test_yaml_that_is_nested_too_deeply_is_an_error(text: str) -> None:
    assert refusal(text) == "f.yaml: it is nested too deeply"


@pytest.mark.parametrize("value", ["!!int s3cret", "!!bool s3cret", "2026-99-99"])
def test_a_value_that_cannot_be_read_is_not_repeated(value: str) -> None:
    message = refusal(f"api_key: {value}")
    assert message.startswith("f.yaml, line 1: a value cannot be read as ")
    assert message.endswith("; put quotes around text")
    assert "s3cret" not in message
    assert "99" not in message
