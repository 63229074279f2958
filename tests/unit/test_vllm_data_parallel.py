"""Data-parallel replicas: one server for all, one a node, one a replica; within nodes and over them."""

from __future__ import annotations

from typing import Any

import pytest
from plans import commands, error, found, info, nodes, planned, refused, started, words

from enginelaunch import Finding
from enginelaunch.engine import Endpoint

RPC = "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29550"


def served(sizes: str, flags: str, *, port: int = 8000) -> tuple[str, ...]:
    return words(f"vllm serve m --host 0.0.0.0 --port {port} {sizes} {flags} --served-model-name m")


def headless(sizes: str, flags: str) -> tuple[str, ...]:
    return words(f"vllm serve m {sizes} {flags} --headless")


def own(rank: int) -> dict[str, str]:
    return {"VLLM_HOST_IP": f"10.0.0.{rank + 1}"}


def spread(size: int, local: int, more: str = "") -> str:
    return " ".join(f"--data-parallel-size {size} --data-parallel-size-local {local} {more} {RPC}".split())


def test_internal_leader_has_no_start_rank_and_followers_are_headless_with_theirs() -> None:
    sizes = "--tensor-parallel-size 2 --enable-expert-parallel"
    profile = {"tensor_parallel_size": 2, "data_parallel_size": 12, "enable_expert_parallel": True}
    assert started(profile, nodes(8, 8, 8)) == [
        (0, "server", served(sizes, spread(12, 4)), own(0)),
        (1, "worker", headless(sizes, spread(12, 4, "--data-parallel-start-rank 4")), own(1)),
        (2, "worker", headless(sizes, spread(12, 4, "--data-parallel-start-rank 8")), own(2)),
    ]


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "0.11.1", "0.28.0", "0.29.0", "0.33.0"])
def test_internal_leader_has_no_start_rank_on_any_release(version: str) -> None:
    sizes = "--tensor-parallel-size 2"
    profile = {"tensor_parallel_size": 2, "data_parallel_size": 2}
    assert started(profile, nodes(2, 2), version) == [
        (0, "server", served(sizes, spread(2, 1)), own(0)),
        (1, "worker", headless(sizes, spread(2, 1, "--data-parallel-start-rank 1")), own(1)),
    ]


def test_internal_takes_requests_for_all_replicas_on_the_leader_alone() -> None:
    plan = planned({"data_parallel_size": 4}, nodes(2, 2))
    assert [machine.endpoints for machine in plan.nodes] == [
        (Endpoint(command="server", host="10.0.0.1", port=8000, data_parallel_ranks=(0, 3)),),
        (),
    ]


@pytest.mark.parametrize(
    ("profile", "gpus", "held"),
    [
        ({"data_parallel_size": 5}, (3, 2), (3, 2)),
        ({"data_parallel_size": 5}, (1, 4), (1, 4)),
        ({"tensor_parallel_size": 2, "data_parallel_size": 6}, (8, 2, 2), (4, 1, 1)),
        ({"data_parallel_size": 8}, (0, 8), (0, 8)),
    ],
)
def test_internal_takes_nodes_with_different_numbers_of_gpus(
    profile: dict[str, Any], gpus: tuple[int, ...], held: tuple[int, ...]
) -> None:
    sizes = f"--tensor-parallel-size {profile.get('tensor_parallel_size', 1)}"
    size = profile["data_parallel_size"]
    assert started(profile, nodes(*gpus)) == [
        (0, "server", served(sizes, spread(size, held[0])), own(0)),
        *(
            (
                rank,
                "worker",
                headless(sizes, spread(size, held[rank], f"--data-parallel-start-rank {sum(held[:rank])}")),
                own(rank),
            )
            for rank in range(1, len(gpus))
        ),
    ]


def for_mixtures_of_experts(mode: str) -> Finding:
    return info(
        "mixtures-of-experts-only",
        "profile.data_parallel_mode",
        f"vLLM 0.32.0 takes data_parallel_mode {mode} for mixtures of experts only",
        "for a dense model use internal, or a deployment of its own for each replica",
    )


def test_hybrid_serves_on_every_node_with_its_start_rank_and_is_nowhere_headless() -> None:
    sizes = "--tensor-parallel-size 1"
    profile = {"data_parallel_size": 12, "data_parallel_mode": "hybrid"}
    plan = planned(profile, nodes(4, 4, 4))
    assert started(profile, nodes(4, 4, 4)) == [
        (
            rank,
            "server",
            served(
                sizes,
                "--data-parallel-size 12 --data-parallel-size-local 4 "
                f"--data-parallel-start-rank {4 * rank} --data-parallel-hybrid-lb {RPC}",
            ),
            own(rank),
        )
        for rank in range(3)
    ]
    assert [machine.commands[0].role for machine in plan.nodes] == ["serves"] * 3
    assert [machine.endpoints[0].data_parallel_ranks for machine in plan.nodes] == [(0, 3), (4, 7), (8, 11)]
    assert plan.findings == (for_mixtures_of_experts("hybrid"),)


