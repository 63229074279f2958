"""One node's part of what is served, and on what."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from enginelaunch.command import EnvironmentSecret, NodeRank
from enginelaunch.profile import Profile
from enginelaunch.shard import GPU, NODE_RANK, ComputeCapability, Ports, RayPorts, ShardSpec

PROFILE = Profile(model="m", env={"A": "1"})


def shard(**more: Any) -> ShardSpec:
    return ShardSpec(profile=PROFILE, **more)


def mistakes(**more: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as raised:
        shard(**more)
    return [(".".join(str(part) for part in e["loc"]), e["msg"]) for e in raised.value.errors()]


# --- compute capabilities ---


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("9.0", (9, 0)),
        ("12.1", (12, 1)),
        ("12.10", (12, 10)),
        (" 8.6 ", (8, 6)),
        ("sm_90", (9, 0)),
        ("sm_90a", (9, 0)),
        ("sm_103", (10, 3)),
        ("sm_120f", (12, 0)),
        ("sm86", (8, 6)),
    ],
)
def test_a_compute_capability_is_a_pair(text: str, pair: tuple[int, int]) -> None:
    capability = ComputeCapability.parse(text)
    assert (capability.major, capability.minor) == pair
    assert ComputeCapability.parse(str(capability)) == capability
    assert ComputeCapability.model_validate(text) == capability


@pytest.mark.parametrize(
    "text", ["", "9", "9.", ".9", "9.0.1", "sm_9", "sm_", "sm_90b", "gfx942", "-9.0", "9,0"]
)
def test_what_is_no_compute_capability_is_named(text: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole text is compared
        ComputeCapability.parse(text)
    assert str(raised.value) == f"{text!r} is no compute capability; write it like '9.0' or 'sm_90'"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (9.0, "write it as text, '9.0' in quotes: a number loses a zero"),
        (9, "must be a mapping of fields, not 9"),
        ("x", "'x' is no compute capability; write it like '9.0' or 'sm_90'"),
    ],
)
def test_a_compute_capability_is_written_as_text(value: Any, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        GPU(compute_capability=value)
    assert [(e["loc"], e["msg"]) for e in raised.value.errors()] == [(("compute_capability",), message)]


def test_compute_capabilities_are_ordered_number_by_number() -> None:
    ordered = [
        ComputeCapability.parse(text) for text in ("7.5", "8.0", "8.9", "9.0", "12.0", "12.1", "12.10")
    ]
    assert sorted(ordered[3:] + ordered[:3]) == ordered
    for one, other in itertools.combinations(ordered, 2):
        assert (one < other, one <= other, one > other, one >= other) == (True, True, False, False)
    assert ordered[0] <= ComputeCapability.parse("7.5") >= ordered[0]


def test_a_compute_capability_is_not_compared_with_other_things() -> None:
    with pytest.raises(TypeError):
        _ = ComputeCapability.parse("9.0") < "9.0"  # type: ignore[operator]
    assert ComputeCapability.parse("9.0") != "9.0"  # type: ignore[comparison-overlap]


# --- GPUs ---


@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        (None, None),
        (0, ()),
        (2, (GPU(), GPU())),
        (17, (GPU(),) * 17),
        ("2 x H100", (GPU(name="H100"),) * 2),
        ("2x H100 SXM", (GPU(name="H100 SXM"),) * 2),
        ("1×B200", (GPU(name="B200"),)),  # noqa: RUF001 - people type the sign
        ([0, 3], (GPU(id="0"), GPU(id="3"))),
        (["GPU-1a", "MIG-2b"], (GPU(id="GPU-1a"), GPU(id="MIG-2b"))),
        ([], ()),
        ([{"id": 1, "name": "H100"}], (GPU(id="1", name="H100"),)),
        ([{"name": "H100"}, GPU(name="A100")], (GPU(name="H100"), GPU(name="A100"))),
    ],
)
def test_gpus_are_a_count_or_a_list_or_a_count_and_a_model(given: Any, gpus: Any) -> None:
    assert shard(gpus=given).gpus == gpus


HOW = "give a count, a list of ids, or a count and a model like '8 x H100', not "


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (-1, [("gpus", "the number of GPUs must be from 0 to 1024, not -1")]),
        (True, [("gpus", HOW + "True")]),
        (2.0, [("gpus", HOW + "2.0")]),
        ("8", [("gpus", HOW + "'8'")]),
        ("H100", [("gpus", HOW + "'H100'")]),
        ("", [("gpus", HOW + "''")]),
        ({"id": 0}, [("gpus", HOW + "{'id': 0}")]),
        ([0, 0], [("gpus", "GPU '0' is there twice")]),
        ([0, "0"], [("gpus", "GPU '0' is there twice")]),
        ([-1], [("gpus", "an index is 0 or more, not -1")]),
        (["0,1"], [("gpus", "an id is one index, UUID or MIG id, not '0,1'")]),
        ([" "], [("gpus", "an id is one index, UUID or MIG id, not ' '")]),
        ([True], [("gpus", "an id is an index, a UUID or a MIG id, not True")]),
        ([1.0], [("gpus", "an id is an index, a UUID or a MIG id, not 1.0")]),
        ([0, {"name": "H100"}], [("gpus", "give every GPU of a node an id, or none")]),
        ([{"id": 0}, {"idd": 1}], [("gpus.1.idd", "unknown key 'idd'; did you mean 'id'?")]),
        ([{"id": "0,1"}], [("gpus.0.id", "an id is one index, UUID or MIG id, not '0,1'")]),
        ([{"id": -1}], [("gpus.0.id", "an index is 0 or more, not -1")]),
    ],
)
def test_gpus_that_cannot_be_are_named(given: Any, expected: list[tuple[str, str]]) -> None:
    assert mistakes(gpus=given) == expected


@pytest.mark.parametrize(
    ("given", "integer"), [(0, True), ("12", True), ("GPU-1", False), (None, False), ("٤", False)]
)
def test_an_id_that_is_an_index_is_known(given: Any, integer: bool) -> None:
    assert GPU(id=given).has_integer_id is integer


# --- ports ---


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_worker": 1}, "give min_worker and max_worker together"),
        ({"max_worker": 1}, "give min_worker and max_worker together"),
        ({"min_worker": 2, "max_worker": 1}, "min_worker 2 is above max_worker 1"),
    ],
)
def test_the_range_of_worker_ports_is_a_range(given: dict[str, int], message: str) -> None:
    assert mistakes(ports={"ray": given}) == [("ports.ray", message)]


def test_how_many_worker_ports_there_are() -> None:
    assert [RayPorts().worker_span, RayPorts(min_worker=5, max_worker=5).worker_span] == [0, 1]


# --- a shard ---


def test_a_shard_with_little_said_has_the_plain_defaults() -> None:
    one = shard()
    assert one.is_leader
    assert one.model_dump(exclude={"profile", "ports"}) == {
        "nnodes": 1,
        "node_rank": 0,
        "leader_addr": None,
        "leader_port": None,
        "node_addr": None,
        "interface": None,
        "http_host": "0.0.0.0",
        "http_port": 8000,
        "gpus": None,
        "gpus_per_node": None,
        "launch_mode": "mp",
        "platform": "cuda",
        "api_key": None,
        "cluster_token": None,
    }


def test_addresses_are_kept_without_brackets() -> None:
    one = shard(nnodes=2, node_rank=1, leader_addr="[fd00::1]", node_addr="[fd00::2]", http_host="[::]")
    assert (one.leader_addr, one.node_addr, one.http_host) == ("fd00::1", "fd00::2", "::")
    assert not one.is_leader


def test_a_rank_may_be_left_to_a_scheduler() -> None:
    one = shard(nnodes=2, node_rank=NODE_RANK)
    assert (one.node_rank, one.is_leader) == (NodeRank(), False)
    assert one.model_dump()["node_rank"] == "node_rank"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"node_rank": 2}, [("", "node_rank must be from 0 to 1, not 2")]),
        ({"node_rank": -1}, [("", "node_rank must be from 0 to 1, not -1")]),
        ({"node_rank": "1"}, [("node_rank", "must be a whole number, or NODE_RANK, not '1'")]),
        ({"node_rank": True}, [("node_rank", "must be a whole number, or NODE_RANK, not True")]),
        ({"node_rank": 1.0}, [("node_rank", "must be a whole number, or NODE_RANK, not 1.0")]),
        ({"node_rank": None}, [("node_rank", "must be a whole number, or NODE_RANK, not None")]),
        (
            {"leader_addr": "127.0.0.1"},
            [
                (
                    "",
                    "leader_addr 127.0.0.1 is an address of this machine alone; "
                    "2 nodes need one that the others can reach",
                )
            ],
        ),
        (
            {"node_addr": "[::1]"},
            [
                (
                    "",
                    "node_addr ::1 is an address of this machine alone; "
                    "2 nodes need one that the others can reach",
                )
            ],
        ),
        ({"gpus_per_node": (8,)}, [("", "gpus_per_node has 1 entries for 2 nodes")]),
        ({"platform": "gpu"}, [("platform", "should be 'cuda', 'rocm', 'xpu' or 'cpu', not 'gpu'")]),
        ({"launch_mode": "slurm"}, [("launch_mode", "should be 'mp' or 'ray', not 'slurm'")]),
        ({"interface": ""}, [("interface", "must not be empty, not ''")]),
        ({"nodes": 2}, [("nodes", "unknown key 'nodes'; did you mean 'nnodes'?")]),
    ],
)
def test_what_does_not_fit_together_is_named(given: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert mistakes(**({"nnodes": 2} | given)) == expected


def test_counts_of_gpus_fit_the_number_of_nodes_of_a_single_node_too() -> None:
    assert mistakes(gpus_per_node=(8, 8)) == [("", "gpus_per_node has 2 entries for 1 nodes")]


def test_a_single_node_may_listen_and_meet_on_itself() -> None:
    assert shard(leader_addr="127.0.0.1", node_addr="localhost").leader_addr == "127.0.0.1"


@pytest.mark.parametrize("field", ["api_key", "cluster_token"])
def test_a_secret_is_a_reference_and_is_not_shown(field: str) -> None:
    literal = shard(**{field: SecretStr("s3cret")})
    assert "s3cret" not in repr(literal) + str(literal) + literal.model_dump_json() + repr(
        literal.model_dump()
    )
    assert getattr(shard(**{field: {"env": "KEY"}}), field) == EnvironmentSecret("KEY")
    with pytest.raises(ValidationError) as raised:
        shard(**{field: "s3cret"})
    assert "s3cret" not in str(raised.value) + repr(raised.value.errors()) + raised.value.json()


def test_a_profile_that_is_no_profile_is_not_repeated() -> None:
    with pytest.raises(ValidationError) as raised:
        ShardSpec(profile={"model": "m", "env": {"HF_TOKEN": "s3cret"}})
    assert "s3cret" not in str(raised.value) + repr(raised.value.errors())


@pytest.mark.parametrize(
    "one",
    [
        shard(),
        shard(gpus=[0, 1], api_key={"env": "KEY"}, ports=Ports(leader=1)),
        shard(nnodes=2, node_rank=NODE_RANK, gpus="8 x H100", cluster_token=SecretStr("s3cret")),
    ],
    ids=["plain", "with gpus", "symbolic"],
)
def test_a_shard_is_hashed_pickled_and_copied(one: ShardSpec) -> None:
    for again in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert again == one
        assert hash(again) == hash(one)
