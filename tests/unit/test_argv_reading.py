"""Reading an argv by a table of flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from enginelaunch.argv import (
    Arguments,
    BadValueError,
    Flag,
    FlagTable,
    Grammar,
    Problem,
    parse,
)

SIZE = Flag(name="--tensor-size", destination="tensor_size", aliases=("-ts",), value="integer")
COUNT = Flag(name="--count", destination="count", aliases=("-c",), value="string")
RATIO = Flag(name="--ratio", destination="ratio", value="float")
MODE = Flag(name="--load-mode", destination="load_mode", choices=("auto", "fast", "two words", "-1"))
SWITCH = Flag(
    name="--enable-it",
    destination="enable_it",
    aliases=("-it",),
    negations=("--no-enable-it",),
    nargs=0,
    value="boolean",
)
PLAIN = Flag(name="--eager", destination="eager", nargs=0, value="boolean")
NAMES = Flag(name="--served-names", destination="served_names", nargs="+")
MANY = Flag(name="--many", destination="many", nargs="*")
MAYBE = Flag(name="--maybe", destination="maybe", nargs="?")
PAIR = Flag(name="--pair", destination="pair", nargs=2)
EACH = Flag(name="--each", destination="each", append=True)
CONFIG = Flag(name="--cache-config", destination="cache_config", aliases=("-cc",), value="config")
LOOSE = Flag(name="--loose", destination="loose", value="json_or_string")
FLAGS = (SIZE, COUNT, RATIO, MODE, SWITCH, PLAIN, NAMES, MANY, MAYBE, PAIR, EACH, CONFIG, LOOSE)
TABLE = FlagTable(FLAGS, Grammar())


def table(*flags: Flag, **grammar: Any) -> FlagTable:
    return FlagTable(flags, Grammar(**grammar))


def complaints(arguments: Arguments) -> list[tuple[str, int, str]]:
    return [(p.kind, p.index, p.message) for p in arguments.problems]


# --- what is built is read back ---

any_text = st.text(max_size=8)
name_text = st.text("abcXYZ019éß漢_-", max_size=6)
values_that_stand_alone = st.one_of(
    any_text.filter(lambda text: not text.startswith("-")),
    st.integers(max_value=-1).map(str),
    st.just("-"),
    any_text.filter(lambda text: "." not in text).map(lambda text: f"- {text}"),
)
json_objects = st.sampled_from(["{}", '{"a":1}', '{"ü": ["-x", {"b.c": null}]}'])


class Use(NamedTuple):
    """What one use of a flag is to be read as, counted from its own first item."""

    flag: Flag
    spelling: str
    values: tuple[str, ...]
    stop: int
    negated: bool = False
    key_path: tuple[str, ...] = ()
    appends: bool = False
    start: int = 0


@st.composite
def plain_uses(draw: st.DrawFn) -> tuple[list[str], Use]:
    """One use of a flag in any spelling, as items and as what they are to be read as."""
    flag = draw(st.sampled_from(FLAGS))
    spelling = draw(st.sampled_from((flag.name, *flag.aliases, *flag.negations)))
    negated = spelling in flag.negations
    written = spelling.replace("-", "_").replace("_", "-", 2) if draw(st.booleans()) else spelling
    written = written if spelling.startswith("--") else spelling
    alone, glued = values_that_stand_alone, any_text
    if flag.value == "integer":
        alone = glued = st.integers().map(str)
    elif flag.value == "float":
        alone = glued = st.sampled_from(["1.5", "0", "1e3", "-7"])
    elif flag.choices:
        alone = glued = st.sampled_from(flag.choices)
    elif flag.value == "config":
        alone = glued = json_objects
    elif flag.value == "json_or_string":
        alone, glued = alone.filter(lambda text: "{" not in text), glued.filter(lambda text: "{" not in text)
    counts = {0: (0, 0), "?": (0, 1), "*": (0, 3), "+": (1, 3), 2: (2, 2)}.get(flag.nargs, (1, 1))
    count = draw(st.integers(*counts))
    style = draw(st.sampled_from(["separate", "equals", "glued"])) if count == 1 else "separate"
    if style == "glued" and len(spelling) == 2:
        value = draw(glued.filter(lambda text: text and text[0] != "=" and "." not in text.split("=")[0]))
        return [spelling + value], Use(flag, spelling, (value,), 1, negated=negated)
    if style == "equals":
        value = draw(glued)
        return [f"{written}={value}"], Use(flag, spelling, (value,), 1, negated=negated)
    values = tuple(draw(alone) for _ in range(count))
    return [written, *values], Use(flag, spelling, values, 1 + count, negated=negated)


@st.composite
def dotted_uses(draw: st.DrawFn) -> tuple[list[str], Use]:
    """One dotted use of a JSON flag."""
    flag = draw(st.sampled_from((CONFIG, LOOSE)))
    spelling = draw(st.sampled_from((flag.name, *flag.aliases)))
    keys = tuple(draw(st.lists(name_text, min_size=1, max_size=3)))
    appends = draw(st.booleans())
    tail = "." + ".".join(keys) + "+" * appends
    underscores = draw(st.booleans()) and spelling.startswith("--")
    written = ("--" + spelling[2:].replace("-", "_") if underscores else spelling) + tail
    if draw(st.booleans()):
        value = draw(any_text)
        items = [f"{written}={value}"]
    else:
        value = draw(any_text.filter(lambda text: not text.startswith(("--", "-O"))))
        items = [written, value]
    return items, Use(flag, spelling + tail, (value,), len(items), key_path=keys, appends=appends)


def put_together(uses: Sequence[tuple[list[str], Use]]) -> tuple[list[str], tuple[Any, ...]]:
    items: list[str] = []
    expected = []
    for own, use in uses:
        expected.append(described(use, len(items)))
        items += own
    return items, tuple(expected)


def described(use: Any, offset: int = 0) -> tuple[Any, ...]:
    place = (use.start + offset, use.stop + offset)
    return (use.flag.name, use.spelling, use.values, use.negated, use.key_path, use.appends, *place)


@given(st.lists(plain_uses() | dotted_uses(), max_size=6))
@settings(max_examples=200, deadline=None)
def test_what_is_built_from_uses_is_read_back_as_these_uses(uses: list[tuple[list[str], Use]]) -> None:
    items, expected = put_together(uses)
    arguments = parse(items, TABLE)
    assert complaints(arguments) == []
    assert tuple(described(use) for use in arguments.occurrences) == expected
    assert arguments.items == tuple(items)
    assert arguments.positionals == ()


# --- taking flags out ---


@st.composite
def owned_items(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Items with the long name of the flag that each belongs to; dotted uses stand anywhere."""
    owned: list[tuple[str, str]] = []
    for items, use in draw(st.lists(plain_uses(), max_size=5)):
        owned += [(item, use.flag.name) for item in items]
    for items, use in draw(st.lists(dotted_uses(), max_size=3)):
        place = draw(st.integers(0, len(owned)))
        between = owned[place - 1 : place + 1]
        # Inside another dotted use it would be taken for its value.
        assume(not (len(between) == 2 and between[0][1] == between[1][1] and "." in between[0][0]))
        owned[place:place] = [(item, use.flag.name) for item in items]
    return owned


