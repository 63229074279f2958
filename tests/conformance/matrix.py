"""Deployments in every shape in which people run vLLM, with what each command has to mean.

The tables are made by hand from the deployment alone: what a parser has to read from each command
(`parsed`, defaults left out), and what the engine's own configuration has to come to (`config`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A deployment and the meaning of its commands.

    Attributes:
        name: the shape.
        profile: the profile, without its model.
        nodes: the nodes.
        deployment: further keys of the deployment.
        parsed: for each node the values of each `vllm serve` command, without the model.
        config: likewise the fields of the parallel configuration; empty where the CPU build refuses.
        refused: what the CPU build's configuration says against it, where it refuses.
        model: the folder with the model's config.json.
        first_release: the first release that has the shape.
    """

    name: str
    profile: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    parsed: Sequence[Sequence[Values]]
    config: Sequence[Sequence[Values]] = ()
    deployment: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    model: str = "dense_llama"
    first_release: str = "0.9.0"


def nodes(*gpus: int) -> list[dict[str, Any]]:
    """Nodes 10.0.0.1, 10.0.0.2, … with so many GPUs each."""
    return [{"address": f"10.0.0.{index + 1}", "gpus": count} for index, count in enumerate(gpus)]


def server(**values: Any) -> dict[str, Any]:
    """What is read from the command of a process that takes requests."""
    return {"host": "0.0.0.0", "served_model_name": ["MODEL"], **values}


def headless(**values: Any) -> dict[str, Any]:
    """What is read from the command of a process that only computes."""
    return {"headless": True, **values}


MEETING = {"master_addr": "10.0.0.1"}
"""--master-port is left out: 29501 is its default."""

REPORTING = {"data_parallel_address": "10.0.0.1", "data_parallel_rpc_port": 29550}


def replica(rank: int, nnodes: int, **values: Any) -> dict[str, Any]:
    """The flags of one node of a replica that spans nodes."""
    node_rank = {"node_rank": rank} if rank else {}
    return {**MEETING, "nnodes": nnodes, **node_rank, "distributed_executor_backend": "mp", **values}


def adapter(**values: Any) -> dict[str, Any]:
    """What is read from one of --lora-modules."""
    return {"config": "LoRAModulePath", "set": values}


def parallel(world: int, **values: Any) -> dict[str, Any]:
    """Fields of the parallel configuration, with those of one replica on one node as a base."""
    return {
        "world_size": world,
        "local_world_size": world,
        "nnodes": 1,
        "node_rank": 0,
        "data_parallel_size": 1,
        "data_parallel_size_local": 1,
        "data_parallel_rank": 0,
        "data_parallel_hybrid_lb": False,
        "data_parallel_external_lb": False,
        **values,
    }


