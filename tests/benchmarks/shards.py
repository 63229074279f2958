"""Build two-node deployments that share one profile, and print how long a shard takes.

Each line is the CPU time of one shard in microseconds: its spec made, its argv and environment built.
"""

from __future__ import annotations

import sys
import time

from enginelaunch import VLLM, Profile, ShardSpec


def build(deployments: int, engine: VLLM, profile: Profile) -> int:
    """Build so many deployments of two nodes each; return how many argv items they have."""
    items = 0
    for number in range(deployments):
        network = f"10.{number // 256}.{number % 256}"
        leader = f"{network}.1"
        for rank, own in enumerate((leader, f"{network}.2")):
            shard = ShardSpec(
                profile=profile,
                nnodes=2,
                node_rank=rank,
                leader_addr=leader,
                node_addr=own,
                gpus=8,
                interface="eth0",
            )
            for command in engine.commands(shard):
                items += len(command.argv) + len(command.env)
    return items


def main(deployments: int) -> None:
    """Print the time of one shard."""
    engine = VLLM(version="0.32.0")
    profile = Profile(
        model="/models/llama",
        tensor_parallel_size=8,
        pipeline_parallel_size=2,
        args=("--max-model-len", "32768"),
    )
    build(10, engine, profile)
    started = time.process_time()
    build(deployments, engine, profile)
    print((time.process_time() - started) / (2 * deployments) * 1e6)


if __name__ == "__main__":
    main(int(sys.argv[1]))
