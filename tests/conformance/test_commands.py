"""The commands of every shape mean to the real vLLM what the deployment says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from matrix import CASES, Case
from packaging.version import Version
from real_vllm import MODELS, RELEASES, RealVLLM

from enginelaunch import Command, Deployment, plan

CONFIG_RELEASE = "0.32.0"

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")


def serve_commands(case: Case, release: str) -> list[list[Command]]:
    """The `vllm serve` commands of each node, with a scheduler's decisions filled in."""
    deployment = Deployment.model_validate(
        {
            "engine": "vllm",
            "version": release,
            "profile": {"model": str(MODELS / case.model), **case.profile},
            "nodes": case.nodes,
            **case.deployment,
        }
    )
    return [
        [
            command.resolve(
                leader_addr=ADDRESSES[0], node_addr=ADDRESSES[node.node_rank], node_rank=node.node_rank
            )
            for command in node.commands
            if command.path == "vllm"
        ]
        for node in plan(deployment).nodes
    ]


def with_model(values: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """The values with the model's path where they stand for it."""
    model = str(MODELS / case.model)
    names = values.get("served_model_name")
    return {
        **values,
        "model_tag": model,
        **({"served_model_name": [model if n == "MODEL" else n for n in names]} if names else {}),
    }


def without_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values read, where releases differ in which defaults of an adapter they tell apart."""
    modules = [
        {**module, "set": {name: value for name, value in module["set"].items() if value}}
        for module in values.get("lora_modules") or []
    ]
    return {**values, **({"lora_modules": modules} if modules else {})}


def shapes(release: str) -> list[Case]:
    """The cases that a release has."""
    return [case for case in CASES if Version(case.first_release) <= Version(release)]


@pytest.mark.parametrize("release", RELEASES)
def test_every_command_is_read_as_the_deployment_says(real_vllm: RealVLLM, release: str) -> None:
    asked = [
        (case, index, values, command)
        for case in shapes(release)
        for index, (expected, commands) in enumerate(
            zip(case.parsed, serve_commands(case, release), strict=True)
        )
        for values, command in zip(expected, commands, strict=True)
    ]
    verdicts = real_vllm.parse(release, [[str(item) for item in command.argv] for *_, command in asked])
    read = [
        (case.name, index, verdict.why, without_defaults(verdict.values))
        for (case, index, *_), verdict in zip(asked, verdicts, strict=True)
    ]
    assert read == [(case.name, index, None, with_model(values, case)) for case, index, values, _ in asked]


def test_every_command_configures_the_engine_as_the_deployment_says(real_vllm: RealVLLM) -> None:
    asked = [
        (case, index, expected, command)
        for case in CASES
        if not case.refused
        for index, (config, commands) in enumerate(
            zip(case.config, serve_commands(case, CONFIG_RELEASE), strict=True)
        )
        for expected, command in zip(config, commands, strict=True)
    ]
    verdicts = real_vllm.engine_config(
        CONFIG_RELEASE,
        [([str(i) for i in c.argv], {n: str(v) for n, v in c.env.items()}) for *_, c in asked],
    )
    configured = [
        (case.name, index, verdict.why, {name: verdict.values.get(name) for name in expected})
        for (case, index, expected, _), verdict in zip(asked, verdicts, strict=True)
    ]
    assert configured == [(case.name, index, None, dict(expected)) for case, index, expected, _ in asked]


def test_what_the_cpu_build_refuses_is_refused_for_the_stated_reason(real_vllm: RealVLLM) -> None:
    refused = [case for case in CASES if case.refused]
    commands = [serve_commands(case, CONFIG_RELEASE)[0][0] for case in refused]
    verdicts = real_vllm.engine_config(
        CONFIG_RELEASE, [([str(item) for item in command.argv], {}) for command in commands]
    )
    assert refused
    for case, verdict in zip(refused, verdicts, strict=True):
        assert not verdict.accepted
        assert case.refused in (verdict.why or "")


def test_a_command_that_says_something_else_is_noticed(real_vllm: RealVLLM) -> None:
    case = CASES[1]
    ((command,),) = serve_commands(case, CONFIG_RELEASE)
    argv = [str(item) for item in command.argv]
    argv[argv.index("--tensor-parallel-size") + 1] = "4"
    (verdict,) = real_vllm.parse(CONFIG_RELEASE, [argv])
    assert verdict.accepted
    assert verdict.values != with_model(case.parsed[0][0], case)


def test_ray_reads_the_commands_of_head_and_joiner(real_vllm: RealVLLM) -> None:
    ray = {
        "node_manager": 6380,
        "object_manager": 6381,
        "min_worker": 10100,
        "max_worker": 10199,
        "client_server": 10002,
        "metrics_export": 6382,
        "autoscaler_metrics": 6383,
        "dashboard_agent_grpc": 6384,
        "dashboard_agent_listen": 6385,
        "runtime_env_agent": 6386,
    }
    deployment = Deployment.model_validate(
        {
            "engine": "vllm",
            "version": CONFIG_RELEASE,
            "launch_mode": "ray",
            "profile": {"model": "m", "tensor_parallel_size": 16},
            "nodes": [{"address": "fd00::1", "gpus": 8}, {"address": "fd00::2", "gpus": 8}],
            "ports": {"leader": 6390, "ray": ray},
        }
    )
    head, join = (node.commands[0] for node in plan(deployment).nodes)
    pinned = {
        "node_manager_port": 6380,
        "object_manager_port": 6381,
        "min_worker_port": 10100,
        "max_worker_port": 10199,
        "metrics_export_port": 6382,
        "dashboard_agent_grpc_port": 6384,
        "dashboard_agent_listen_port": 6385,
        "runtime_env_agent_port": 6386,
    }
    verdicts = real_vllm.ray_start([[str(item) for item in command.argv] for command in (head, join)])
    assert [(verdict.why, verdict.values) for verdict in verdicts] == [
        (
            None,
            {
                "head": True,
                "block": True,
                "port": 6390,
                "node_ip_address": "fd00::1",
                "include_dashboard": False,
                "num_gpus": 8,
                "ray_client_server_port": 10002,
                **pinned,
            },
        ),
        (
            None,
            {
                "block": True,
                "address": "[fd00::1]:6390",
                "node_ip_address": "fd00::2",
                "num_gpus": 8,
                **pinned,
            },
        ),
    ]
    assert dict(head.env)["AUTOSCALER_METRIC_PORT"] == "6383"
