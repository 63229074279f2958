"""Which shapes and flags there are from which release on, and what is said where they are not."""

from __future__ import annotations

from typing import Any

import pytest
from plans import commands, deployment, error, found, nodes, planned, refused, started, warning, words
from pydantic import ValidationError

from enginelaunch import VLLM, LaunchError
from enginelaunch.engines.catalogue import Catalogue

RELEASES = Catalogue.load("vllm").releases

ONE_REPLICA = "use launch_mode: ray, or replicas that fit into a node"
MEETING = "--nnodes, --node-rank, --master-addr, --master-port"


def missing(release: str, flags: str, first: str, hint: str = "") -> Any:
    return error(
        "not-in-release",
        "version",
        f"vLLM {release} has no {flags}; {first} is the first release that does",
        hint,
    )


@pytest.mark.parametrize("version", RELEASES)
def test_one_node_is_the_same_command_on_every_release(version: str) -> None:
    profile = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "served_model_name": ["a", "b"]}
    assert planned(profile, nodes(8), version).version == version
    assert started(profile, nodes(8), version) == [
        (
            0,
            "server",
            words(
                "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 4 --pipeline-parallel-size 2 "
                "--served-model-name a b"
            ),
            {"VLLM_HOST_IP": "10.0.0.1"},
        )
    ]


@pytest.mark.parametrize(
    ("profile", "gpus", "keys", "release", "errors"),
    [
        (
            {"tensor_parallel_size": 2},
            (1, 1),
            {},
            "0.11.0",
            (missing("0.11.0", MEETING, "0.11.1", ONE_REPLICA),),
        ),
        (
            {"tensor_parallel_size": 2, "data_parallel_size": 2},
            (1, 1, 1, 1),
            {},
            "0.11.0",
            (missing("0.11.0", MEETING, "0.11.1", ONE_REPLICA),),
        ),
        (
            {"data_parallel_size": 2},
            (1, 1),
            {},
            "0.8.5",
            (
                missing(
                    "0.8.5",
                    "--data-parallel-size-local, --data-parallel-address, --data-parallel-rpc-port",
                    "0.9.0",
                ),
                missing(
                    "0.8.5",
                    "--data-parallel-size-local, --data-parallel-start-rank, --data-parallel-address, "
                    "--data-parallel-rpc-port, --headless",
                    "0.9.0",
                ),
            ),
        ),
        (
            {"data_parallel_size": 4, "data_parallel_mode": "hybrid"},
            (2, 2),
            {},
            "0.9.2",
            (missing("0.9.2", "--data-parallel-hybrid-lb", "0.10.0"),),
        ),
        (
            {"data_parallel_size": 2, "data_parallel_mode": "external"},
            (1, 1),
            {},
            "0.9.1",
            (missing("0.9.1", "--data-parallel-rank", "0.9.2"),),
        ),
        (
            {"data_parallel_size": 2},
            (1, 1),
            {"launch_mode": "ray"},
            "0.9.0.1",
            (missing("0.9.0.1", "--data-parallel-backend", "0.9.1"),),
        ),
        (
            {"tensor_parallel_size": 2, "decode_context_parallel_size": 2},
            (2,),
            {},
            "0.10.1.1",
            (missing("0.10.1.1", "--decode-context-parallel-size", "0.10.2"),),
        ),
        (
            {"prefill_context_parallel_size": 2},
            (2,),
            {},
            "0.11.2",
            (missing("0.11.2", "--prefill-context-parallel-size", "0.12.0"),),
        ),
    ],
)
def test_a_shape_that_a_release_lacks_names_the_first_that_has_it(
    profile: dict[str, Any],
    gpus: tuple[int, ...],
    keys: dict[str, Any],
    release: str,
    errors: tuple[Any, ...],
) -> None:
    assert refused(profile, nodes(*gpus), release, **keys) == errors
    first = errors[0].message.rpartition("; ")[2].partition(" ")[0]
    assert RELEASES[RELEASES.index(release) + 1] == first
    assert commands(profile, nodes(*gpus), first, **keys)


