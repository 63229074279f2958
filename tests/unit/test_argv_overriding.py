"""The operator's arguments replace built ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginelaunch.argv import Flag, FlagTable, Grammar, Override, overrides, parse

TABLE = FlagTable(
    [
        Flag(name="--port", destination="port", value="port"),
        Flag(name="--host", destination="host", aliases=("-h",)),
        Flag(name="--names", destination="names", nargs="+"),
        Flag(
            name="--enable-it",
            destination="enable_it",
            negations=("--no-enable-it",),
            nargs=0,
            value="boolean",
        ),
        Flag(name="--cache-config", destination="cache_config", aliases=("-cc",), value="config"),
        Flag(name="--each", destination="each", append=True),
    ],
    Grammar(),
)

BUILT = [
    ("--host", "::"),
    ("--port", "8000"),
    ("--names", "a", "b"),
    ("--enable-it",),
    ("--cache-config", '{"x":1}'),
    ("--each", "built"),
]


def override(flag: str, *given: str) -> Override:
    built = next(argument for argument in BUILT if argument[0] == flag)
    return Override(flag=flag, built=built, given=given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ()),
        (["--port=9000"], (override("--port", "--port=9000"),)),
        (["--por", "9000"], (override("--port", "--por", "9000"),)),
        (["-h", "10.0.0.1"], (override("--host", "-h", "10.0.0.1"),)),
        (["-h::1"], (override("--host", "-h::1"),)),
        (["--names", "c", "d", "e"], (override("--names", "--names", "c", "d", "e"),)),
        (["--no_enable_it"], (override("--enable-it", "--no_enable_it"),)),
        (
            ["-cc.a", "1", "--cache_config.b=2"],
            (override("--cache-config", "-cc.a", "1", "--cache_config.b=2"),),
        ),
        (["--each", "x", "--each=y"], (override("--each", "--each", "x", "--each=y"),)),
        (
            ["--port", "1025", "--host=h", "--port=1026"],
            (override("--host", "--host=h"), override("--port", "--port", "1025", "--port=1026")),
        ),
        (
            ["--names", "c", "-cc.a", "1", "d"],
            (override("--names", "--names", "c", "d"), override("--cache-config", "-cc.a", "1")),
        ),
    ],
    ids=repr,
)
def test_each_built_argument_that_is_replaced_is_told_with_what_replaces_it(
    given: list[str], expected: tuple[Override, ...]
) -> None:
    assert overrides(BUILT, parse(given, TABLE)) == expected


@given(st.sets(st.sampled_from(BUILT)))
def test_exactly_the_flags_that_are_given_are_replaced(given: set[tuple[str, ...]]) -> None:
    arguments = parse([item for argument in sorted(given) for item in argument], TABLE)
    assert overrides(BUILT, arguments) == tuple(
        Override(flag=argument[0], built=argument, given=argument) for argument in BUILT if argument in given
    )


def test_nothing_built_is_replaced_by_a_flag_that_was_not_built() -> None:
    assert overrides([("--host", "::")], parse(["--port=9000", "--unknown"], TABLE)) == ()
