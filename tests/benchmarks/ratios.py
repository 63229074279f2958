"""Measure what README's table of benchmarks says, and print that table.

    python tests/benchmarks/ratios.py [--peer CHECKOUT [--peer-python PYTHON]]

Every figure is a ratio of CPU times taken in one run, in turn, so that a slow or busy machine slows
both sides. `--peer` is a checkout of NVIDIA/srt-slurm, whose dependencies PYTHON has.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 15


def reported(command: Sequence[str]) -> float:
    """The figure that a program prints."""
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def cpu_seconds(command: Sequence[str]) -> float:
    """The CPU time of a whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ratio(one: Callable[[], float], other: Callable[[], float], rounds: int = ROUNDS) -> float:
    """The median of ratios, one and the other measured in turn."""
    return statistics.median(one() / other() for _ in range(rounds))


def python(code: str) -> list[str]:
    """The command that runs this code."""
    return [sys.executable, "-c", code]


def shards(deployments: int) -> list[str]:
    """The command that builds so many deployments."""
    return [sys.executable, str(HERE / "shards.py"), str(deployments)]


def rows(peer: str | None, peer_python: str) -> list[tuple[str, str, float, str]]:
    """What is measured: (what, against what, ratio, what it may be)."""
    found = [
        (
            "a shard of 5,000 deployments",
            "a shard of 500",
            ratio(lambda: reported(shards(5000)), lambda: reported(shards(500)), 5),
            "about 1",
        ),
        (
            "`import enginelaunch`",
            "`import pydantic`",
            ratio(
                lambda: cpu_seconds(python("import enginelaunch")),
                lambda: cpu_seconds(python("import pydantic")),
            ),
            "at most 1.5",
        ),
        (
            "`from enginelaunch import Deployment, VLLM, plan`",
            "a file with 16 pydantic models",
            ratio(
                lambda: cpu_seconds(python("from enginelaunch import Deployment, VLLM, plan")),
                lambda: cpu_seconds([sys.executable, str(HERE / "sixteen_models.py")]),
            ),
            "at most 1.5",
        ),
    ]
    if peer:
        other = [peer_python, str(HERE / "peer_shards.py"), peer, "5000"]
        found.append(
            (
                "a shard of 5,000 deployments",
                "the same by NVIDIA/srt-slurm",
                ratio(lambda: reported(shards(5000)), lambda: reported(other), 7),
                "at most 1",
            )
        )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer", help="a checkout of NVIDIA/srt-slurm")
    parser.add_argument("--peer-python", default=sys.executable, help="a python with its dependencies")
    options = parser.parse_args()
    print("| measured | against | ratio | may be |\n| --- | --- | --- | --- |")
    for what, against, found, allowed in rows(options.peer, options.peer_python):
        print(f"| {what} | {against} | {found:.2f} | {allowed} |", flush=True)


if __name__ == "__main__":
    main()
