"""What every spec says about a mistake: the field, the value, what is allowed, and no secret."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from pydantic import SecretBytes, SecretStr, ValidationError

from enginelaunch.command import EnvironmentSecret, FileSecret, LiteralSecret
from enginelaunch.spec import (
    Address,
    Count,
    NonEmptyText,
    OneOrSeveral,  # noqa: F401 - part of the surface under test
    PlainText,
    Port,
    Secret,
    Size,
    Spec,
    Switch,
    VariableName,
)


class Inner(Spec):
    size: Size = 1


class Sample(Spec):
    secret_fields: ClassVar[frozenset[str]] = frozenset({"key"})

    text: PlainText = ""
    name: NonEmptyText = "x"
    address: Address | None = None
    size: Size = 1
    count: Count = 0
    port: Port = 1
    switch: Switch = False
    variable: VariableName = "A"
    key: Secret | None = None
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()


def mistakes(spec: type[Spec], data: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as raised:
        spec.model_validate(data)
    return [(".".join(str(part) for part in e["loc"]), e["msg"]) for e in raised.value.errors()]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("text", "a\0b", "must not hold a NUL byte, which no process can be given, not 'a\\x00b'"),
        ("text", 5, "must be text, not 5; write it in quotes"),
        ("text", None, "must be text, not None"),
        ("text", b"x", "must be text, not b'x'"),
        ("name", "", "must not be empty, not ''"),
        ("name", " \t", "must not be empty, not ' \\t'"),
        ("name", "a\0", "must not hold a NUL byte, which no process can be given, not 'a\\x00'"),
        ("address", "10.0.0.256", "'10.0.0.256' is no IPv4 address: four numbers from 0 to 255"),
        (
            "address",
            "[fd00::1]:80",
            "'[fd00::1]:80' is no IPv6 address; give the address alone, without a port or a scheme",
        ),
        ("address", 10.0, "must be text, not 10.0; write it in quotes"),
        ("size", 0, "should be greater than or equal to 1, not 0"),
        ("size", "4", "must be a whole number, not '4'; write it without quotes"),
        ("size", 4.0, "must be a whole number, not 4.0"),
        ("size", True, "must be a whole number, not True"),
        ("count", -1, "should be greater than or equal to 0, not -1"),
        ("port", 0, "should be greater than or equal to 1, not 0"),
        ("port", 65536, "should be less than or equal to 65535, not 65536"),
        ("port", "8000", "must be a whole number, not '8000'; write it without quotes"),
        ("switch", "yes", "must be true or false, not 'yes'"),
        ("switch", 1, "must be true or false, not 1"),
        ("variable", "", "must be the name of an environment variable, not ''"),
        ("variable", "A=B", "must be the name of an environment variable, not 'A=B'"),
        ("variable", "A\0", "must be the name of an environment variable, not 'A\\x00'"),
        ("inner", 5, "must be a mapping of fields, not 5"),
        ("several", "x", "must be a list, not 'x'"),
    ],
)
def test_a_bad_value_names_the_field_the_value_and_what_is_allowed(
    field: str, value: Any, message: str
) -> None:
    assert mistakes(Sample, {field: value}) == [(field, message)]


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    data = {"size": 0, "inner": {"size": 0}, "several": [{}, {"sise": 1}, {"size": "x"}], "bogus": 1}
    assert mistakes(Sample, data) == [
        ("size", "should be greater than or equal to 1, not 0"),
        ("inner.size", "should be greater than or equal to 1, not 0"),
        ("several.1.sise", "unknown key 'sise'; did you mean 'size'?"),
        ("several.2.size", "must be a whole number, not 'x'"),
        (
            "bogus",
            "unknown key 'bogus'; known are text, name, address, size, count, port, switch, variable, key, "
            "inner, several",
        ),
    ]


class Required(Spec):
    name: NonEmptyText


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, [("name", "is required")]),
        ("x", [("", "must be a mapping of fields, not 'x'")]),
        ({1: 2, "name": "a"}, [("1", "Keys should be strings, not 1")]),
    ],
)
def test_what_is_no_spec_at_all(data: Any, expected: list[tuple[str, str]]) -> None:
    assert mistakes(Required, data) == expected


def test_a_long_value_is_cut_short() -> None:
    ((_, message),) = mistakes(Sample, {"size": "x" * 1000})
    assert message == f"must be a whole number, not '{'x' * 116}..."


@pytest.mark.parametrize("text", ["{text}", "{}", "{0}", "%s", "{value!r}"])
def test_braces_in_a_value_are_shown_as_they_are(text: str) -> None:
    assert mistakes(Sample, {"size": text}) == [("size", f"must be a whole number, not {text!r}")]


HOW_TO_NAME_A_SECRET = (
    "a secret is named, not written: {env: NAME} for an environment variable (letters, digits and _, "
    "without a $), {file: PATH} for a file (a whole path, without a ~); "
    "Python code may hand in a pydantic.SecretStr"
)


@pytest.mark.parametrize(
    "value",
    [
        "s3cret",
        12345678,
        ["s3cret"],
        {"env": "s3cret=1"},
        {"env": ""},
        {"env": 12345678},
        {"file": ""},
        {"file": "s3cret\0"},
        {"env": "s3cret", "file": "s3cret"},
        {"env": "$s3cret"},
        {"env": "s3cret; x"},
        {"file": "~/s3cret"},
        {"value": "s3cret"},
        {"literal": "s3cret"},
        {},
        SecretStr(""),
    ],
    ids=repr,
)
def test_a_secret_in_the_wrong_place_is_not_repeated(value: Any) -> None:
    with pytest.raises(ValidationError) as raised:
        Sample(key=value)
    error = raised.value
    assert [(e["loc"], e["msg"]) for e in error.errors()] == [(("key",), HOW_TO_NAME_A_SECRET)]
    shown = [str(error), repr(error), repr(error.errors()), error.json(), repr(error.__cause__)]
    assert not any("s3cret" in text or "12345678" in text for text in shown)


@pytest.mark.parametrize(
    ("given", "reference", "data"),
    [
        ({"env": "MY_KEY"}, EnvironmentSecret("MY_KEY"), {"env": "MY_KEY"}),
        ({"file": "/run/key"}, FileSecret("/run/key"), {"file": "/run/key"}),
        (EnvironmentSecret("MY_KEY"), EnvironmentSecret("MY_KEY"), {"env": "MY_KEY"}),
        (SecretStr("s3cret"), LiteralSecret("s3cret"), {"literal": "**********"}),
        (SecretBytes(b"s3cret"), LiteralSecret("s3cret"), {"literal": "**********"}),
    ],
    ids=repr,
)
def test_a_secret_is_a_reference_and_stays_one(given: Any, reference: Any, data: Any) -> None:
    sample = Sample(key=given)
    assert sample.key == reference
    assert sample.model_dump()["key"] == data
    assert json.loads(sample.model_dump_json())["key"] == data
    assert "s3cret" not in repr(sample) + str(sample) + sample.model_dump_json() + repr(sample.model_dump())


def test_a_value_is_nowhere_in_the_error_but_in_its_message() -> None:
    with pytest.raises(ValidationError) as raised:
        Sample(inner={"size": "twelve"})
    (entry,) = raised.value.errors()
    assert (entry["loc"], entry["input"]) == (("inner", "size"), None)
    assert str(raised.value) == (
        "1 validation error for Sample\ninner.size\n"
        "  must be a whole number, not 'twelve' [type=explained_value]"
    )


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Sample().size = 2  # type: ignore[misc]
    assert hash(Sample(size=2)) == hash(Sample(size=2))