CASES = (
    Case(
        name="one GPU",
        profile={},
        nodes=nodes(1),
        parsed=[[server()]],
        config=[[parallel(1)]],
    ),
    Case(
        name="eight GPUs, tensor parallel",
        profile={"tensor_parallel_size": 8, "served_model_name": ["a", "b"]},
        nodes=[{**nodes(8)[0], "http_port": 8080}],
        parsed=[[server(tensor_parallel_size=8, port=8080, served_model_name=["a", "b"])]],
        config=[[parallel(8)]],
    ),
    Case(
        name="data parallel on one node",
        profile={"tensor_parallel_size": 2, "data_parallel_size": 4},
        nodes=nodes(8),
        parsed=[[server(tensor_parallel_size=2, data_parallel_size=4)]],
        config=[[parallel(2, data_parallel_size=4, data_parallel_size_local=4)]],
    ),
    Case(
        name="two nodes, tensor and pipeline parallel",
        profile={"tensor_parallel_size": 8, "pipeline_parallel_size": 2},
        nodes=nodes(8, 8),
        parsed=[
            [server(**replica(0, 2), tensor_parallel_size=8, pipeline_parallel_size=2)],
            [headless(**replica(1, 2), tensor_parallel_size=8, pipeline_parallel_size=2)],
        ],
        config=[
            [parallel(16, local_world_size=8, nnodes=2)],
            [parallel(16, local_world_size=8, nnodes=2, node_rank=1)],
        ],
        first_release="0.11.1",
    ),
    Case(
        name="two nodes, tensor parallel over both",
        profile={"tensor_parallel_size": 16},
        nodes=nodes(8, 8),
        deployment={"ports": {"leader": 31000}},
        parsed=[
            [server(**replica(0, 2), tensor_parallel_size=16, master_port=31000)],
            [headless(**replica(1, 2), tensor_parallel_size=16, master_port=31000)],
        ],
        config=[
            [parallel(16, local_world_size=8, nnodes=2)],
            [parallel(16, local_world_size=8, nnodes=2, node_rank=1)],
        ],
        first_release="0.11.1",
    ),
    Case(
        name="two nodes with IPv6 addresses",
        profile={"tensor_parallel_size": 16},
        nodes=[
            {"address": "[fd00::1]", "gpus": 8, "http_host": "::"},
            {"address": "fd00::2", "gpus": 8},
        ],
        parsed=[
            [server(**replica(0, 2, master_addr="fd00::1"), tensor_parallel_size=16, host="::")],
            [headless(**replica(1, 2, master_addr="fd00::1"), tensor_parallel_size=16)],
        ],
        config=[
            [parallel(16, local_world_size=8, nnodes=2)],
            [parallel(16, local_world_size=8, nnodes=2, node_rank=1)],
        ],
        first_release="0.11.1",
    ),
    Case(
        name="two nodes whose addresses a scheduler decides",
        profile={"tensor_parallel_size": 16},
        nodes=[{"gpus": 8}, {"gpus": 8}],
        parsed=[
            [server(**replica(0, 2), tensor_parallel_size=16)],
            [headless(**replica(1, 2), tensor_parallel_size=16)],
        ],
        config=[
            [parallel(16, local_world_size=8, nnodes=2)],
            [parallel(16, local_world_size=8, nnodes=2, node_rank=1)],
        ],
        first_release="0.11.1",
    ),
    Case(
        name="data parallel over two nodes, experts spread",
        profile={"data_parallel_size": 16, "enable_expert_parallel": True},
        nodes=nodes(8, 8),
        model="qwen3_moe",
        parsed=[
            [
                server(
                    **REPORTING,
                    data_parallel_size=16,
                    data_parallel_size_local=8,
                    enable_expert_parallel=True,
                )
            ],
            [
                headless(
                    **REPORTING,
                    data_parallel_size=16,
                    data_parallel_size_local=8,
                    data_parallel_start_rank=8,
                    enable_expert_parallel=True,
                )
            ],
        ],
        config=[
            [parallel(1, data_parallel_size=16, data_parallel_size_local=8)],
            [parallel(1, data_parallel_size=16, data_parallel_size_local=8, data_parallel_rank=8)],
        ],
    ),
    Case(
        name="one replica a node, one server for all",
        profile={"tensor_parallel_size": 8, "data_parallel_size": 2},
        nodes=nodes(8, 8),
        parsed=[
            [server(**REPORTING, tensor_parallel_size=8, data_parallel_size=2, data_parallel_size_local=1)],
            [
                headless(
                    **REPORTING,
                    tensor_parallel_size=8,
                    data_parallel_size=2,
                    data_parallel_size_local=1,
                    data_parallel_start_rank=1,
                )
            ],
        ],
        config=[
            [parallel(8, data_parallel_size=2)],
            [parallel(8, data_parallel_size=2, data_parallel_rank=1)],
        ],
    ),
    Case(
        name="uneven nodes",
        profile={"data_parallel_size": 5},
        nodes=nodes(3, 2),
        parsed=[
            [server(**REPORTING, data_parallel_size=5, data_parallel_size_local=3)],
            [
                headless(
                    **REPORTING, data_parallel_size=5, data_parallel_size_local=2, data_parallel_start_rank=3
                )
            ],
        ],
        config=[
            [parallel(1, data_parallel_size=5, data_parallel_size_local=3)],
            [parallel(1, data_parallel_size=5, data_parallel_size_local=2, data_parallel_rank=3)],
        ],
    ),
    Case(
        name="a leader without GPUs",
        profile={"data_parallel_size": 8},
        nodes=nodes(0, 8),
        parsed=[
            [server(**REPORTING, data_parallel_size=8, data_parallel_size_local=0)],
            [
                headless(
                    **REPORTING, data_parallel_size=8, data_parallel_size_local=8, data_parallel_start_rank=0
                )
            ],
        ],
        config=[
            [parallel(1, data_parallel_size=8, data_parallel_size_local=0)],
            [parallel(1, data_parallel_size=8, data_parallel_size_local=8)],
        ],
    ),
    Case(
        name="hybrid load balancing over two nodes",
        profile={"data_parallel_size": 16, "data_parallel_mode": "hybrid", "enable_expert_parallel": True},
        nodes=nodes(8, 8),
        model="qwen3_moe",
        parsed=[
            [
                server(
                    **REPORTING,
                    data_parallel_size=16,
                    data_parallel_size_local=8,
                    data_parallel_start_rank=start,
                    data_parallel_hybrid_lb=True,
                    enable_expert_parallel=True,
                )
            ]
            for start in (0, 8)
        ],
        config=[
            [
                parallel(
                    1,
                    data_parallel_size=16,
                    data_parallel_size_local=8,
                    data_parallel_rank=start,
                    data_parallel_hybrid_lb=True,
                )
            ]
            for start in (0, 8)
        ],
        first_release="0.10.0",
    ),
    Case(
        name="hybrid load balancing with one replica a node is external",
        profile={
            "tensor_parallel_size": 8,
            "data_parallel_size": 2,
            "data_parallel_mode": "hybrid",
            "enable_expert_parallel": True,
        },
        nodes=nodes(8, 8),
        model="qwen3_moe",
        parsed=[
            [
                server(
                    **REPORTING,
                    tensor_parallel_size=8,
                    data_parallel_size=2,
                    data_parallel_size_local=1,
                    data_parallel_start_rank=start,
                    data_parallel_hybrid_lb=True,
                    enable_expert_parallel=True,
                )
            ]
            for start in (0, 1)
        ],
        config=[
            [parallel(8, data_parallel_size=2, data_parallel_rank=start, data_parallel_external_lb=True)]
            for start in (0, 1)
        ],
        first_release="0.10.0",
    ),
    Case(
        name="external load balancing, two servers a node",
        profile={
            "tensor_parallel_size": 4,
            "data_parallel_size": 4,
            "data_parallel_mode": "external",
            "enable_expert_parallel": True,
        },
        nodes=nodes(8, 8),
        model="qwen3_moe",
        parsed=[
            [
                server(
                    **REPORTING,
                    **({"port": 8001} if index else {}),
                    tensor_parallel_size=4,
                    data_parallel_size=4,
                    data_parallel_rank=2 * node + index,
                    data_parallel_external_lb=True,
                    enable_expert_parallel=True,
                )
                for index in (0, 1)
            ]
            for node in (0, 1)
        ],
        config=[
            [
                parallel(
                    4,
                    data_parallel_size=4,
                    data_parallel_rank=2 * node + index,
                    data_parallel_external_lb=True,
                )
                for index in (0, 1)
            ]
            for node in (0, 1)
        ],
        first_release="0.11.1",
    ),
    Case(
        name="replicas that span nodes, one server for all",
        profile={"tensor_parallel_size": 16, "data_parallel_size": 2},
        nodes=nodes(8, 8, 8, 8),
        parsed=[
            [
                (headless if rank else server)(
                    **replica(rank, 4), **REPORTING, tensor_parallel_size=16, data_parallel_size=2
                )
            ]
            for rank in range(4)
        ],
        config=[
            [
                parallel(
                    16,
                    local_world_size=8,
                    nnodes=4,
                    node_rank=rank,
                    data_parallel_size=2,
                    data_parallel_rank=rank // 2,
                )
            ]
            for rank in range(4)
        ],
        first_release="0.11.1",
    ),
    Case(
        name="replicas that span nodes, a server each",
        profile={
            "tensor_parallel_size": 16,
            "data_parallel_size": 2,
            "data_parallel_mode": "external",
            "enable_expert_parallel": True,
        },
        nodes=nodes(8, 8, 8, 8),
        model="qwen3_moe",
        parsed=[
            [
                (headless if rank % 2 else server)(
                    **replica(rank, 4),
                    **REPORTING,
                    tensor_parallel_size=16,
                    data_parallel_size=2,
                    data_parallel_external_lb=True,
                    enable_expert_parallel=True,
                )
            ]
            for rank in range(4)
        ],
        config=[
            [
                parallel(
                    16,
                    local_world_size=8,
                    nnodes=4,
                    node_rank=rank,
                    data_parallel_size=2,
                    data_parallel_rank=rank // 2,
                    data_parallel_external_lb=True,
                )
            ]
            for rank in range(4)
        ],
        first_release="0.11.1",
    ),
    Case(
        name="two nodes by Ray",
        profile={"tensor_parallel_size": 8, "pipeline_parallel_size": 2},
        nodes=nodes(8, 8),
        deployment={"launch_mode": "ray"},
        parsed=[
            [server(tensor_parallel_size=8, pipeline_parallel_size=2, distributed_executor_backend="ray")],
            [],
        ],
        config=[[parallel(16)], []],
    ),
    Case(
        name="data parallel by Ray",
        profile={"tensor_parallel_size": 8, "data_parallel_size": 2},
        nodes=nodes(8, 8),
        deployment={"launch_mode": "ray", "ports": {"data_parallel_rpc": 31001}},
        parsed=[
            [
                server(
                    tensor_parallel_size=8,
                    data_parallel_size=2,
                    data_parallel_size_local=1,
                    data_parallel_address="10.0.0.1",
                    data_parallel_rpc_port=31001,
                    data_parallel_backend="ray",
                    distributed_executor_backend="ray",
                )
            ],
            [],
        ],
        config=[[parallel(8, data_parallel_size=2)], []],
        first_release="0.9.1",
    ),
    Case(
        name="adapters at start",
        profile={
            "lora": {
                "adapters": [
                    {"name": "sql", "path": "/adapters/sql", "rank": 24},
                    {"name": "chat", "path": "/adapters/a,b=c", "rank": 8, "base_model_name": "base"},
                ],
                "max_loras": 2,
            }
        },
        nodes=nodes(1),
        parsed=[
            [
                server(
                    enable_lora=True,
                    max_lora_rank=32,
                    max_loras=2,
                    lora_modules=[
                        adapter(name="sql", path="/adapters/sql"),
                        adapter(name="chat", path="/adapters/a,b=c", base_model_name="base"),
                    ],
                )
            ]
        ],
        config=[[parallel(1)]],
    ),
    Case(
        name="adapters on demand, two replicas",
        profile={"data_parallel_size": 2, "lora": {"on_demand": True, "max_loras": 4}},
        nodes=nodes(2),
        parsed=[[server(data_parallel_size=2, enable_lora=True, max_loras=4, api_server_count=1)]],
        config=[[parallel(1, data_parallel_size=2, data_parallel_size_local=2)]],
        first_release="0.15.0",
    ),
    Case(
        name="KV events of ranks on two nodes",
        profile={
            "data_parallel_size": 4,
            "kv_events": {"port": 5700, "replay_port": 5800, "topic": "kv", "buffer_steps": 100},
        },
        nodes=nodes(2, 2),
        parsed=[
            [
                (headless if node else server)(
                    **REPORTING,
                    **({"data_parallel_start_rank": 2} if node else {}),
                    data_parallel_size=4,
                    data_parallel_size_local=2,
                    kv_events_config={
                        "config": "KVEventsConfig",
                        "set": {
                            "enable_kv_cache_events": True,
                            "publisher": "zmq",
                            "endpoint": "tcp://*:5700",
                            "replay_endpoint": "tcp://*:5800",
                            "topic": "kv",
                            "buffer_steps": 100,
                        },
                    },
                    prefix_caching_hash_algo="sha256_cbor",
                )
            ]
            for node in (0, 1)
        ],
        config=[
            [parallel(1, data_parallel_size=4, data_parallel_size_local=2, data_parallel_rank=2 * node)]
            for node in (0, 1)
        ],
        first_release="0.10.2",
    ),
    Case(
        name="KV events sent to a subscriber",
        profile={"kv_events": {"connect": "router.cluster", "high_water_mark": 7, "max_queue_size": 9}},
        nodes=nodes(1),
        parsed=[
            [
                server(
                    kv_events_config={
                        "config": "KVEventsConfig",
                        "set": {
                            "enable_kv_cache_events": True,
                            "publisher": "zmq",
                            "endpoint": "tcp://router.cluster:5557",
                            "hwm": 7,
                            "max_queue_size": 9,
                        },
                    },
                    prefix_caching_hash_algo="sha256_cbor",
                )
            ]
        ],
        config=[[parallel(1)]],
        first_release="0.10.2",
    ),
    Case(
        name="the operator's own arguments",
        profile={
            "tensor_parallel_size": 2,
            "args": ["-tp=4", "--max_model_len", "4k", "--served-model-name", "x", "y", "--port=9000"],
        },
        nodes=nodes(4),
        parsed=[
            [server(tensor_parallel_size=4, max_model_len=4000, served_model_name=["x", "y"], port=9000)]
        ],
        config=[[parallel(4)]],
    ),
    Case(
        name="the operator's server arguments on two nodes",
        profile={
            "tensor_parallel_size": 16,
            "args": ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enforce-eager"],
        },
        nodes=nodes(8, 8),
        parsed=[
            [
                server(
                    **replica(0, 2),
                    tensor_parallel_size=16,
                    enable_auto_tool_choice=True,
                    tool_call_parser="hermes",
                    enforce_eager=True,
                )
            ],
            [headless(**replica(1, 2), tensor_parallel_size=16, enforce_eager=True)],
        ],
        config=[
            [parallel(16, local_world_size=8, nnodes=2)],
            [parallel(16, local_world_size=8, nnodes=2, node_rank=1)],
        ],
        first_release="0.11.1",
    ),
    Case(
        name="decode context parallel",
        profile={"tensor_parallel_size": 16, "decode_context_parallel_size": 2},
        nodes=nodes(16),
        parsed=[[server(tensor_parallel_size=16, decode_context_parallel_size=2)]],
        config=[[parallel(16)]],
        first_release="0.10.2",
    ),
    Case(
        name="prefill context parallel",
        profile={"tensor_parallel_size": 4, "prefill_context_parallel_size": 2},
        nodes=nodes(8),
        parsed=[[server(tensor_parallel_size=4, prefill_context_parallel_size=2)]],
        refused="does not support",
        first_release="0.12.0",
    ),
)