@given(owned_items(), st.sets(st.sampled_from([flag.name for flag in FLAGS])))
@settings(max_examples=150, deadline=None)
def test_taking_flags_out_leaves_every_other_item_in_place(
    owned: list[tuple[str, str]], names: set[str]
) -> None:
    arguments = parse([item for item, _ in owned], TABLE)
    assume(not arguments.problems)
    assert arguments.without(names) == tuple(item for item, owner in owned if owner not in names)


@pytest.mark.parametrize(
    ("items", "left"),
    [
        (["--served-names", "a", "--cache-config.x", "1", "b"], ("--cache-config.x", "1")),
        (["--served-names", "--cache-config.x=1", "a", "b", "--eager"], ("--cache-config.x=1", "--eager")),
        (["--eager", "--served-names", "a", "b"], ("--eager",)),
    ],
)
def test_a_dotted_flag_among_the_values_of_another_stays_when_that_one_is_taken_out(
    items: list[str], left: tuple[str, ...]
) -> None:
    assert parse(items, TABLE).without({"--served-names"}) == left


def test_a_dotted_flag_among_the_values_of_another_is_taken_out_alone() -> None:
    arguments = parse(["--served-names", "a", "--cache-config.x", "1", "b"], TABLE)
    assert arguments.without({"--cache-config"}) == ("--served-names", "a", "b")
    assert arguments.values() == {"served_names": ["a", "b"], "cache_config": {"x": 1}}