@pytest.mark.parametrize("version", ["0.9.2", "0.10.0", "0.11.0"])
def test_external_is_a_rank_alone_before_it_has_a_flag(version: str) -> None:
    profile = {"data_parallel_size": 2, "data_parallel_mode": "external"}
    assert [ran.argv for ran in started(profile, nodes(1, 1), version)] == [
        words(
            "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --data-parallel-size 2 "
            f"--data-parallel-rank {rank} --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29550 "
            "--served-model-name m"
        )
        for rank in (0, 1)
    ]


def test_prefill_context_parallel_counts_towards_the_nodes_from_the_release_that_counts_it() -> None:
    # Before 0.30 vLLM asserts that DP x PP x TP alone is a multiple of --nnodes.
    profile = {"prefill_context_parallel_size": 2}
    assert refused(profile, nodes(1, 1), "0.29.0") == (
        error(
            "impossible-layout",
            "profile",
            "vLLM 0.29.0 does not count prefill_context_parallel_size 2, "
            "and 2 nodes cannot share the other 1 evenly",
            "use 0.30.0 or newer, or other sizes whose product is a multiple of 2",
        ),
    )
    assert len(commands(profile, nodes(1, 1), "0.30.0")) == 2
    assert len(commands({**profile, "tensor_parallel_size": 2}, nodes(2, 2), "0.29.0")) == 2


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.8.5", "0.8.5"),
        ("0.8.5.post2", "0.8.5"),
        ("0.9.0rc1", "0.9.0"),
        ("0.10.1.1", "0.10.1.1"),
        ("0.10.1.5", "0.10.1.1"),
        ("0.32", "0.32.0"),
        ("0.32.0+cu130", "0.32.0"),
        ("0.32.1", "0.32.0"),
        ("0.33.0.dev12+gabcdef.d20260101", "0.33.0"),
    ],
)
def test_a_version_is_looked_up_by_its_release_numbers(version: str, release: str) -> None:
    engine = VLLM(version)
    assert (engine.version, engine.release) == (version, release)
    plan = planned(version=version)
    assert (plan.version, plan.findings) == (version, ())


@pytest.mark.parametrize("version", ["0.34.0", "1.0"])
def test_a_version_above_all_known_ones_is_built_for_the_newest_and_said_to(version: str) -> None:
    plan = planned(version=version)
    assert plan.version == version
    assert plan.findings == (
        warning(
            "version-not-known",
            "version",
            f"{version} is newer than 0.33.0, the newest known; commands are built for that",
            "check the commands with the release itself",
        ),
    )


def test_no_version_is_the_newest_and_said_to_be() -> None:
    plan = planned(version=None)
    assert plan.version == "0.33.0"
    assert plan.findings == (
        warning(
            "version-not-given",
            "version",
            "no version is given; commands are built for 0.33.0, the newest known",
            "state the release that is installed",
        ),
    )


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.8.4", "vllm 0.8.4 is older than every known release: 0.8.5 is the first, 0.33.0 the last"),
        ("0.8.5rc1.dev1", None),
        ("0.1.dev1", "vllm 0.1.dev1 is older than every known release: 0.8.5 is the first, 0.33.0 the last"),
        ("newest", "'newest' is no version; one such as 0.32.0 or 0.32.1rc1 is"),
        ("", "'' is no version; one such as 0.32.0 or 0.32.1rc1 is"),
    ],
)
def test_a_version_below_all_known_ones_is_refused(version: str, message: str | None) -> None:
    if message is None:
        assert VLLM(version).release == "0.8.5"
        return
    with pytest.raises(LaunchError) as caught:
        VLLM(version)
    assert caught.value.report.findings == (error("unknown-release", "version", message),)


