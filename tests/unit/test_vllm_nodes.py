"""What runs on several nodes whose processes come together by vLLM's own multiprocessing."""

from __future__ import annotations

from typing import Any

import pytest
from plans import (
    commands,
    deployment,
    error,
    found,
    node,
    nodes,
    planned,
    refused,
    started,
    warning,
    words,
)
from pydantic import ValidationError

from enginelaunch import Command, ShardSpec
from enginelaunch.command import (
    EnvironmentSecret,
    Exits,
    HTTPReady,
    ListeningPort,
    SocketAddress,
    Stop,
    StopSignal,
)
from enginelaunch.engine import Endpoint
from enginelaunch.profile import Profile

SIXTEEN = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}

STOP = Stop(signals=(StopSignal("SIGTERM", 30.0), StopSignal("SIGTERM", 15.0), StopSignal("SIGKILL", 5.0)))


def leader_argv(sizes: str, nnodes: int, leader: str = "10.0.0.1", port: int = 29501) -> tuple[str, ...]:
    return words(
        f"vllm serve m --host 0.0.0.0 --port 8000 {sizes} --distributed-executor-backend mp "
        f"--nnodes {nnodes} --node-rank 0 --master-addr {leader} --master-port {port} --served-model-name m"
    )


def follower_argv(
    rank: int, sizes: str, nnodes: int, leader: str = "10.0.0.1", port: int = 29501
) -> tuple[str, ...]:
    return words(
        f"vllm serve m {sizes} --distributed-executor-backend mp "
        f"--nnodes {nnodes} --node-rank {rank} --master-addr {leader} --master-port {port} --headless"
    )


def test_two_nodes_are_two_whole_commands() -> None:
    sizes = "--tensor-parallel-size 8 --pipeline-parallel-size 2"
    interface = {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    meanings = (
        (1, "it failed while starting or running; its last lines say why"),
        (2, "an argument is wrong"),
        (137, "it was killed, by SIGKILL or for lack of memory"),
        (143, "it was stopped while it was still importing"),
    )
    assert commands(SIXTEEN, nodes(8, 8, interface="eth0"), api_key={"env": "KEY"}) == [
        [
            Command(
                name="server",
                path="vllm",
                args=leader_argv(sizes, 2)[1:],
                env={"VLLM_HOST_IP": "10.0.0.1", **interface},
                secret_env={"VLLM_API_KEY": EnvironmentSecret("KEY")},
                clear_env=("VLLM_PORT", "VLLM_DP_"),
                role="serves",
                ready=HTTPReady(address=SocketAddress("127.0.0.1", 8000), path="/health", timeout=3600.0),
                ports=(ListeningPort(name="http", base=8000), ListeningPort(name="master", base=29501)),
                stop=STOP,
                exits=Exits(success=(0, 143), meanings=((0, "it was stopped as asked"), *meanings)),
            )
        ],
        [
            Command(
                name="worker",
                path="vllm",
                args=follower_argv(1, sizes, 2)[1:],
                env={"VLLM_HOST_IP": "10.0.0.2", **interface},
                clear_env=("VLLM_PORT", "VLLM_DP_"),
                role="worker",
                stop=STOP,
                exits=Exits(
                    meanings=((0, "it ended; a worker that ends leaves the server hanging"), *meanings)
                ),
            )
        ],
    ]


def test_only_the_leader_of_one_replica_takes_requests() -> None:
    plan = planned(SIXTEEN, nodes(8, 8))
    assert [machine.endpoints for machine in plan.nodes] == [
        (Endpoint(command="server", host="10.0.0.1", port=8000),),
        (),
    ]


@pytest.mark.parametrize(
    ("profile", "gpus", "sizes"),
    [
        ({"tensor_parallel_size": 16}, (8, 8), "--tensor-parallel-size 16"),
        (
            {"tensor_parallel_size": 1, "pipeline_parallel_size": 4},
            (1, 1, 1, 1),
            "--tensor-parallel-size 1 --pipeline-parallel-size 4",
        ),
        (
            {"tensor_parallel_size": 4, "pipeline_parallel_size": 3, "enable_expert_parallel": True},
            (4, 4, 4),
            "--tensor-parallel-size 4 --pipeline-parallel-size 3 --enable-expert-parallel",
        ),
        (
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 2},
            (4, 4),
            "--tensor-parallel-size 8 --decode-context-parallel-size 2",
        ),
        (
            {"tensor_parallel_size": 4, "prefill_context_parallel_size": 2},
            (4, 4),
            "--tensor-parallel-size 4 --prefill-context-parallel-size 2",
        ),
    ],
)
def test_one_replica_over_nodes(profile: dict[str, Any], gpus: tuple[int, ...], sizes: str) -> None:
    nnodes = len(gpus)
    assert started(profile, nodes(*gpus)) == [
        (0, "server", leader_argv(sizes, nnodes), {"VLLM_HOST_IP": "10.0.0.1"}),
        *(
            (rank, "worker", follower_argv(rank, sizes, nnodes), {"VLLM_HOST_IP": f"10.0.0.{rank + 1}"})
            for rank in range(1, nnodes)
        ),
    ]


