"""How long building takes: `pytest tests/benchmarks`. Nothing here passes or fails by time."""

from __future__ import annotations

from typing import Any

from enginelaunch import VLLM, Deployment, Profile, ShardSpec, plan
from enginelaunch.engines.catalogue import Catalogue

PROFILE = Profile(model="m", tensor_parallel_size=8, pipeline_parallel_size=2)


def shard(rank: int = 1) -> ShardSpec:
    """One node of two."""
    return ShardSpec(
        profile=PROFILE, nnodes=2, node_rank=rank, leader_addr="10.0.0.1", node_addr="10.0.0.2", gpus=8
    )


def test_spec_of_a_shard(benchmark: Any) -> None:
    assert benchmark(shard).node_addr == "10.0.0.2"


def test_commands_of_a_shard(benchmark: Any) -> None:
    (command,) = benchmark(VLLM(version="0.32.0").commands, shard())
    assert command.role == "worker"


def test_plan_of_100_nodes(benchmark: Any) -> None:
    deployment = Deployment(
        engine="vllm",
        version="0.32.0",
        profile=Profile(model="m", data_parallel_size=800),
        nodes=[{"address": f"10.0.{i // 250}.{i % 250 + 1}", "gpus": 8} for i in range(100)],
    )
    assert len(benchmark(plan, deployment).nodes) == 100


def test_flags_of_a_release(benchmark: Any) -> None:
    def load() -> int:
        Catalogue.load.cache_clear()  # type: ignore[attr-defined]
        return len(Catalogue.load("vllm").flags("0.32.0"))

    assert benchmark(load) > 200