@pytest.mark.parametrize("version", [0.32, 32])
def test_a_version_that_is_a_number_is_explained(version: float) -> None:
    with pytest.raises(
        ValidationError,
        match=f"must be text in quotes, not the number {version}: a number loses a zero at its end",
    ):
        deployment(version=version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "release", "message", "hint"),
    [
        (
            ["--nnodes", "2"],
            "0.11.0",
            "--nnodes is not a flag of this release; did you mean --model?",
            "releases 0.11.1 to 0.33.0 have it",
        ),
        (
            ["--all2all-backend", "pplx"],
            "0.8.5",
            "--all2all-backend is not a flag of this release",
            "releases 0.11.1 to 0.33.0 have it",
        ),
        (
            ["-dcp", "1"],
            "0.10.1.1",
            "-dcp is not a flag of this release",
            "releases 0.10.2 to 0.33.0 have it",
        ),
        (
            ["--rope-scaling", "{}"],
            "0.11.1",
            "--rope-scaling is not a flag of this release",
            "releases 0.8.5 to 0.11.0 have it; instead: --hf-overrides",
        ),
        (
            ["--cuda-graph-sizes", "8"],
            "0.13.0",
            "--cuda-graph-sizes is not a flag of this release; did you mean --cudagraph-capture-sizes?",
            "releases 0.9.0 to 0.12.0 have it; instead: --cudagraph-capture-sizes (from 0.11.1 on)",
        ),
        (
            ["--disable-log-requests"],
            "0.32.0",
            "--disable-log-requests is not a flag of this release; did you mean --enable-log-requests?",
            "releases 0.8.5 to 0.16.0 have it; instead: nothing: requests are not logged unless "
            "--enable-log-requests is given (from 0.10.1 on); 0.33.0 accepts it again as the opposite of "
            "that flag",
        ),
        (
            ["--max-modle-len", "4096"],
            "0.32.0",
            "--max-modle-len is not a flag of this release; did you mean --max-model-len?",
            "release 0.32.0 does not have it, nor does any other that is known",
        ),
    ],
)
def test_a_flag_that_a_release_lacks_says_which_have_it(
    args: list[str], release: str, message: str, hint: str
) -> None:
    assert refused({"args": args}, version=release) == (
        error("unknown-flag", "profile.args[0]", message, hint),
    )


@pytest.mark.parametrize("release", ["0.9.0", "0.16.0", "0.33.0"])
def test_a_flag_is_taken_by_the_releases_that_have_it(release: str) -> None:
    assert commands({"args": ["--disable-log-requests"]}, version=release)


@pytest.mark.parametrize(
    ("args", "release", "first"),
    [
        (["--compilation-config.level", "3"], "0.8.5", "0.9.0"),
        (["--compilation-config.custom_ops+", "none"], "0.9.1", "0.9.2"),
    ],
)
def test_dotted_keys_name_the_first_release_that_reads_them(
    args: list[str], release: str, first: str
) -> None:
    assert [(f.code, f.where, f.hint) for f in refused({"args": args}, version=release)] == [
        (
            "unknown-flag",
            "profile.args[0]",
            "keys after a dot are read from 0.9.0 on, and lists joined with '+' from 0.9.2 on: give JSON",
        )
    ]
    assert commands({"args": args}, version=first)


@pytest.mark.parametrize("release", ["0.8.5", "0.9.1", "0.9.2", "0.11.0", "0.11.2", "0.12.0", "0.33.0"])
def test_the_level_of_optimization_is_taken_by_every_release(release: str) -> None:
    args = ["-O3"]
    assert commands({"args": args}, version=release)[0][0].argv[-1:] == ("-O3",)
    assert found({"args": args}, version=release) == ()


@pytest.mark.parametrize(
    ("args", "release", "accepted"),
    [
        (["--block-size", "256"], "0.11.0", False),
        (["--block-size", "256"], "0.11.1", True),
        (["--block-size", "48"], "0.17.1", False),
        (["--block-size", "48"], "0.18.0", True),
        (["--limit-mm-per-prompt", "image=2"], "0.9.2", True),
        (["--limit-mm-per-prompt", "image=2"], "0.10.0", False),
        (["--limit-mm-per-prompt", '{"image": 2}'], "0.10.0", True),
        (["--max-lora-rank", "1"], "0.11.1", True),
        (["--disable-expert-parallel"], "0.32.0", False),
        (["--disable-expert-parallel"], "0.33.0", True),
    ],
)
def test_values_and_spellings_are_those_of_the_release(args: list[str], release: str, accepted: bool) -> None:
    if accepted:
        assert commands({"args": args}, version=release)[0][0].argv[-len(args) :] == tuple(args)
    else:
        assert [f.where for f in refused({"args": args}, version=release)] == ["profile.args[0]"]