def test_hybrid_takes_nodes_with_different_numbers_of_replicas() -> None:
    profile = {"data_parallel_size": 5, "data_parallel_mode": "hybrid"}
    assert [ran.argv for ran in started(profile, nodes(2, 3))] == [
        served(
            "--tensor-parallel-size 1",
            f"--data-parallel-size 5 --data-parallel-size-local {local} "
            f"--data-parallel-start-rank {start} --data-parallel-hybrid-lb {RPC}",
        )
        for start, local in ((0, 2), (2, 3))
    ]


def test_hybrid_with_one_replica_a_node_is_said_to_be_external() -> None:
    profile = {"tensor_parallel_size": 8, "data_parallel_size": 2, "data_parallel_mode": "hybrid"}
    assert found(profile, nodes(8, 8)) == (
        info(
            "hybrid-is-another-mode",
            "profile.data_parallel_mode",
            "each node holds one data-parallel rank, so vLLM treats hybrid load balancing as external",
            "data_parallel_mode: external says the same",
        ),
        for_mixtures_of_experts("hybrid"),
    )


@pytest.mark.parametrize(
    ("profile", "version"),
    [
        ({"data_parallel_mode": "internal"}, "0.32.0"),
        ({"data_parallel_mode": "external", "enable_expert_parallel": True}, "0.32.0"),
        ({"data_parallel_mode": "external"}, "0.20.2"),
    ],
)
def test_nothing_is_said_of_dense_models_where_they_are_taken(profile: dict[str, Any], version: str) -> None:
    assert found({"data_parallel_size": 4, **profile}, nodes(2, 2), version=version) == ()


def test_external_serves_each_replica_with_its_rank() -> None:
    sizes = "--tensor-parallel-size 8"
    profile = {"tensor_parallel_size": 8, "data_parallel_size": 3, "data_parallel_mode": "external"}
    assert started(profile, nodes(8, 8, 8)) == [
        (
            rank,
            "server",
            served(
                sizes,
                f"--data-parallel-size 3 --data-parallel-rank {rank} --data-parallel-external-lb {RPC}",
            ),
            own(rank),
        )
        for rank in range(3)
    ]


def test_external_serves_several_replicas_of_a_node_on_following_ports_and_gpus() -> None:
    profile = {"tensor_parallel_size": 2, "data_parallel_size": 3, "data_parallel_mode": "external"}
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    flags = "--data-parallel-size 3 --data-parallel-rank {} --data-parallel-external-lb " + RPC
    sizes = "--tensor-parallel-size 2"
    machines = nodes([0, 1, 6, 7], [2, 3])
    assert started(profile, machines) == [
        (0, "server-0", served(sizes, flags.format(0)), {**own(0), "CUDA_VISIBLE_DEVICES": "0,1", **order}),
        (
            0,
            "server-1",
            served(sizes, flags.format(1), port=8001),
            {**own(0), "CUDA_VISIBLE_DEVICES": "6,7", **order},
        ),
        (1, "server", served(sizes, flags.format(2)), {**own(1), "CUDA_VISIBLE_DEVICES": "2,3", **order}),
    ]
    assert [
        (endpoint.command, endpoint.port, endpoint.data_parallel_ranks)
        for machine in planned(profile, machines).nodes
        for endpoint in machine.endpoints
    ] == [("server-0", 8000, (0, 0)), ("server-1", 8001, (1, 1)), ("server", 8000, (2, 2))]


def meeting(rank: int, nnodes: int) -> str:
    return (
        f"--distributed-executor-backend mp --nnodes {nnodes} --node-rank {rank} "
        "--master-addr 10.0.0.1 --master-port 29501"
    )


def test_internal_replicas_that_span_nodes_follow_from_the_node_rank() -> None:
    sizes = "--tensor-parallel-size 16"
    profile = {"tensor_parallel_size": 16, "data_parallel_size": 2}
    data = f"--data-parallel-size 2 {RPC}"
    assert started(profile, nodes(8, 8, 8, 8)) == [
        (0, "server", served(sizes, f"{meeting(0, 4)} {data}"), own(0)),
        *((rank, "worker", headless(sizes, f"{meeting(rank, 4)} {data}"), own(rank)) for rank in (1, 2, 3)),
    ]


def test_external_replicas_that_span_nodes_are_served_by_their_first_node() -> None:
    sizes = "--tensor-parallel-size 8 --pipeline-parallel-size 2"
    profile = {
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "data_parallel_size": 2,
        "data_parallel_mode": "external",
    }
    data = f"--data-parallel-size 2 --data-parallel-external-lb {RPC}"
    assert started(profile, nodes(8, 8, 8, 8)) == [
        (0, "server", served(sizes, f"{meeting(0, 4)} {data}"), own(0)),
        (1, "worker", headless(sizes, f"{meeting(1, 4)} {data}"), own(1)),
        (2, "server", served(sizes, f"{meeting(2, 4)} {data}"), own(2)),
        (3, "worker", headless(sizes, f"{meeting(3, 4)} {data}"), own(3)),
    ]
    assert [
        [endpoint.data_parallel_ranks for endpoint in machine.endpoints]
        for machine in planned(profile, nodes(8, 8, 8, 8)).nodes
    ] == [[(0, 0)], [], [(1, 1)], []]


