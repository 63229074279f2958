"""Plans in which a scheduler decides the addresses and the ranks."""

from __future__ import annotations

from typing import Any

import pytest
from plans import Started, commands, error, planned, refused, started, words

from enginelaunch import VLLM
from enginelaunch.command import (
    HTTPReady,
    Joined,
    LeaderAddress,
    NodeRank,
    OwnAddress,
    SocketAddress,
    TCPReady,
    Wait,
    joined,
)
from enginelaunch.engine import Endpoint
from enginelaunch.engines.vllm.kv_events import KVEventEndpoint

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")


def open_nodes(*gpus: int) -> list[dict[str, Any]]:
    return [{"gpus": count} for count in gpus]


def resolved(profile: dict[str, Any], machines: list[dict[str, Any]], **keys: Any) -> list[Started]:
    """All commands with the addresses and ranks that a scheduler decided on."""
    return [
        Started(rank, command.name, command.argv, dict(command.env))
        for rank, machine in enumerate(commands(profile, machines, **keys))
        for command in (
            c.resolve(leader_addr=ADDRESSES[0], node_addr=ADDRESSES[rank], node_rank=rank) for c in machine
        )
    ]


def addressed(machines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"address": address, **machine} for address, machine in zip(ADDRESSES, machines, strict=False)]


def test_two_nodes_by_mp() -> None:
    sizes = words("--tensor-parallel-size 16 --distributed-executor-backend mp --nnodes 2 --node-rank")
    assert started({"tensor_parallel_size": 16}, open_nodes(8, 8)) == [
        (
            0,
            "server",
            (
                *words("vllm serve m --host 0.0.0.0 --port 8000"),
                *sizes,
                *("0", "--master-addr", LeaderAddress(), "--master-port", "29501"),
                *words("--served-model-name m"),
            ),
            {"VLLM_HOST_IP": OwnAddress()},
        ),
        (
            1,
            "worker",
            (
                *words("vllm serve m"),
                *sizes,
                *(NodeRank(), "--master-addr", LeaderAddress(), "--master-port", "29501", "--headless"),
            ),
            {"VLLM_HOST_IP": OwnAddress()},
        ),
    ]


def test_two_nodes_by_ray() -> None:
    head_address = joined(LeaderAddress(in_url=True), ":6379")
    (head, server), (join,) = commands({"tensor_parallel_size": 2}, open_nodes(1, 1), launch_mode="ray")
    assert head.argv == (
        *words("ray start --block --head --port 6379 --node-ip-address"),
        OwnAddress(),
        *words("--include-dashboard=false --num-gpus 1"),
    )
    assert server.argv == words(
        "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 2 --distributed-executor-backend ray "
        "--served-model-name m"
    )
    assert join.argv == (
        *words("ray start --block --address"),
        head_address,
        "--node-ip-address",
        OwnAddress(),
        *words("--num-gpus 1"),
    )
    assert [dict(command.env) for command in (head, server, join)] == [
        {"VLLM_HOST_IP": OwnAddress()},
        {"RAY_ADDRESS": head_address},
        {"VLLM_HOST_IP": OwnAddress()},
    ]
    wait = Wait(address=SocketAddress(LeaderAddress(), 6379), timeout=600.0)
    assert (head.waits_for, server.waits_for, join.waits_for) == ((), (wait,), (wait,))
    assert head.ready == TCPReady(address=SocketAddress(OwnAddress(), 6379), timeout=600.0)


def test_the_ranks_of_data_parallel_followers_follow_from_the_node_rank() -> None:
    profile = {"tensor_parallel_size": 2, "data_parallel_size": 10}
    data = words("--tensor-parallel-size 2 --data-parallel-size 10 --data-parallel-size-local")
    report = ("--data-parallel-address", LeaderAddress(), "--data-parallel-rpc-port", "29550")
    follower = (
        *words("vllm serve m"),
        *data,
        *("4", "--data-parallel-start-rank", NodeRank(times=4, plus=-2)),
        *report,
        "--headless",
    )
    assert started(profile, open_nodes(4, 8, 8)) == [
        (
            0,
            "server",
            (
                *words("vllm serve m --host 0.0.0.0 --port 8000"),
                *data,
                "2",
                *report,
                *words("--served-model-name m"),
            ),
            {"VLLM_HOST_IP": OwnAddress()},
        ),
        (1, "worker", follower, {"VLLM_HOST_IP": OwnAddress()}),
        (2, "worker", follower, {"VLLM_HOST_IP": OwnAddress()}),
    ]
    assert [ran.argv[8] for ran in resolved(profile, open_nodes(4, 8, 8))[1:]] == ["4", "4"]
    assert [
        ran.argv[ran.argv.index("--data-parallel-start-rank") + 1]
        for ran in resolved(profile, open_nodes(4, 8, 8))[1:]
    ] == ["2", "6"]