def test_nodes_whose_gpus_are_not_stated_share_evenly() -> None:
    assert started(SIXTEEN, nodes(None, None)) == started(SIXTEEN, nodes(8, 8))


def test_the_master_port_is_the_one_asked_for() -> None:
    sizes = "--tensor-parallel-size 2"
    assert started({"tensor_parallel_size": 2}, nodes(1, 1), ports={"leader": 31000}) == [
        (0, "server", leader_argv(sizes, 2, port=31000), {"VLLM_HOST_IP": "10.0.0.1"}),
        (1, "worker", follower_argv(1, sizes, 2, port=31000), {"VLLM_HOST_IP": "10.0.0.2"}),
    ]


@pytest.mark.parametrize(
    ("leader", "bare"),
    [("[fd00::1]", "fd00::1"), ("fd00::1", "fd00::1"), ("node-0.cluster.local", "node-0.cluster.local")],
)
def test_addresses_stand_bare_in_flags_and_in_the_environment(leader: str, bare: str) -> None:
    machines = [{"address": leader, "gpus": 1, "http_host": "::"}, {"address": "fd00::2", "gpus": 1}]
    sizes = "--tensor-parallel-size 2"
    serving = tuple("::" if item == "0.0.0.0" else item for item in leader_argv(sizes, 2, bare))
    assert started({"tensor_parallel_size": 2}, machines) == [
        (0, "server", serving, {"VLLM_HOST_IP": bare}),
        (1, "worker", follower_argv(1, sizes, 2, bare), {"VLLM_HOST_IP": "fd00::2"}),
    ]


def test_an_ipv6_address_stands_in_brackets_where_a_port_follows() -> None:
    machines = [{"address": "fd00::1", "gpus": 1, "http_host": "::"}, {"address": "fd00::2", "gpus": 1}]
    (leader, _) = planned({"tensor_parallel_size": 2}, machines).nodes
    assert [endpoint.url for endpoint in leader.endpoints] == ["http://[fd00::1]:8000"]


def test_a_server_on_ipv4_alone_is_not_said_to_answer_on_ipv6() -> None:
    machines = [{"address": "fd00::1", "gpus": 1}, {"address": "fd00::2", "gpus": 1}]
    assert found({"tensor_parallel_size": 2}, machines) == (
        warning(
            "http-host",
            "nodes[0].http_host",
            "0.0.0.0 listens on IPv4 alone, and fd00::1, at which requests would come, is IPv6",
            "set http_host: '::'",
        ),
    )


def test_a_thousand_nodes_have_a_rank_and_an_address_each() -> None:
    machines = [
        {"address": f"10.0.{rank // 250}.{rank % 250 + 1}", "gpus": 8, "interface": "eth0"}
        for rank in range(1000)
    ]
    ran = started({"tensor_parallel_size": 8, "pipeline_parallel_size": 1000}, machines)
    sizes = "--tensor-parallel-size 8 --pipeline-parallel-size 1000"
    assert [(one.node, one.name, one.argv, one.env["VLLM_HOST_IP"]) for one in ran] == [
        (
            rank,
            "worker" if rank else "server",
            follower_argv(rank, sizes, 1000, "10.0.0.1") if rank else leader_argv(sizes, 1000, "10.0.0.1"),
            f"10.0.{rank // 250}.{rank % 250 + 1}",
        )
        for rank in range(1000)
    ]


@pytest.mark.parametrize(
    ("gpus", "hint"),
    [
        ((4, 12), "give each node 8 GPUs"),
        ((8, 8, 0), "use sizes whose product is a multiple of 3, with as many GPUs on each node"),
    ],
)
def test_one_replica_is_split_evenly(gpus: tuple[int, ...], hint: str) -> None:
    assert refused({"tensor_parallel_size": 16}, nodes(*gpus)) == (
        error(
            "impossible-layout",
            "profile",
            f"one replica over nodes with {' + '.join(map(str, gpus))} GPUs: vLLM splits a replica evenly",
            hint,
        ),
    )