def test_taking_out_an_append_flag_takes_all_its_uses() -> None:
    arguments = parse(["--each", "a", "--eager", "--each=b"], TABLE)
    assert arguments.without({"--each"}) == ("--eager",)


def test_taking_out_a_flag_takes_its_negation() -> None:
    assert parse(["--no_enable_it", "--eager", "-it"], TABLE).without({"--enable-it"}) == ("--eager",)


def test_taking_out_a_flag_that_is_not_there_changes_nothing() -> None:
    assert parse(["--eager", "stray"], TABLE).without({"--pair"}) == ("--eager", "stray")


# --- nothing is raised for the content of an argv ---

flag_like = st.sampled_from(
    [
        *(spelling for flag in FLAGS for spelling in (flag.name, *flag.aliases, *flag.negations)),
        "--cache_config",
        "--cache-config.a",
        "--cache-config.a+",
        "-cc.",
        "-c.5",
        "--",
        "-",
        "",
        "--=",
        "-=",
        "--.",
        "-.",
        ".",
        "-O",
        "-O3",
        "-O.level",
        "--tensor",
        "--no",
    ]
)
wild_items = st.lists(
    st.one_of(st.text(max_size=10), flag_like, st.builds("{}={}".format, flag_like, st.text(max_size=10))),
    max_size=8,
)
wild_grammars = st.builds(
    Grammar,
    underscore_is_dash=st.booleans(),
    equals_sign=st.booleans(),
    abbreviations=st.booleans(),
    dotted_keys=st.booleans(),
    dotted_append=st.booleans(),
    json_number_suffixes=st.booleans(),
    shorthand=st.sampled_from([None, "-O"]),
    shorthand_means=st.sampled_from(["--count", "-O.level"]),
    shorthand_dotted_means=st.sampled_from([None, "-cc"]),
    positionals=st.integers(0, 2),
)


@given(wild_items, wild_grammars)
@example(["--tensor-size", "9" * 5000], Grammar())
@settings(max_examples=200, deadline=None)
def test_any_list_of_text_is_read_without_raising(items: list[str], grammar: Grammar) -> None:
    arguments = parse(items, FlagTable(FLAGS, grammar))
    assert arguments.items == tuple(items)
    assert [p.item for p in arguments.problems] == [items[p.index] for p in arguments.problems]
    assert all(0 <= use.start < use.stop <= len(items) for use in arguments.occurrences)
    assert len(arguments.positionals) <= grammar.positionals


@pytest.mark.parametrize("value", ["[" * 100_000, '{"a":' * 100_000], ids=["lists", "objects"])
@pytest.mark.parametrize("kind", ["config", "json"])
def test_json_that_is_nested_too_deeply_is_a_problem(kind: Any, value: str) -> None:
    flag = Flag(name="--deep", destination="deep", value=kind)
    arguments = parse(["--deep", value], table(flag))
    assert [(p.kind, p.index, p.flag) for p in arguments.problems] == [("bad_value", 0, "--deep")]


def test_a_dotted_value_that_is_nested_too_deeply_stays_text() -> None:
    arguments = parse(["--cache-config.a", "[" * 100_000], TABLE)
    assert arguments.value("--cache-config") == {"a": "[" * 100_000}


@pytest.mark.parametrize("kind", ["human_readable_integer", "human_readable_integer_or_auto"])
def test_a_number_beyond_all_bounds_is_a_problem(kind: Any) -> None:
    value = "9" * 400 + "k"
    flag = Flag(name="--budget", destination="budget", value=kind)
    assert [(p.kind, p.flag) for p in parse(["--budget", value], table(flag)).problems] == [
        ("bad_value", "--budget")
    ]


