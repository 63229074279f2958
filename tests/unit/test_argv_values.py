"""From the text of a flag's value to what the parser makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginelaunch.argv import (
    BadValueError,
    Flag,
    ValueKind,
    canonical_json,
    human_readable_integer,
    read_value,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
@settings(max_examples=150, deadline=None)
def test_canonical_json_is_read_back_as_the_same_value(value: Any) -> None:
    text = canonical_json(value)
    assert repr(json.loads(text)) == repr(json.loads(json.dumps(value, sort_keys=True)))
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=6), st.randoms())
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, int], random: Any) -> None:
    pairs = list(value.items())
    random.shuffle(pairs)
    assert canonical_json(dict(pairs)) == canonical_json(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, '{"a":[true,null,1.5],"b":1}'),
        ({"ключ": "值 ü"}, '{"ключ":"值 ü"}'),
        ('a\nb"c\\d', '"a\\nb\\"c\\\\d"'),
        ({}, "{}"),
        ([], "[]"),
    ],
    ids=repr,
)
def test_canonical_json_is_compact(value: Any, text: str) -> None:
    assert canonical_json(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [{"a": -float("inf")}]], ids=repr)
def test_canonical_json_has_no_numbers_that_json_lacks(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4096", 4096),
        ("4k", 4000),
        ("4K", 4096),
        ("25.6k", 25600),
        ("1.5m", 1_500_000),
        ("2M", 2 * 2**20),
        ("3g", 3 * 10**9),
        ("3G", 3 * 2**30),
        ("1t", 10**12),
        ("1T", 2**40),
        ("-1", -1),
        ("-4096", -4096),
        ("0", 0),
        (" 4k ", 4000),
        (" 7\n", 7),
        ("1_000", 1000),
    ],
)
def test_a_human_readable_integer_is_read(text: str, number: int) -> None:
    assert human_readable_integer(text) == number


@pytest.mark.parametrize(
    "text",
    ["1.5K", "1.5", "", " ", "k", "auto", "4kk", "4 k", "-4k", "4kB", "4K0", ".5k", "1e3", "0x10", "nan"],
)
def test_what_is_no_human_readable_integer_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text of int() differs between releases of Python
        human_readable_integer(text)


def test_decimals_before_a_power_of_two_name_the_way_out() -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole text is compared
        human_readable_integer("1.5K")
    assert str(raised.value) == "'1.5K': K is a power of two and takes no decimals; write k"


def test_a_number_beyond_all_bounds_is_refused_as_a_value() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - that it is no OverflowError is what counts
        human_readable_integer("9" * 400 + "k")


def flag(kind: ValueKind, **more: Any) -> Flag:
    return Flag(name="--it", destination="it", value=kind, **more)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "", ""),
        ("string", " as it is ", " as it is "),
        ("integer", "-5", -5),
        ("integer", " 7 ", 7),
        ("float", "0.9", 0.9),
        ("float", "1", 1.0),
        ("human_readable_integer", "4K", 4096),
        ("human_readable_integer_or_auto", "auto", -1),
        ("human_readable_integer_or_auto", "AUTO", -1),
        ("human_readable_integer_or_auto", " -1 ", -1),
        ("human_readable_integer_or_auto", "4k", 4000),
        ("port", "1024", 1024),
        ("port", "65535", 65535),
        ("json", "[1, 2]", [1, 2]),
        ("json", '"x"', "x"),
        ("json_or_string", "plain", "plain"),
        ("json_or_string", "[1]", "[1]"),
        ("json_or_string", ' {"a": 1} ', {"a": 1}),
        ("config", '{"a": {"b": null}}', {"a": {"b": None}}),
        ("key_value", "image=16,Video=2", {"image": 16, "video": 2}),
        ("key_value", '{"image": 16}', {"image": 16}),
        ("lora_modules", "sql=/adapters/sql", {"name": "sql", "path": "/adapters/sql"}),
        ("lora_modules", '{"name": "a=b", "path": "x"}', {"name": "a=b", "path": "x"}),
    ],
)
def test_a_value_is_read_as_its_kind(kind: ValueKind, text: str, value: Any) -> None:
    read = read_value(flag(kind), text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "text", "allowed"),
    [
        ("integer", "1.5", "a whole number"),
        ("integer", "", "a whole number"),
        ("integer", "9" * 5000, "a whole number"),
        ("float", "x", "a number"),
        ("human_readable_integer", "1.5K", "a whole number, as in 4096, 4k (4000) or 4K (4096)"),
        ("human_readable_integer", "auto", "a whole number, as in 4096, 4k (4000) or 4K (4096)"),
        ("human_readable_integer_or_auto", "", "a whole number, as in 4096, 4k (4000) or 4K (4096), or auto"),
        ("port", "1023", "a port from 1024 to 65535"),
        ("port", "65536", "a port from 1024 to 65535"),
        ("port", "http", "a port from 1024 to 65535"),
        ("json", "{", "JSON"),
        ("json", "nope", "JSON"),
        ("json_or_string", "{a}", "text or a JSON object"),
        ("config", "[]", "a JSON object"),
        ("config", "3", "a JSON object"),
        ("config", "", "a JSON object"),
        ("config", "{'a': 1}", "a JSON object"),
        ("key_value", "image", "name=count, or a JSON object"),
        ("key_value", "image=x", "name=count, or a JSON object"),
        ("key_value", "image=1,IMAGE=2", "name=count, or a JSON object"),
        ("lora_modules", "sql", "name=path, or a JSON object with name and path"),
        ("lora_modules", "=/adapters", "name=path, or a JSON object with name and path"),
        ("lora_modules", '{"name": "sql"}', "name=path, or a JSON object with name and path"),
    ],
)
def test_a_bad_value_names_the_flag_the_value_and_what_is_allowed(
    kind: ValueKind, text: str, allowed: str
) -> None:
    with pytest.raises(BadValueError) as raised:
        read_value(flag(kind), text)
    assert str(raised.value) == f"--it takes {allowed}, not {text!r}"


def test_a_value_outside_the_choices_names_them() -> None:
    with pytest.raises(BadValueError) as raised:
        read_value(flag("string", choices=("auto", "fp8")), "FP8")
    assert str(raised.value) == "--it must be one of auto, fp8, not 'FP8'"


@pytest.mark.parametrize("kind", ["json", "config", "json_or_string", "key_value", "lora_modules"])
@pytest.mark.parametrize("text", ['{"a":' * 50_000 + "1" + "}" * 50_000])
def test_json_nested_too_deeply_is_a_bad_value(kind: ValueKind, text: str) -> None:
    with pytest.raises(BadValueError, match=r"^--it takes "):
        read_value(flag(kind), text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 80m}', {"a": 80_000_000}),
        ('{"a": [1.5k, 2K], "b": "3k"}', {"a": [1500, 2048], "b": "3k"}),
        (r'{"a \" 5k": "x\\"}', {'a " 5k': "x\\"}),
    ],
)
def test_number_suffixes_in_json_leave_quoted_text_alone(text: str, value: Any) -> None:
    assert read_value(flag("config"), text, json_number_suffixes=True) == value


@pytest.mark.parametrize("text", ['{"a": 1.5K}', '{"a": ' + "9" * 400 + "k}"])
def test_a_bad_number_with_a_suffix_in_json_is_a_bad_value(text: str) -> None:
    with pytest.raises(BadValueError, match=r"^--it takes a JSON object, not "):
        read_value(flag("config"), text, json_number_suffixes=True)


@pytest.mark.parametrize("kind", ["integer", "json", "config", "string", "lower_case_string"])
@pytest.mark.parametrize("text", ["", "None"])
def test_no_value_can_be_given_where_the_flag_allows_it(kind: ValueKind, text: str) -> None:
    flag = Flag(name="--x", destination="x", value=kind, none_allowed=True)
    assert read_value(flag, text) is None


def test_a_lower_case_string_is_compared_with_the_choices_after_it_was_changed() -> None:
    flag = Flag(name="--x", destination="x", value="lower_case_string", choices=("deep_gemm",))
    assert read_value(flag, "DEEP-GEMM") == "deep_gemm"
    with pytest.raises(BadValueError, match="--x must be one of deep_gemm, not 'deep'"):
        read_value(flag, "deep")