def test_sizes_that_nodes_cannot_share_name_those_that_they_can() -> None:
    assert refused({"tensor_parallel_size": 8}, nodes(None, None, None)) == (
        error(
            "impossible-layout",
            "profile",
            "tensor_parallel_size 8: that makes 8 GPUs, which 3 nodes cannot share evenly",
            "state the GPUs of each node, or use sizes whose product is a multiple of 3, such as 6 or 9",
        ),
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "127.5.5.5", "0.0.0.0", "::1", "::", "localhost", "[::1]"])
@pytest.mark.parametrize("rank", [0, 1])
def test_an_address_of_one_machine_alone_cannot_be_that_of_a_node(address: str, rank: int) -> None:
    machines = nodes(8, 8)
    machines[rank]["address"] = address
    assert refused(SIXTEEN, machines) == (
        error(
            "unreachable-address",
            f"nodes[{rank}].address",
            f"{address.strip('[]')} is an address of one machine alone, and 2 nodes have to meet",
            "give the address at which the other nodes reach it",
        ),
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("fd00::1", "[fd00:0:0::1]"),
        ("Node-0.cluster", "node-0.cluster."),
    ],
)
def test_an_address_stands_for_one_node_only(one: str, other: str) -> None:
    assert refused(SIXTEEN, [{"address": one, "gpus": 8}, {"address": other, "gpus": 8}]) == (
        error(
            "same-address-twice",
            "nodes[1].address",
            f"{other.strip('[]')} is also the address of nodes[0]",
            "give each node its own address",
        ),
    )


@pytest.mark.parametrize(
    ("given", "missing"),
    [((False, True), 0), ((True, True, False), 2), ((True, False, True), 1), ((False, True, True), 0)],
)
def test_followers_have_addresses_all_or_none(given: tuple[bool, ...], missing: int) -> None:
    machines = [node(rank, 1) if there else {"gpus": 1} for rank, there in enumerate(given)]
    assert refused({"pipeline_parallel_size": len(given)}, machines) == (
        error(
            "address-missing",
            f"nodes[{missing}].address",
            "some followers have an address and this node has none",
            "give every node its address, or leave out those of all followers",
        ),
    )


def test_gpus_are_stated_for_all_nodes_or_for_none() -> None:
    assert refused(SIXTEEN, [node(0, 8), node(1)]) == (
        error(
            "gpus-missing",
            "nodes[1].gpus",
            "the GPUs of some nodes are stated and of this one are not",
            "state those of every node, or of none",
        ),
    )


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_shard_has_a_rank_within_its_nodes(rank: int) -> None:
    with pytest.raises(ValidationError, match=f"node_rank must be from 0 to 1, not {rank}"):
        ShardSpec(profile=Profile(model="m"), nnodes=2, node_rank=rank)


def test_an_unknown_launch_mode_names_those_that_there_are() -> None:
    with pytest.raises(ValidationError, match=r"launch_mode\n.*'mp' or 'ray', not 'mpi'"):
        deployment(SIXTEEN, nodes(8, 8), launch_mode="mpi")


@pytest.mark.parametrize("interface", ["=eth0", "^docker0", "eth 0", "eth0\n", "10.0.0.1/24", "eth0,"])
def test_an_interface_is_a_plain_name(interface: str) -> None:
    with pytest.raises(ValidationError) as caught:
        deployment(SIXTEEN, [node(0, 8, interface=interface), node(1, 8)])
    assert [(entry["loc"], entry["msg"]) for entry in caught.value.errors()] == [
        (
            ("nodes", 0, "interface"),
            f"must be the name of a network interface such as eth0, not {interface!r}",
        )
    ]


@pytest.mark.parametrize("args", [["--host", "::"], ["--host", "fd00::1"]])
def test_a_server_that_args_make_listen_on_ipv6_is_said_to_answer_there(args: list[str]) -> None:
    machines = [{"address": "fd00::1", "gpus": 1}, {"address": "fd00::2", "gpus": 1}]
    plan = planned({"tensor_parallel_size": 2, "args": args}, machines)
    assert [finding.code for finding in plan.findings] == ["override"]
    assert [endpoint.url for endpoint in plan.nodes[0].endpoints] == ["http://[fd00::1]:8000"]