# --- the same as Python's own argparse ---


class Refused(Exception):  # noqa: N818 - what argparse says, not an error of ours
    pass


class OwnParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


@cache
def argparse_of(flags: tuple[Flag, ...]) -> OwnParser:
    parser = OwnParser(add_help=False, allow_abbrev=True)
    types = {"integer": int, "float": float}
    for flag in flags:
        options: dict[str, Any] = {"dest": flag.destination, "default": argparse.SUPPRESS}
        if flag.negations:
            options["action"] = argparse.BooleanOptionalAction
        elif flag.nargs == 0:
            options["action"] = "store_true"
        else:
            options["type"] = types.get(flag.value, str)
            options["choices"] = [options["type"](choice) for choice in flag.choices] or None
            if flag.nargs != 1:
                options["nargs"] = flag.nargs
            if flag.nargs == "?":
                options["const"] = True
            if flag.append:
                options["action"] = "append"
        # BooleanOptionalAction makes the negation of each long spelling itself.
        parser.add_argument(flag.name, *flag.aliases, **options)
    return parser


def normalised(item: str) -> str:
    """Underscores to dashes, as engines do before argparse sees an item."""
    if not item.startswith("--"):
        return item
    name, equals, value = item.partition("=")
    head, dot, rest = name.partition(".")
    return head.replace("_", "-") + dot + rest + equals + value


ARGPARSE_FLAGS = (SIZE, COUNT, RATIO, MODE, SWITCH, PLAIN, NAMES, MANY, MAYBE, PAIR, EACH)
option_items = st.sampled_from(
    [
        *(s for flag in ARGPARSE_FLAGS for s in (flag.name, *flag.aliases, *flag.negations)),
        *("--tensor_size", "--load_mode", "--no_enable_it", "--served_names", "--enable_it"),
        # abbreviations, clear and ambiguous
        *("--tensor", "--load", "--ma", "--man", "--may", "--e", "--en", "--eag", "--no", "--c", "--served"),
        # glued to a flag of one letter, and such that look like it
        *("-c5", "-cfoo bar", "-c-1", "-c--eager", "-cc", "-t", "-i", "-ts5", "-itx"),
        # unknown
        *("--unknown", "--cache-config", "-x", "-x5", "-n ow", "--unknown=5", "--un known", "-5x"),
    ]
)
value_items = st.sampled_from(
    [
        *("", "-", "a", "auto", "fast", "two words", "5", "-5", "-1", "-.5", "-1.5", "1e3", " 7 ", "1_000"),
        *("٤", "nan", "x=y", "=", "-5 x", "- x", "--a b", "é", "0x10", "+3"),
    ]
)
equals_items = st.builds(
    "{}={}".format,
    option_items.filter(lambda item: item.startswith("--")) | st.sampled_from(["-c", "-ts", "-it"]),
    value_items | st.sampled_from(["--eager", "-c", "a=b"]),
)


@given(st.lists(option_items | value_items | equals_items, max_size=7))
@example(["--pair", "a", "--eager", "b"])
@example(["--tensor-size", "--", "5"])
@example(["--many", "--maybe", "--served-names"])
@example(["--maybe", "--", "x"])
@settings(max_examples=500, deadline=None)
def test_an_argv_is_read_as_argparse_reads_it(items: list[str]) -> None:
    arguments = parse(items, FlagTable(ARGPARSE_FLAGS, Grammar(dotted_keys=False)))
    try:
        expected = vars(argparse_of(ARGPARSE_FLAGS).parse_args([normalised(item) for item in items]))
    except Refused:
        assert arguments.problems != ()
    else:
        assert complaints(arguments) == []
        assert repr(arguments.values()) == repr({d: expected[d] for d in arguments.values()})
        assert set(arguments.values()) == set(expected)


