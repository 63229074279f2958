"""The catalogue's answers, at the releases in which they change."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from enginelaunch.argv import Flag, FlagTable, Grammar
from enginelaunch.engines.catalogue import (
    Catalogue,
    ConfigClass,
    ConfigField,
    ReleaseChoice,
    RemovedFlag,
    UnknownReleaseError,
)

RELEASES = [
    *("0.8.5", "0.9.0", "0.9.0.1", "0.9.1", "0.9.2", "0.10.0", "0.10.1", "0.10.1.1", "0.10.2", "0.11.0"),
    *("0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1", "0.16.0", "0.17.0"),
    *("0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2", "0.21.0", "0.22.0"),
    *("0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0"),
    *("0.30.0", "0.31.0", "0.32.0", "0.33.0"),
]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue.load("vllm")


def flag(catalogue: Catalogue, release: str, name: str) -> Flag | None:
    return next((one for one in catalogue.flags(release) if one.name == name), None)


# Releases.


def test_the_releases_are_known_in_ascending_order(catalogue: Catalogue) -> None:
    # Releases made later are welcome; none of these may go.
    assert list(catalogue.releases[: len(RELEASES)]) == RELEASES


@pytest.mark.parametrize(
    ("version", "release", "reason"),
    [
        ("0.8.5", "0.8.5", "exact"),
        ("0.8.5.post2", "0.8.5", "exact"),
        ("0.8.6", "0.8.5", "newest_known_below"),
        ("0.9", "0.9.0", "exact"),
        ("0.9.0", "0.9.0", "exact"),
        ("0.9.0.1", "0.9.0.1", "exact"),
        ("0.9.0.2", "0.9.0.1", "newest_known_below"),
        ("0.10.1.1", "0.10.1.1", "exact"),
        ("0.10.1.2", "0.10.1.1", "newest_known_below"),
        ("0.32", "0.32.0", "exact"),
        ("0.32.0", "0.32.0", "exact"),
        ("0.32.0.0", "0.32.0", "exact"),
        ("v0.32.0", "0.32.0", "exact"),
        ("0.32.0rc1", "0.32.0", "exact"),
        ("0.32.0.dev12+g1234567", "0.32.0", "exact"),
        ("0.32.0+cu130", "0.32.0", "exact"),
        ("0.32.0.post1+cpu", "0.32.0", "exact"),
        ("0.32.1+cu13", "0.32.0", "newest_known_below"),
        ("0.32.99", "0.32.0", "newest_known_below"),
    ],
)
def test_a_version_is_read_by_the_newest_known_release_not_above_it(
    catalogue: Catalogue, version: str, release: str, reason: str
) -> None:
    choice = catalogue.choose(version)
    assert (choice.release, choice.requested, choice.reason) == (release, version, reason)


@pytest.mark.parametrize("version", ["0.33.1", "0.34.0rc1", "1", "1.0.0", "2026.1"])
def test_a_version_above_the_newest_is_read_by_the_newest(tmp_path: Path, version: str) -> None:
    known = written(tmp_path, releases=["0.32.0", "0.33.0"])
    assert known.choose(version) == ReleaseChoice("0.33.0", version, "newest_assumed_newer")


def test_the_newest_is_exact_for_its_own_version(catalogue: Catalogue) -> None:
    newest = catalogue.releases[-1]
    assert catalogue.choose(newest) == ReleaseChoice(newest, newest, "exact")


def test_no_version_means_the_newest(catalogue: Catalogue) -> None:
    assert catalogue.choose(None) == ReleaseChoice(catalogue.releases[-1], None, "newest_not_given")


@pytest.mark.parametrize("version", ["0.8.4", "0.8.4.post1", "0.8", "0", "0.0.1", "0.8.4+cu121"])
def test_a_version_below_the_first_is_refused(catalogue: Catalogue, version: str) -> None:
    with pytest.raises(UnknownReleaseError) as refused:
        catalogue.choose(version)
    for part in (version, "0.8.5", catalogue.releases[-1]):
        assert part in str(refused.value)


@pytest.mark.parametrize("text", ["", "latest", "0.32.x", "0..1", "vllm-0.32.0", "0.32.0 0.33.0"])
def test_text_that_is_no_version_is_refused(catalogue: Catalogue, text: str) -> None:
    with pytest.raises(ValueError, match="is no version") as refused:
        catalogue.choose(text)
    assert repr(text) in str(refused.value)
    assert not isinstance(refused.value, UnknownReleaseError)


@pytest.mark.parametrize("release", ["0.32", "0.8.5.post2", "0.34.0", ""])
def test_only_releases_that_are_listed_have_flags(catalogue: Catalogue, release: str) -> None:
    for ask in (
        catalogue.flags,
        catalogue.config_classes,
        functools.partial(catalogue.config_class, name="X"),
    ):
        with pytest.raises(UnknownReleaseError, match=r"not in the catalogue; it holds 0\.8\.5, 0\.9\.0"):
            ask(release)


# Flags.


def at(*releases: str, name: str, **settings: Any) -> list[Any]:
    expected = Flag(
        name=name, destination=settings.pop("destination", name[2:].replace("-", "_")), **settings
    )
    return [pytest.param(release, name, expected, id=f"{name}-{release}") for release in releases]


def absent(*releases: str, name: str) -> list[Any]:
    return [pytest.param(release, name, None, id=f"{name}-{release}-absent") for release in releases]


def switch(*releases: str, name: str, **settings: Any) -> list[Any]:
    return at(*releases, name=name, nargs=0, value="boolean", **settings)


BLOCK_SIZES = ("1", "8", "16", "32", "64", "128")


@pytest.mark.parametrize(
    ("release", "name", "expected"),
    [
        *absent("0.8.5", "0.11.0", name="--nnodes"),
        *at("0.11.1", "0.33.0", name="--nnodes", aliases=("-n",), value="integer"),
        *absent("0.8.5", name="--headless"),
        *switch("0.9.0", "0.9.2", "0.10.0", "0.33.0", name="--headless"),
        *absent("0.9.2", name="--data-parallel-hybrid-lb"),
        *switch("0.10.0", name="--data-parallel-hybrid-lb", negations=("--no-data-parallel-hybrid-lb",)),
        *switch(
            "0.11.1",
            "0.33.0",
            name="--data-parallel-hybrid-lb",
            aliases=("-dph",),
            negations=("--no-data-parallel-hybrid-lb",),
        ),
        *absent("0.9.0.1", name="--api-server-count"),
        *at(
            "0.9.1", "0.33.0", name="--api-server-count", api_server=True, aliases=("-asc",), value="integer"
        ),
        # One key, then any number of them.
        *at("0.8.5", "0.10.0", name="--api-key", api_server=True, none_allowed=True),
        *at("0.10.1", "0.33.0", name="--api-key", api_server=True, nargs="+", none_allowed=True),
        *at("0.8.5", "0.9.2", "0.11.0", name="--block-size", value="integer", choices=BLOCK_SIZES),
        *at("0.11.1", "0.17.1", name="--block-size", value="integer", choices=(*BLOCK_SIZES, "256")),
        *at("0.18.0", "0.33.0", name="--block-size", value="integer"),
        *switch("0.8.5", "0.10.0", name="--disable-log-requests"),
        *switch(
            "0.10.1",
            "0.16.0",
            name="--disable-log-requests",
            negations=("--no-disable-log-requests",),
            deprecated=True,
            api_server=True,
        ),
        *absent("0.17.0", "0.33.0", name="--disable-log-requests"),
        *absent("0.10.0", name="--enable-log-requests"),
        *switch("0.10.1", "0.32.0", name="--enable-log-requests", negations=("--no-enable-log-requests",)),
        *switch(
            "0.33.0",
            name="--enable-log-requests",
            negations=("--no-enable-log-requests", "--disable-log-requests"),
        ),
        # A switch that is there without a way to switch it off has no inverse in 0.33.0 either.
        *switch("0.8.5", "0.33.0", name="--disable-log-stats"),
        # The letter means the configuration, then nothing of its own.
        *at(
            "0.8.5",
            "0.11.2",
            name="--compilation-config",
            aliases=("-O",),
            value="config",
            config_class="CompilationConfig",
        ),
        *at(
            "0.12.0",
            "0.33.0",
            name="--compilation-config",
            aliases=("-cc",),
            value="config",
            config_class="CompilationConfig",
        ),
        *absent("0.11.2", name="--optimization-level"),
        *at("0.8.5", name="--limit-mm-per-prompt", value="key_value", none_allowed=True),
        *at("0.9.2", name="--limit-mm-per-prompt", value="key_value"),
        *at("0.10.0", "0.30.0", "0.33.0", name="--limit-mm-per-prompt", value="json"),
        *at("0.8.5", name="--speculative-config", value="json"),
        *at(
            "0.19.0", "0.33.0", name="--speculative-config", aliases=("-sc",), value="json", none_allowed=True
        ),
        *at("0.8.5", "0.13.0", name="--max-model-len", value="human_readable_integer"),
        *at("0.14.0", "0.33.0", name="--max-model-len", value="human_readable_integer_or_auto"),
        *at("0.8.5", "0.9.0.1", name="--max-num-batched-tokens", value="integer"),
        *at("0.9.1", "0.33.0", name="--max-num-batched-tokens", value="human_readable_integer"),
        *at(
            "0.8.5",
            name="--lora-modules",
            api_server=True,
            nargs="+",
            value="lora_modules",
            none_allowed=True,
        ),
        *at(
            "0.33.0",
            name="--lora-modules",
            api_server=True,
            nargs="+",
            value="lora_modules",
            none_allowed=True,
        ),
        *at("0.8.5", name="--middleware", api_server=True, append=True, none_allowed=True),
        *at("0.33.0", name="--middleware", api_server=True, append=True),
        *at("0.8.5", "0.33.0", name="--allowed-origins", api_server=True, value="json"),
        *at("0.8.5", "0.33.0", name="--hf-token", nargs="?"),
        *at("0.11.0", name="--hf-overrides", value="json_or_string"),
        # A class given by its path is allowed too: the list no longer binds, though it is still shown.
        *at(
            "0.10.0",
            name="--distributed-executor-backend",
            choices=("external_launcher", "mp", "ray", "uni"),
            none_allowed=True,
        ),
        *at("0.10.2", "0.33.0", name="--distributed-executor-backend", none_allowed=True),
        # The text `None` is read as no value, which is among the values allowed only from 0.31.0 on.
        *at("0.30.0", name="--dcp-comm-backend", choices=("a2a", "ag_rs"), none_allowed=True),
        *at(
            "0.31.0",
            "0.33.0",
            name="--dcp-comm-backend",
            choices=("a2a", "ag_rs", "None"),
            none_allowed=True,
        ),
        *at("0.8.5", "0.33.0", name="--tensor-parallel-size", aliases=("-tp",), value="integer"),
        *at("0.8.5", "0.33.0", name="model_tag", destination="model_tag", nargs="?"),
        *absent("0.9.0", "0.9.0.1", name="--model"),
        *at("0.8.5", "0.9.1", "0.33.0", name="--model"),
    ],
)
def test_a_flag_is_as_its_release_has_it(
    catalogue: Catalogue, release: str, name: str, expected: Flag | None
) -> None:
    assert flag(catalogue, release, name) == expected


@pytest.mark.parametrize(
    ("release", "count"),
    [("0.8.5", 139), ("0.9.2", 166), ("0.10.2", 178), ("0.12.0", 196), ("0.24.0", 268), ("0.32.0", 318)],
)
def test_all_flags_of_a_release_are_there_once_and_sorted(
    catalogue: Catalogue, release: str, count: int
) -> None:
    names = [one.name for one in catalogue.flags(release)]
    assert len(names) == count
    assert names == sorted(set(names))


@pytest.mark.parametrize("release", RELEASES)
def test_no_spelling_stands_for_two_flags(catalogue: Catalogue, release: str) -> None:
    table = FlagTable((one for one in catalogue.flags(release) if one.name.startswith("-")), Grammar())
    assert "--tensor-parallel-size" in table


@pytest.mark.parametrize("release", RELEASES)
def test_every_class_that_is_named_is_there(catalogue: Catalogue, release: str) -> None:
    named = {one.config_class for one in catalogue.flags(release) if one.config_class}
    for cls in catalogue.config_classes(release):
        named |= {name for field in cls.fields for name in field.config_classes}
    assert named
    assert named <= {cls.name for cls in catalogue.config_classes(release)}


@pytest.mark.parametrize(
    ("spelling", "first", "last"),
    [
        ("--nnodes", "0.11.1", None),
        ("-asc", "0.9.1", None),
        ("-O", "0.8.5", "0.11.2"),
        ("-cc", "0.12.0", None),
        ("--no-enable-lora", "0.8.5", None),
        ("--disable-lora", "0.33.0", None),
        # Gone for a while, and back as the inverse of another flag: the outermost releases count.
        ("--disable-log-requests", "0.8.5", None),
        ("--no-disable-log-requests", "0.10.1", "0.16.0"),
        ("--guided-decoding-backend", "0.8.5", "0.11.2"),
        ("--expand-tools-even-if-tool-choice-none", "0.9.2", "0.9.2"),
        ("model_tag", "0.8.5", None),
    ],
)
def test_the_span_of_a_spelling(catalogue: Catalogue, spelling: str, first: str, last: str | None) -> None:
    assert catalogue.first_release(spelling) == first
    assert catalogue.last_release(spelling) == (last or catalogue.releases[-1])


@pytest.mark.parametrize("spelling", ["--no-such-flag", "--tensor_parallel_size", "tensor-parallel-size", ""])
def test_a_spelling_that_no_release_accepts_has_no_span(catalogue: Catalogue, spelling: str) -> None:
    assert catalogue.first_release(spelling) is None
    assert catalogue.last_release(spelling) is None


@pytest.mark.parametrize(
    ("release", "of_the_server", "of_the_engine"),
    [
        ("0.8.5", {"--host", "--chat-template"}, {"--tensor-parallel-size", "--disable-log-requests"}),
        # Read by a process without an API server too, although the server's part of the parser adds it.
        ("0.9.2", {"--api-server-count"}, {"--data-parallel-start-rank", "--headless", "--config"}),
        ("0.31.0", {"--enable-flash-late-interaction", "--port"}, {"--served-model-name"}),
        ("0.32.0", {"--port", "--uds"}, {"--enable-flash-late-interaction", "--log-config-file"}),
    ],
)
def test_which_flags_only_an_api_server_has_a_use_for(
    catalogue: Catalogue, release: str, of_the_server: set[str], of_the_engine: set[str]
) -> None:
    servers = {one.name for one in catalogue.flags(release) if one.api_server}
    assert of_the_server <= servers
    assert of_the_engine <= {one.name for one in catalogue.flags(release)} - servers


# Configuration classes.


def keys(catalogue: Catalogue, release: str, name: str) -> set[str]:
    cls = catalogue.config_class(release, name)
    return {field.name for field in cls.fields} if cls else set()


KV_EVENTS_KEYS = {
    "enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "buffer_steps", "hwm",
    "max_queue_size", "topic",
}  # fmt: skip


def test_the_keys_of_kv_events_by_release(catalogue: Catalogue) -> None:
    assert catalogue.config_class("0.8.5", "KVEventsConfig") is None
    for release in RELEASES[1:]:
        assert keys(catalogue, release, "KVEventsConfig") == KV_EVENTS_KEYS


def test_the_whole_of_a_class(catalogue: Catalogue) -> None:
    assert catalogue.config_class("0.12.0", "KVEventsConfig") == ConfigClass(
        name="KVEventsConfig",
        fields=(
            ConfigField("buffer_steps", "int"),
            ConfigField("enable_kv_cache_events", "bool"),
            ConfigField("endpoint", "str"),
            ConfigField("hwm", "int"),
            ConfigField("max_queue_size", "int"),
            ConfigField("publisher", "Literal['null', 'zmq']", choices=("null", "zmq")),
            ConfigField("replay_endpoint", "str | None"),
            ConfigField("topic", "str"),
        ),
        extra=True,
    )


def test_the_keys_of_a_class_change_between_releases(catalogue: Catalogue) -> None:
    before, after = (keys(catalogue, release, "KVTransferConfig") for release in ("0.12.0", "0.13.0"))
    assert after - before == {"kv_load_failure_policy"}
    assert not before - after


@pytest.mark.parametrize(
    ("release", "name", "extra"),
    [
        ("0.8.5", "KVTransferConfig", True),  # A pydantic model that does not forbid them.
        ("0.8.5", "PoolerConfig", False),  # A dataclass that is called with the keys.
        ("0.9.0", "KVTransferConfig", False),  # The same, from here on.
        ("0.9.1", "KVTransferConfig", True),  # Pydantic checks it, and it forbids nothing.
        ("0.15.1", "KVTransferConfig", True),
        ("0.16.0", "KVTransferConfig", False),  # Its decorator forbids unknown keys.
        ("0.33.0", "KVTransferConfig", False),
        ("0.33.0", "LoRAModulePath", False),
        ("0.33.0", "SpeculativeConfig", False),
    ],
)
def test_whether_unknown_keys_are_let_through(
    catalogue: Catalogue, release: str, name: str, extra: bool
) -> None:
    cls = catalogue.config_class(release, name)
    assert cls is not None
    assert cls.extra is extra


def test_what_a_key_may_hold(catalogue: Catalogue) -> None:
    compilation = catalogue.config_class("0.32.0", "CompilationConfig")
    assert compilation is not None
    assert [field for field in compilation.fields if field.config_classes] == [
        ConfigField("dynamic_shapes_config", "DynamicShapesConfig", config_classes=("DynamicShapesConfig",)),
        ConfigField("pass_config", "PassConfig", config_classes=("PassConfig",)),
    ]


def test_which_keys_are_required(catalogue: Catalogue) -> None:
    module = catalogue.config_class("0.32.0", "LoRAModulePath")
    assert module is not None
    assert {field.name: field.required for field in module.fields} == {
        "base_model_name": False,
        "is_3d_lora_weight": False,
        "name": True,
        "path": True,
    }


def test_a_class_that_a_release_does_not_have(catalogue: Catalogue) -> None:
    assert catalogue.config_class("0.10.1", "EPLBConfig") is None
    assert catalogue.config_class("0.10.2", "EPLBConfig") is not None
    assert catalogue.config_class("0.33.0", "NoSuchConfig") is None


# Removed flags.


def test_a_removed_flag_with_what_replaced_it(catalogue: Catalogue) -> None:
    assert catalogue.removed("--cuda-graph-sizes") == RemovedFlag(
        flag="--cuda-graph-sizes",
        last_release="0.12.0",
        absent_from="0.13.0",
        replacement="--cudagraph-capture-sizes (from 0.11.1 on)",
        source="stated",
    )
    assert catalogue.removed("--tensor-parallel-size") is None


def test_removals_agree_with_the_histories() -> None:
    folder = Path(__file__).parents[2] / "src/enginelaunch/engines/vllm/data"
    catalogue = Catalogue(folder)
    rows = json.loads((folder / "removed_flags.json").read_text())
    assert [row["flag"] for row in rows] == sorted({row["flag"] for row in rows})
    for row in rows:
        place = catalogue.releases.index(row["last_release"])
        assert catalogue.releases[place + 1] == row["absent_from"]
        having = [
            {spelling for one in catalogue.flags(release) for spelling in (one.name, *one.aliases)}
            for release in (row["last_release"], row["absent_from"])
        ]
        assert (row["flag"] in having[0], row["flag"] in having[1]) == (True, False), row["flag"]
        assert row["replacement"]


def test_every_removed_spelling_is_accounted_for(catalogue: Catalogue) -> None:
    for release, following in zip(catalogue.releases, catalogue.releases[1:], strict=False):
        gone = {one.name for one in catalogue.flags(release)} - {
            one.name for one in catalogue.flags(following)
        }
        for name in gone:
            # 0.9.0 knows `--model` only outside of `serve`.
            assert catalogue.removed(name) or name == "--model", f"{name} after {release}"


# Loading.


def written(folder: Path, releases: list[str], flags: dict[str, Any] | None = None) -> Catalogue:
    contents = {"engine": "vllm", "releases": releases, "flags": flags or {}}
    (folder / "flags.json").write_text(json.dumps(contents))
    return Catalogue(folder)


def test_a_catalogue_is_read_once() -> None:
    assert Catalogue.load("vllm") is Catalogue.load("vllm")
    catalogue = Catalogue.load("vllm")
    assert catalogue.flags("0.32.0") is catalogue.flags("0.32.0")


def test_the_other_files_are_read_only_when_asked_for(tmp_path: Path) -> None:
    catalogue = written(tmp_path, ["1.0"], {"--x": [["1.0", {}]]})
    assert catalogue.flags("1.0") == (Flag(name="--x", destination="x"),)
    with pytest.raises(FileNotFoundError):
        catalogue.config_class("1.0", "X")
    with pytest.raises(FileNotFoundError):
        catalogue.removed("--x")


def test_a_history_holds_from_each_row_to_the_next(tmp_path: Path) -> None:
    rows = [["1.1", {"nargs": "+"}], ["1.3", None], ["1.4", {"destination": "y"}]]
    catalogue = written(tmp_path, ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"], {"--x": rows})
    assert [catalogue.flags(release) for release in catalogue.releases] == [
        (),
        (Flag(name="--x", destination="x", nargs="+"),),
        (Flag(name="--x", destination="x", nargs="+"),),
        (),
        (Flag(name="--x", destination="y"),),
        (Flag(name="--x", destination="y"),),
    ]
    assert (catalogue.first_release("--x"), catalogue.last_release("--x")) == ("1.1", "1.5")


def test_an_engine_without_a_catalogue_is_refused() -> None:
    with pytest.raises(ValueError, match="no catalogue of engine 'sglang'; there is one of vllm"):
        Catalogue.load("sglang")