def test_hybrid_and_external_ranks_follow_from_the_node_rank() -> None:
    hybrid = started({"data_parallel_size": 6, "data_parallel_mode": "hybrid"}, open_nodes(2, 2, 2))
    assert [ran.argv[ran.argv.index("--data-parallel-start-rank") + 1] for ran in hybrid] == [
        "0",
        NodeRank(times=2),
        NodeRank(times=2),
    ]
    external = started({"data_parallel_size": 6, "data_parallel_mode": "external"}, open_nodes(2, 2, 2))
    assert [
        (ran.node, ran.name, ran.argv[ran.argv.index("--data-parallel-rank") + 1]) for ran in external
    ] == [
        (0, "server-0", "0"),
        (0, "server-1", "1"),
        (1, "server-0", NodeRank(times=2)),
        (1, "server-1", NodeRank(times=2, plus=1)),
        (2, "server-0", NodeRank(times=2)),
        (2, "server-1", NodeRank(times=2, plus=1)),
    ]


SHAPES: list[tuple[str, dict[str, Any], tuple[int, ...], dict[str, Any]]] = [
    ("one node", {}, (1,), {}),
    ("mp", {"tensor_parallel_size": 16}, (8, 8), {}),
    ("internal", {"data_parallel_size": 8}, (2, 2, 2, 2), {}),
    ("uneven leader", {"data_parallel_size": 5}, (1, 2, 2), {}),
    ("leader without GPUs", {"data_parallel_size": 4}, (0, 2, 2), {}),
    ("hybrid", {"data_parallel_size": 8, "data_parallel_mode": "hybrid"}, (2, 2, 2, 2), {}),
    ("external", {"data_parallel_size": 8, "data_parallel_mode": "external"}, (2, 2, 2, 2), {}),
    ("nested", {"tensor_parallel_size": 2, "data_parallel_size": 2}, (1, 1, 1, 1), {}),
    ("ray", {"tensor_parallel_size": 4}, (2, 2), {"launch_mode": "ray"}),
    ("ray data parallel", {"data_parallel_size": 4}, (2, 2), {"launch_mode": "ray"}),
]


@pytest.mark.parametrize(
    ("profile", "gpus", "keys"), [shape[1:] for shape in SHAPES], ids=[s[0] for s in SHAPES]
)
def test_resolved_commands_are_those_of_known_addresses(
    profile: dict[str, Any], gpus: tuple[int, ...], keys: dict[str, Any]
) -> None:
    machines = open_nodes(*gpus)
    known = started(profile, addressed(machines), **keys)
    if len(gpus) == 1:
        # One node alone needs no address of its own.
        known = [ran._replace(env={}) for ran in known]
    assert resolved(profile, machines, **keys) == known


@pytest.mark.parametrize("launch_mode", ["mp", "ray"])
def test_a_known_leader_stands_for_itself_among_followers_of_unknown_address(launch_mode: str) -> None:
    machines = [{"address": "fd00::1", "gpus": 1, "http_host": "::"}, {"gpus": 1}]
    follower = started({"tensor_parallel_size": 2}, machines, launch_mode=launch_mode)[-1]
    assert follower.env == {"VLLM_HOST_IP": OwnAddress()}
    assert ("fd00::1" if launch_mode == "mp" else "[fd00::1]:6379") in follower.argv
    assert LeaderAddress() not in follower.argv


def test_an_ipv6_address_that_a_scheduler_decides_is_bracketed_where_a_port_follows() -> None:
    (_, server), (join,) = commands({"tensor_parallel_size": 2}, open_nodes(1, 1), launch_mode="ray")
    values: dict[str, Any] = {"leader_addr": "fd00::1", "node_addr": "fd00::2", "node_rank": 1}
    assert server.resolve(**values).env == {"RAY_ADDRESS": "[fd00::1]:6379"}
    assert join.resolve(**values).argv == words(
        "ray start --block --address [fd00::1]:6379 --node-ip-address fd00::2 --num-gpus 1"
    )
    assert join.resolve(**values).waits_for == (Wait(address=SocketAddress("fd00::1", 6379), timeout=600.0),)