@pytest.mark.parametrize(
    ("items", "flags"),
    [
        # `--` alone is left over where nothing takes it.
        (["--"], (SIZE,)),
        (["--tensor-size", "5", "--"], (SIZE,)),
        # Two spellings of one flag that begin alike are two candidates.
        (["--fo", "5"], (Flag(name="--foo", destination="foo", aliases=("--foobar",)),)),
        # What is glued to a switch is no value of it.
        (["-ab"], (Flag(name="--all", destination="all", aliases=("-a",), nargs=0, value="boolean"),)),
    ],
)
def test_what_argparse_refuses_is_a_problem(items: list[str], flags: tuple[Flag, ...]) -> None:
    with pytest.raises(Refused):
        argparse_of(flags).parse_args(items)
    assert parse(items, FlagTable(flags, Grammar(dotted_keys=False))).problems != ()


@pytest.mark.parametrize(
    ("items", "flags", "values"),
    [
        # A choice is compared as the number that it is.
        (
            ["--block", "016"],
            (Flag(name="--block", destination="block", value="integer", choices=("8", "16")),),
            {"block": 16},
        ),
        # Two flags may set one thing: the last one in the argv counts.
        (
            ["--old", "1", "--new", "2", "--old", "3"],
            (Flag(name="--old", destination="same"), Flag(name="--new", destination="same")),
            {"same": "3"},
        ),
    ],
    ids=["choices", "shared destination"],
)
def test_what_argparse_takes_is_taken(
    items: list[str], flags: tuple[Flag, ...], values: dict[str, Any]
) -> None:
    expected = vars(argparse_of(flags).parse_args(items))
    arguments = parse(items, FlagTable(flags, Grammar(dotted_keys=False)))
    assert (expected, complaints(arguments), arguments.values()) == (values, [], values)


# --- single rules ---


@pytest.mark.parametrize(
    "items",
    [
        ["--tensor-size", "4"],
        ["--tensor_size", "4"],
        ["--tensor-size=4"],
        ["--tensor_size=4"],
        ["--tensor", "4"],
        ["--tensor=4"],
        ["-ts", "4"],
        ["-ts=4"],
        ["-ts", "2", "--tensor-size", "4"],
    ],
    ids=" ".join,
)
def test_every_spelling_is_the_same_flag(items: list[str]) -> None:
    arguments = parse(items, TABLE)
    assert arguments.values() == {"tensor_size": 4}
    assert arguments.without({"--tensor-size"}) == ()


@pytest.mark.parametrize(
    ("items", "value"),
    [
        (["--enable-it"], True),
        (["-it"], True),
        (["--no-enable-it"], False),
        (["--enable-it", "--no_enable_it"], False),
        (["--no-enable-it", "-it"], True),
        (["--no-enable"], False),
    ],
    ids=repr,
)
def test_the_last_use_of_a_switch_counts(items: list[str], value: bool) -> None:
    assert parse(items, TABLE).value("--enable-it") is value


@pytest.mark.parametrize(
    ("items", "values"),
    [
        (["--each", "a", "--each=b"], {"each": ["a", "b"]}),
        (["--served-names", "a", "b", "--served-names", "c"], {"served_names": ["c"]}),
        (["--many"], {"many": []}),
        (["--maybe"], {"maybe": True}),
        (["--maybe", "x"], {"maybe": "x"}),
        (["--pair", "x", "y"], {"pair": ["x", "y"]}),
        (["--count", "-5"], {"count": "-5"}),
        (["--count="], {"count": ""}),
        (["--count=--eager"], {"count": "--eager"}),
        (["--count", ""], {"count": ""}),
    ],
    ids=repr,
)
def test_values_by_how_many_a_flag_takes(items: list[str], values: dict[str, Any]) -> None:
    arguments = parse(items, TABLE)
    assert complaints(arguments) == []
    assert arguments.values() == values