@pytest.mark.parametrize("mode", ["internal", "hybrid", "external"])
@pytest.mark.parametrize("gpus", [(8, 8), (4, 4, 4, 4), (2,) * 8])
def test_a_deployment_has_one_load_balancing_mode_on_all_nodes(mode: str, gpus: tuple[int, ...]) -> None:
    profile = {"tensor_parallel_size": 1, "data_parallel_size": 16, "data_parallel_mode": mode}
    seen = {
        (
            "--data-parallel-hybrid-lb" in command.args,
            "--data-parallel-external-lb" in command.args,
            "--headless" in command.args,
        )
        for machine in commands(profile, nodes(*gpus))
        for command in machine
    }
    assert (
        seen
        == {
            "internal": {(False, False, False), (False, False, True)},
            "hybrid": {(True, False, False)},
            "external": {(False, True, False)},
        }[mode]
    )


def test_ports_are_the_ones_asked_for() -> None:
    ran = started({"data_parallel_size": 2}, nodes(1, 1), ports={"data_parallel_rpc": 31001})
    assert [one.argv[one.argv.index("--data-parallel-rpc-port") + 1] for one in ran] == ["31001", "31001"]


def test_an_ipv6_leader_stands_bare_in_the_data_parallel_address() -> None:
    machines = [{"address": "[fd00::1]", "gpus": 1, "http_host": "::"}, {"address": "fd00::2", "gpus": 1}]
    ran = started({"data_parallel_size": 2}, machines)
    assert [one.argv[one.argv.index("--data-parallel-address") + 1] for one in ran] == ["fd00::1", "fd00::1"]


NEITHER_FIT_NOR_FILL = (
    "use a tensor_parallel_size x pipeline_parallel_size that divides a node's GPUs, "
    "or a multiple of them with as many GPUs on each node"
)


@pytest.mark.parametrize(
    ("profile", "gpus", "message", "hint"),
    [
        (
            {"data_parallel_size": 4},
            (8, 8),
            "data_parallel_size 4: that makes 4 GPUs, but the nodes have 8 + 8 = 16",
            "use data_parallel_size 16, or tensor_parallel_size 4, or pipeline_parallel_size 4, "
            "or give 4 GPUs",
        ),
        (
            {"tensor_parallel_size": 3, "data_parallel_size": 4},
            (8, 4),
            "replicas of 3 GPUs neither fit into nodes with 4, 8 GPUs nor fill them",
            NEITHER_FIT_NOR_FILL,
        ),
        (
            {"tensor_parallel_size": 3, "data_parallel_size": 4},
            (6, 6, 0),
            "node 2 has no GPU to hold a replica",
            "leave the node out, or give it GPUs; only the leader may have none",
        ),
        (
            {"tensor_parallel_size": 12, "data_parallel_size": 2},
            (8, 8, 8),
            "replicas of 12 GPUs neither fit into nodes with 8 GPUs nor fill them",
            NEITHER_FIT_NOR_FILL,
        ),
        (
            {"data_parallel_size": 4, "data_parallel_mode": "hybrid"},
            (0, 4),
            "node 0 has no GPU to hold a replica, and in hybrid mode every node serves",
            "give each node GPUs, or use data_parallel_mode: internal",
        ),
        (
            {"data_parallel_size": 4, "data_parallel_mode": "external"},
            (4, 0),
            "node 1 has no GPU to hold a replica, and in external mode every node serves",
            "give each node GPUs, or use data_parallel_mode: internal",
        ),
        (
            {"data_parallel_size": 4, "data_parallel_mode": "hybrid"},
            (1, 3),
            "the nodes would hold 1, 3 data-parallel ranks: vLLM turns hybrid into external load balancing "
            "on a node with one, and the nodes would disagree",
            "give each node at least two ranks, or use data_parallel_mode: internal",
        ),
        (
            {"tensor_parallel_size": 16, "data_parallel_size": 2, "data_parallel_mode": "hybrid"},
            (8, 8, 8, 8),
            "hybrid load balancing needs whole replicas on each node, but one has 16 GPUs and a node 8",
            "use data_parallel_mode: external (the first node of each replica serves) or internal",
        ),
    ],
)
def test_impossible_layouts_say_what_would_work(
    profile: dict[str, Any], gpus: tuple[int, ...], message: str, hint: str
) -> None:
    assert refused(profile, nodes(*gpus)) == (error("impossible-layout", "profile", message, hint),)
