"""The launch commands that the vLLM project publishes, put to the parser of vLLM 0.32.0."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from real_vllm import RealVLLM, Verdict

COMMANDS = Path(__file__).with_name("data") / "published_commands.jsonl.gz"

# The recorded messages were cut.
RECORDED_LENGTH = 240


@pytest.fixture(scope="module")
def published() -> list[dict[str, Any]]:
    """Return the published commands with the verdicts that were recorded for them."""
    with gzip.open(COMMANDS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def as_recorded(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict in the words of the recorded ones."""
    if verdict.accepted:
        return {"verdict": "accepted", "non_default": verdict.values}
    return {"verdict": "rejected", "why": str(verdict.why)[:RECORDED_LENGTH]}


def test_the_recorded_verdicts_are_of_both_kinds(published: list[dict[str, Any]]) -> None:
    verdicts = [command["verdict"] for command in published]
    assert (verdicts.count("accepted"), verdicts.count("rejected"), len(verdicts)) == (1027, 45, 1072)


def test_the_real_parser_repeats_every_recorded_verdict(
    real_vllm: RealVLLM, published: list[dict[str, Any]]
) -> None:
    verdicts = real_vllm.parse("0.32.0", [command["argv"] for command in published])
    differing = [
        {"command": command, "now": now}
        for command, now in zip(published, map(as_recorded, verdicts), strict=True)
        if now != {key: command[key] for key in now if key in command}
    ]
    assert not differing, f"{len(differing)} differ, the first: {json.dumps(differing[0], indent=1)}"