def test_a_resolved_command_says_so_and_a_value_that_is_missing_is_named() -> None:
    _, (worker,) = commands({"tensor_parallel_size": 2}, open_nodes(1, 1))
    assert not worker.is_resolved
    whole = worker.resolve(leader_addr="10.0.0.1", node_addr="10.0.0.2", node_rank=1)
    assert whole.is_resolved
    with pytest.raises(ValueError, match="node_rank is needed"):
        worker.resolve(leader_addr="10.0.0.1", node_addr="10.0.0.2")
    with pytest.raises(ValueError, match="leader_addr is needed"):
        worker.resolve(node_addr="10.0.0.2", node_rank=1)
    with pytest.raises(ValueError, match="node_addr is needed"):
        worker.resolve(leader_addr="10.0.0.1", node_rank=1)


def test_endpoints_and_events_are_at_the_nodes_own_address() -> None:
    engine = VLLM("0.32.0")
    plan = planned({"data_parallel_size": 4, "kv_events": {}}, open_nodes(2, 2), engine=engine)
    leader, follower = plan.nodes
    assert (leader.address, follower.address) == (None, None)
    assert leader.endpoints == (
        Endpoint(command="server", host=OwnAddress(), port=8000, data_parallel_ranks=(0, 3)),
    )
    assert leader.endpoints[0].url == joined("http://", OwnAddress(in_url=True), ":8000")
    assert engine.kv_event_endpoints(leader.shard) == [
        KVEventEndpoint(
            data_parallel_rank=rank,
            endpoint=joined("tcp://", OwnAddress(in_url=True), f":{5557 + rank}"),
            replay_endpoint=None,
            topic="",
            engine_connects=False,
        )
        for rank in (0, 1)
    ]
    # Which ranks a follower holds is known when its own rank is.
    assert engine.kv_event_endpoints(follower.shard) == []


def test_a_server_is_asked_on_its_own_machine_whatever_its_address() -> None:
    (command,) = commands({}, [{}])[0]
    assert command.ready == HTTPReady(
        address=SocketAddress("127.0.0.1", 8000), path="/health", timeout=3600.0
    )


def test_placeholders_are_objects_in_the_plan_as_data() -> None:
    _, worker = planned({"tensor_parallel_size": 2}, open_nodes(1, 1)).as_dict()["nodes"]
    (command,) = worker["commands"]
    assert worker["address"] is None
    assert command["argv"] == [
        *words(
            "vllm serve m --tensor-parallel-size 2 --distributed-executor-backend mp --nnodes 2 --node-rank"
        ),
        {"placeholder": "node_rank", "times": 1, "plus": 0},
        "--master-addr",
        {"placeholder": "leader_addr", "in_url": False},
        *words("--master-port 29501 --headless"),
    ]
    assert command["env"] == {"VLLM_HOST_IP": {"placeholder": "node_addr", "in_url": False}}


def test_a_text_with_placeholders_is_a_list_in_the_plan_as_data() -> None:
    _, worker = planned({"tensor_parallel_size": 2}, open_nodes(1, 1), launch_mode="ray").as_dict()["nodes"]
    (command,) = worker["commands"]
    assert command["argv"][4] == {"joined": [{"placeholder": "leader_addr", "in_url": True}, ":6379"]}
    assert command["waits_for"] == [
        {"host": {"placeholder": "leader_addr", "in_url": False}, "port": 6379, "timeout": 600.0}
    ]
    assert isinstance(
        commands({"tensor_parallel_size": 2}, open_nodes(1, 1), launch_mode="ray")[1][0].argv[4], Joined
    )


@pytest.mark.parametrize(
    ("profile", "gpus", "message", "hint"),
    [
        (
            {"data_parallel_size": 6},
            (2, 3, 1),
            "followers whose rank a scheduler decides must be alike, "
            "but they would hold 3, 1 data-parallel ranks",
            "give them as many GPUs each, or give every node its address",
        ),
        (
            {"tensor_parallel_size": 2, "data_parallel_size": 2, "data_parallel_mode": "external"},
            (1, 1, 1, 1),
            "in external mode the first node of each replica serves and the others do not, "
            "so followers that are larger than a node need known ranks",
            "give every node its address, or use data_parallel_mode: internal",
        ),
    ],
)
def test_followers_that_cannot_share_one_template_need_addresses(
    profile: dict[str, Any], gpus: tuple[int, ...], message: str, hint: str
) -> None:
    assert refused(profile, open_nodes(*gpus)) == (error("impossible-layout", "profile", message, hint),)
