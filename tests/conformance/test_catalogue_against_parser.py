"""The catalogue says of each release what that release's real parser says of itself.

``vllm_parser_report.py`` runs under the real vLLM's Python and writes down what the parser holds.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from conftest import not_set_up
from packaging.version import Version
from real_vllm import AVAILABLE_RELEASES, SET_UP_COMMANDS, missing_variables, worker_environment

from enginelaunch.argv import Flag
from enginelaunch.engines.catalogue import Catalogue, ConfigClass

REPORT = Path(__file__).with_name("vllm_parser_report.py")
SECONDS_FOR_A_REPORT = 300

APPENDING_ACTIONS = ("_AppendAction", "_ExtendAction")

# What the names of the functions that read a value tell of its kind; the innermost name counts.
KIND_OF_CONVERTER: Final = {
    "int": "integer",
    "float": "float",
    "str": "string",
    "loads": "json",
    "human_readable_int": "human_readable_integer",
    "human_readable_int_or_auto": "human_readable_integer_or_auto",
    "union_dict_and_str": "json_or_string",
    # These make of a text what has no kind of its own.
    "bool": "string",
    "EngineArgs.add_cli_args.<locals>.<lambda>": "string",
    "parse_reasoning_parser": "string",
}


@dataclass(frozen=True)
class Residual:
    """A list of choices that the sources alone do not tell, so that the catalogue leaves it open."""

    destination: str
    first: str
    last: str
    why: str

    def covers(self, destination: str, release: str) -> bool:
        first, last = Version(self.first), Version(self.last)
        return destination == self.destination and first <= Version(release) <= last


RESIDUALS: Final = (
    Residual("reasoning_parser", "0.8.5", "0.11.0", "a registry that is filled while running"),
    Residual("tool_call_parser", "0.10.0", "0.10.0", "a registry that is filled while running"),
    Residual("mm_processor_device", "0.28.0", "99", "the platform's own device is among them"),
)

# The annotation allows one of two lists, and the parser takes either, which one changes from run to
# run. The catalogue has the longer one.
EITHER_LIST: Final = {
    ("guided_decoding_backend", "0.8.5"): (
        {"auto", "guidance", "xgrammar"},
        {"auto", "guidance", "lm-format-enforcer", "outlines", "xgrammar"},
    )
}


def release_of(version: str) -> str:
    """Return the release by whose number a version's sources are known."""
    return ".".join(map(str, Version(version).release))


# What the two say, in the same words.


def said_by_catalogue(flag: Flag) -> dict[str, Any]:
    """Return what the catalogue says of a flag."""
    positional = not flag.name.startswith("-")
    return {
        "spellings": set() if positional else {flag.name, *flag.aliases, *flag.negations},
        "off": set(flag.negations),
        "nargs": None if flag.nargs == 1 else flag.nargs,
        "append": flag.append,
        "choices": set(flag.choices),
        "kind": flag.value,
        "none_allowed": flag.none_allowed,
        "config_class": flag.config_class,
    }


def said_by_parser(action: dict[str, Any]) -> dict[str, Any]:
    """Return what the real parser says of one of its actions."""
    kind, config_class = kind_of(action)
    return {
        "spellings": set(action["spellings"]),
        "off": set(action["off"]),
        "nargs": action["nargs"],
        "append": action["action"] in APPENDING_ACTIONS,
        "choices": set(action["choices"] or ()),
        "kind": kind,
        "none_allowed": any("optional_type" in name for name in flattened(action["type"])),
        "config_class": config_class,
    }


def kind_of(action: dict[str, Any]) -> tuple[str, str | None]:
    """Return what kind of value an action reads, and the class that it fills."""
    if action["action"] == "LoRAParserAction":
        return "lora_modules", None
    if action["nargs"] == 0:
        return "boolean", None
    if action["config_class"]:
        return "config", action["config_class"]
    names = [*flattened(action["type"])] or ["str"]
    if names[-1] == "loads" and action["takes_pairs"]:
        return "key_value", None
    if action["lower_cases"]:
        return "lower_case_string", None
    return KIND_OF_CONVERTER.get(names[-1], f"unknown: {names}"), None


def flattened(names: Any) -> Iterator[str]:
    """Yield a converter's name and those of the converters in it."""
    for name in names if isinstance(names, list) else [names] if names else []:
        yield from flattened(name) if isinstance(name, list) else [name]


# Differences.


