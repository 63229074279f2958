"""The deployment files that ship with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import enginelaunch.examples
from enginelaunch import Deployment, LaunchError, Plan, examples, plan

NAMES = (
    "data-parallel-experts",
    "kv-events",
    "lora",
    "one-gpu",
    "scheduler-decides",
    "two-nodes",
    "two-nodes-ray",
)


def planned(name: str) -> Plan:
    return plan(Deployment.from_yaml_text(examples.text(name), name=name))


def test_these_examples_are_there() -> None:
    assert examples.names() == NAMES


def test_each_example_says_in_its_first_line_what_it_is_about() -> None:
    assert {name: examples.says(name) for name in examples.names()} == {
        "data-parallel-experts": "A mixture of experts over two nodes, data parallel.",
        "kv-events": "Four replicas that publish KV-cache events for a router.",
        "lora": "An 8B model with two LoRA adapters.",
        "one-gpu": "An 8B model on one GPU.",
        "scheduler-decides": "Two nodes whose addresses a scheduler decides.",
        "two-nodes": "A 70B model over two nodes, tensor and pipeline parallel.",
        "two-nodes-ray": "A 70B model over two nodes of a Ray cluster.",
    }


def test_the_text_of_an_example_is_that_of_its_file() -> None:
    folder = Path(enginelaunch.examples.__file__).parent
    for name in examples.names():
        assert examples.text(name) == (folder / f"{name}.yaml").read_text(encoding="utf-8")
        assert examples.text(f"{name}.yaml") == examples.text(name)


@pytest.mark.parametrize("name", NAMES)
def test_each_example_can_be_planned_and_states_its_version(name: str) -> None:
    made = planned(name)
    assert (made.engine, made.version) == ("vllm", "0.32.0")
    assert all(node.commands for node in made.nodes)


@pytest.mark.parametrize("name", NAMES)
def test_no_example_has_anything_to_be_warned_of(name: str) -> None:
    assert [finding for finding in planned(name).findings if finding.severity != "info"] == []


def test_what_each_example_starts() -> None:
    started = {
        name: [[command.name for command in node.commands] for node in planned(name).nodes] for name in NAMES
    }
    assert started == {
        "data-parallel-experts": [["server"], ["worker"]],
        "kv-events": [["server-0", "server-1", "server-2", "server-3"]],
        "lora": [["server"]],
        "one-gpu": [["server"]],
        "scheduler-decides": [["server"], ["worker"]],
        "two-nodes": [["server"], ["worker"]],
        "two-nodes-ray": [["ray-head", "server"], ["ray-join"]],
    }


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("two-node", f"did you mean two-nodes? The examples are {', '.join(NAMES)}"),
        ("lorra.yaml", f"did you mean lora? The examples are {', '.join(NAMES)}"),
        ("zzz", f"the examples are {', '.join(NAMES)}"),
        ("../examples/lora", f"the examples are {', '.join(NAMES)}"),
        ("", f"the examples are {', '.join(NAMES)}"),
    ],
)
def test_an_example_that_is_not_there_is_an_error_that_names_the_nearest_and_all(
    name: str, hint: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        examples.text(name)
    (finding,) = caught.value.report.findings
    assert (finding.code, finding.message, finding.hint) == (
        "unknown-example",
        f"{name!r} is no example",
        hint,
    )