@pytest.mark.parametrize(
    ("items", "value"),
    [
        (["--cache-config.a", "1"], {"a": 1}),
        (["--cache_config.a_b=x"], {"a_b": "x"}),
        (["-cc.a.b", "true"], {"a": {"b": True}}),
        (["--cache.a", "1"], {"a": 1}),
        (["--cache-config.a", "1", "--cache-config.b", "2"], {"a": 1, "b": 2}),
        (["--cache-config.a", "1", "--cache-config.a", "2"], {"a": 2}),
        (["--cache-config.a.x", "1", "-cc.a.y", "2"], {"a": {"x": 1, "y": 2}}),
        (["--cache-config.a", "4k"], {"a": 4000}),
        (["--cache-config.a", "--eager"], {"a": "--eager"}),
        (["--cache-config.a+", "x,y", "--cache-config.a+", "z"], {"a": ["x", "y", "z"]}),
        (["--cache-config.a", '{"b": 1}', "--cache-config.a.c", "2"], {"a": {"b": 1, "c": 2}}),
        (['--cache-config={"a": 1}', "--cache-config.b", "2"], {"b": 2}),
        (["--cache-config.b", "2", '--cache-config={"a": 1}'], {"b": 2}),
    ],
    ids=repr,
)
def test_dotted_keys_make_one_json_value(items: list[str], value: Any) -> None:
    arguments = parse(items, TABLE)
    assert complaints(arguments) == []
    assert arguments.value("--cache-config") == value


@pytest.mark.parametrize(
    ("items", "problems"),
    [
        (
            ["--tensr-size", "4"],
            [("unknown_flag", 0, "--tensr-size is not a flag of this release; did you mean --tensor-size?")],
        ),
        (["--zzz=4"], [("unknown_flag", 0, "--zzz is not a flag of this release")]),
        (["--ma", "x"], [("ambiguous_flag", 0, "--ma could be any of --many, --maybe")]),
        (["--count"], [("missing_value", 0, "--count needs a value")]),
        (["--count", "--eager"], [("missing_value", 0, "--count needs a value")]),
        (["--served-names"], [("missing_value", 0, "--served-names needs at least one value")]),
        (["--pair", "x"], [("missing_value", 0, "--pair needs 2 values, got 1")]),
        (["--pair=x"], [("missing_value", 0, "--pair needs 2 values, got 1")]),
        (["--cache-config.a"], [("missing_value", 0, "--cache-config.a needs a value")]),
        (["--eager=1"], [("unexpected_value", 0, "--eager is a switch and takes no value, got '1'")]),
        (
            ["--count.a", "1"],
            [("unexpected_value", 0, "--count has no keys: it does not take JSON")],
        ),
        (["--eager", "stray"], [("stray_value", 1, "'stray' belongs to no flag")]),
        (["--tensor-size", "x"], [("bad_value", 0, "--tensor-size takes a whole number, not 'x'")]),
        (
            ["--load-mode=slow"],
            [("bad_value", 0, "--load-mode must be one of auto, fast, two words, -1, not 'slow'")],
        ),
        (["--cache-config", "[]"], [("bad_value", 0, "--cache-config takes a JSON object, not '[]'")]),
        (
            ["--zzz", "x", "--pair", "a", "b", "c"],
            [
                ("unknown_flag", 0, "--zzz is not a flag of this release"),
                ("stray_value", 5, "'c' belongs to no flag"),
            ],
        ),
    ],
    ids=repr,
)
def test_every_problem_says_what_and_where(items: list[str], problems: list[tuple[str, int, str]]) -> None:
    assert complaints(parse(items, TABLE)) == problems


def test_a_problem_holds_the_item_as_it_was_written_and_the_flag() -> None:
    assert parse(["--tensor_size=x"], TABLE).problems == (
        Problem(
            kind="bad_value",
            index=0,
            item="--tensor_size=x",
            message="--tensor-size takes a whole number, not 'x'",
            flag="--tensor-size",
        ),
    )


@pytest.mark.parametrize("item", ["--tensor-size 4", "--served-names a b", "-ts 4"])
def test_a_flag_and_its_value_in_one_item_are_told_apart_from_a_stray_value(item: str) -> None:
    (problem,) = parse([item], TABLE).problems
    assert (problem.kind, problem.index) == ("stray_value", 0)
    assert "two items" in problem.message