def flag_differences(release: str, flags: Iterable[Flag], report: dict[str, Any]) -> list[str]:
    """Return each way in which the catalogue's flags differ from the real parser's."""
    catalogued = {flag.destination: flag for flag in flags}
    real = {action["destination"]: action for action in report["actions"]}
    found = [f"{name}: only in the catalogue" for name in sorted(catalogued.keys() - real.keys())]
    found += [f"{name}: only in the parser" for name in sorted(real.keys() - catalogued.keys())]
    for name in sorted(catalogued.keys() & real.keys()):
        ours, theirs = said_by_catalogue(catalogued[name]), said_by_parser(real[name])
        for what in ours:
            if ours[what] != theirs[what] and not is_known(name, release, what, ours, theirs):
                found.append(f"{name}: {what}: catalogue {ours[what]}, parser {theirs[what]}")
    return found


def is_known(name: str, release: str, what: str, ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Say whether a difference is one of those that are held as data."""
    if what != "choices":
        return False
    if theirs[what] in EITHER_LIST.get((name, release), ()):
        return True
    return not ours[what] and any(residual.covers(name, release) for residual in RESIDUALS)


def server_differences(flags: Iterable[Flag], report: dict[str, Any]) -> list[str]:
    """Return the engine's own arguments that the catalogue takes for the API server's."""
    engine = set(report["engine_destinations"])
    return [
        f"{flag.name}: only for a server" for flag in flags if flag.api_server and flag.destination in engine
    ]


def class_differences(catalogue: Catalogue, release: str, report: dict[str, Any]) -> list[str]:
    """Return each way in which the catalogue's configuration classes differ from the real ones."""
    found = []
    for one in report["classes"]:
        cls = catalogue.config_class(release, one["class"])
        where = ".".join([one["flag"], *one["path"]])
        if cls is None:
            found.append(f"{where}: no class {one['class']}")
        else:
            found += [f"{where}: {text}" for text in differences_of_class(cls, one)]
    reported = {one["class"] for one in report["classes"]}
    catalogued = {cls.name for cls in catalogue.config_classes(release)}
    return found + [f"{name}: only in the catalogue" for name in sorted(catalogued - reported)]


def differences_of_class(cls: ConfigClass, real: dict[str, Any]) -> Iterator[str]:
    """Yield each way in which a class differs from what was seen of it in one place."""
    if cls.extra != real["extra"]:
        yield f"unknown keys: catalogue {cls.extra}, parser {real['extra']}"
    fields = {field.name: field for field in cls.fields}
    if fields.keys() != real["fields"].keys():
        yield f"keys that only one has: {sorted(fields.keys() ^ real['fields'].keys())}"
    for name, texts in real["fields"].items():
        if (
            texts is not None
            and name in fields
            and fields[name].choices
            and set(fields[name].choices) != set(texts)
        ):
            yield f"{name}: choices: catalogue {fields[name].choices}, parser {texts}"


# The real parsers.


@pytest.fixture(params=AVAILABLE_RELEASES or ["no release"])
def version(request: pytest.FixtureRequest) -> str:
    """Return each version whose real parser can be asked."""
    missing = missing_variables(os.environ)
    if missing:
        not_set_up(f"{' and '.join(missing)} not set; run: {SET_UP_COMMANDS}")
    return str(request.param)


@functools.cache
def report_of(version: str) -> dict[str, Any]:
    """Return what a version's real parser says of itself."""
    python, sources = (
        os.environ["ENGINELAUNCH_VLLM_PYTHON"],
        Path(os.environ["ENGINELAUNCH_VLLM_SOURCES"]) / version,
    )
    environment = worker_environment(os.environ, version, sources if sources.exists() else None)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.json"
        done = subprocess.run(
            [python, "-B", REPORT, target],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_FOR_A_REPORT,
            check=False,
        )
        assert done.returncode == 0, f"{version}: {done.stderr[-3000:]}"
        return dict(json.loads(target.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue.load("vllm")


def test_the_catalogue_is_what_the_real_parser_holds(catalogue: Catalogue, version: str) -> None:
    report, release = report_of(version), release_of(version)
    flags = catalogue.flags(release)
    assert flag_differences(release, flags, report) == []
    assert server_differences(flags, report) == []
    assert class_differences(catalogue, release, report) == []


def test_every_residual_is_one_that_is_seen(version: str) -> None:
    release, report = release_of(version), report_of(version)
    choices = {action["destination"]: action["choices"] for action in report["actions"]}
    for residual in RESIDUALS:
        if residual.covers(residual.destination, release):
            assert choices[residual.destination], f"{residual.destination} is open in {release} too"


# The comparison itself, on what it must refuse.


def a_report() -> dict[str, Any]:
    actions = [
        {
            "spellings": ["-tp", "--tensor-parallel-size"],
            "destination": "tensor_parallel_size",
            "nargs": None,
            "choices": None,
            "action": "_StoreAction",
            "type": "int",
            "off": [],
        },
        {
            "spellings": ["--enable-x", "--no-enable-x"],
            "destination": "enable_x",
            "nargs": 0,
            "choices": None,
            "action": "BooleanOptionalAction",
            "type": None,
            "off": ["--no-enable-x"],
        },
        {
            "spellings": ["--level"],
            "destination": "level",
            "nargs": "+",
            "choices": ["low", "high"],
            "action": "_StoreAction",
            "type": ["optional_type.<locals>._optional_type", "str"],
            "off": [],
        },
    ]
    common: dict[str, Any] = {"config_class": None, "takes_pairs": False, "lower_cases": False}
    return {
        "actions": [{**common, **action} for action in actions],
        "engine_destinations": ["tensor_parallel_size"],
        "classes": [],
    }


FLAGS: Final = (
    Flag(
        name="--tensor-parallel-size",
        destination="tensor_parallel_size",
        aliases=("-tp",),
        value="integer",
    ),
    Flag(name="--enable-x", destination="enable_x", negations=("--no-enable-x",), nargs=0, value="boolean"),
    Flag(name="--level", destination="level", nargs="+", choices=("high", "low"), none_allowed=True),
)


def changed(place: int, **changes: Any) -> tuple[Flag, ...]:
    flag = msgspec.structs.replace(FLAGS[place], **changes)
    return (*FLAGS[:place], flag, *FLAGS[place + 1 :])


def test_what_is_the_same_does_not_differ() -> None:
    assert flag_differences("0.32.0", FLAGS, a_report()) == []
    assert server_differences(FLAGS, a_report()) == []


@pytest.mark.parametrize(
    ("flags", "difference"),
    [
        (FLAGS[1:], "tensor_parallel_size: only in the parser"),
        ((*FLAGS, Flag(name="--new", destination="new")), "new: only in the catalogue"),
        (changed(0, nargs="+"), "tensor_parallel_size: nargs: catalogue +, parser None"),
        (changed(0, value="float"), "tensor_parallel_size: kind: catalogue float, parser integer"),
        (changed(0, append=True), "tensor_parallel_size: append: catalogue True, parser False"),
        (changed(0, choices=("1",)), "tensor_parallel_size: choices: catalogue {'1'}, parser set()"),
        (changed(0, aliases=()), "tensor_parallel_size: spellings: catalogue {'--tensor-parallel-size'}"),
        (changed(0, destination="tp"), "tp: only in the catalogue"),
        (changed(0, config_class="X"), "tensor_parallel_size: config_class: catalogue X, parser None"),
        (changed(1, nargs=1, value="string"), "enable_x: nargs: catalogue None, parser 0"),
        (changed(1, negations=(), aliases=("--no-enable-x",)), "enable_x: off: catalogue set()"),
        (changed(2, choices=("high",)), "level: choices: catalogue {'high'}"),
        (changed(2, choices=()), "level: choices: catalogue set()"),
    ],
)
def test_what_is_not_the_same_differs(flags: tuple[Flag, ...], difference: str) -> None:
    assert any(text.startswith(difference) for text in flag_differences("0.32.0", flags, a_report()))


def test_an_engine_argument_taken_for_the_servers_differs() -> None:
    flags = changed(0, api_server=True)
    assert server_differences(flags, a_report()) == ["--tensor-parallel-size: only for a server"]


def test_open_choices_are_let_through_only_where_they_are_held_as_data() -> None:
    report = a_report()
    report["actions"] = [{**report["actions"][2], "destination": "reasoning_parser"}]
    flags = (Flag(name="--level", destination="reasoning_parser", nargs="+", none_allowed=True),)
    assert flag_differences("0.11.0", flags, report) == []
    assert len(flag_differences("0.11.1", flags, report)) == 1


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"extra": True}, "unknown keys: catalogue False, parser True"),
        ({"fields": {}}, "keys that only one has"),
        ({"fields_added": {"more": None}}, "keys that only one has: ['more']"),
        ({"fields_added": {"backend": ["xgrammar"]}}, "backend: choices"),
    ],
)
def test_a_class_that_is_not_the_same_differs(
    catalogue: Catalogue, changes: dict[str, Any], difference: str
) -> None:
    cls = catalogue.config_class("0.32.0", "StructuredOutputsConfig")
    assert cls is not None
    same = {"extra": cls.extra, "fields": {field.name: field.choices or None for field in cls.fields}}
    assert list(differences_of_class(cls, same)) == []
    fields = {**same["fields"], **changes.pop("fields_added", {})}  # type: ignore[dict-item]
    (found,) = differences_of_class(cls, {**same, "fields": fields, **changes})
    assert found.startswith(difference)