@pytest.mark.parametrize(
    ("items", "positionals", "kinds"),
    [
        (["model"], ((0, "model"),), []),
        (["model", "--eager"], ((0, "model"),), []),
        (["--eager", "model"], ((1, "model"),), ["value_before_its_place"]),
        (["--", "model"], ((1, "model"),), []),
        (["--", "--eager"], ((1, "--eager"),), []),
        (["model", "second"], ((0, "model"),), ["stray_value"]),
        (["--tensor-size", "4", "--", "m"], ((3, "m"),), ["value_before_its_place"]),
    ],
    ids=repr,
)
def test_positionals_stand_in_front_of_the_flags(
    items: list[str], positionals: tuple[tuple[int, str], ...], kinds: list[str]
) -> None:
    arguments = parse(items, FlagTable(FLAGS, Grammar(positionals=1)))
    assert arguments.positionals == positionals
    assert [p.kind for p in arguments.problems] == kinds


@pytest.mark.parametrize(
    ("grammar", "items", "kind"),
    [
        (Grammar(underscore_is_dash=False), ["--tensor_size", "4"], "unknown_flag"),
        (Grammar(equals_sign=False), ["--tensor-size=4"], "unknown_flag"),
        (Grammar(abbreviations=False), ["--tensor", "4"], "unknown_flag"),
        (Grammar(dotted_keys=False), ["--cache-config.a", "4"], "unknown_flag"),
        (Grammar(dotted_append=False), ["--cache-config.a+", "4"], "unknown_flag"),
        (Grammar(), ['--cache-config={"a": 80m}'], "bad_value"),
    ],
)
def test_what_a_grammar_does_not_have_is_refused(grammar: Grammar, items: list[str], kind: str) -> None:
    assert [p.kind for p in parse(items, FlagTable(FLAGS, grammar)).problems] == [kind]


def test_a_flag_that_is_named_with_underscores_is_found() -> None:
    flag = Flag(name="--max_length", destination="max_length", value="integer")
    arguments = parse(["--max_length", "4"], table(flag))
    assert (complaints(arguments), arguments.values()) == ([], {"max_length": 4})


LEVEL = Flag(name="--optimization-level", destination="optimization_level", value="integer")
CC = Flag(
    name="--compilation-config", destination="compilation_config", aliases=("-cc", "-O"), value="config"
)


@pytest.mark.parametrize(
    ("items", "values"),
    [
        (["-O3"], {"optimization_level": 3}),
        (["-O=3"], {"optimization_level": 3}),
        (["-O", "3"], {"optimization_level": 3}),
        (["-O.mode", "3"], {"compilation_config": {"mode": 3}}),
        (["-O.mode=3"], {"compilation_config": {"mode": 3}}),
        (["-O", '{"mode": 3}'], {"compilation_config": {"mode": 3}}),
    ],
    ids=repr,
)
def test_a_shorthand_stands_for_its_flag(items: list[str], values: dict[str, Any]) -> None:
    grammar = {"shorthand": "-O", "shorthand_means": "--optimization-level", "shorthand_dotted_means": "-cc"}
    arguments = parse(items, table(LEVEL, CC, **grammar))
    assert (complaints(arguments), arguments.values()) == ([], values)


def test_number_suffixes_in_json_are_read_where_the_grammar_has_them() -> None:
    arguments = parse(
        ['--cache-config={"size": 80m, "name": "80m", "list": [4K]}'],
        FlagTable(FLAGS, Grammar(json_number_suffixes=True)),
    )
    assert complaints(arguments) == []
    assert arguments.value("--cache-config") == {"size": 80_000_000, "name": "80m", "list": [4096]}


def test_a_value_of_the_wrong_type_is_raised_when_it_is_asked_for() -> None:
    arguments = parse(["--tensor-size", "x"], TABLE)
    with pytest.raises(BadValueError) as raised:
        arguments.value("--tensor-size")
    assert str(raised.value) == "--tensor-size takes a whole number, not 'x'"


def test_flags_that_are_not_used_have_no_value() -> None:
    arguments = parse([], TABLE)
    assert (arguments.value("--eager"), arguments.value("--eager", 7)) == (None, 7)
    assert (arguments.names(), arguments.values(), "--eager" in arguments) == (frozenset(), {}, False)


def test_a_spelling_stands_for_one_flag_only() -> None:
    with pytest.raises(ValueError, match=r"^-ts stands for both --tensor-size and --other$"):
        table(SIZE, Flag(name="--other", destination="other", aliases=("-ts",)))
