"""Deployments in few words, and what their plans come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from enginelaunch import Command, Deployment, Finding, LaunchError, Plan, plan
from enginelaunch.command import Text
from enginelaunch.engine import Engine

RELEASE = "0.32.0"

Argv = tuple[Text, ...]


class Started(NamedTuple):
    """A command of a plan: on which node, what it is called, its arguments and its environment."""

    node: int
    name: str
    argv: Argv
    env: dict[str, Text]


def words(text: str) -> tuple[str, ...]:
    """The words of a text; an item without spaces each."""
    return tuple(text.split())


def node(rank: int, gpus: Any = None, **more: Any) -> dict[str, Any]:
    """A node whose address is 10.0.0.1 for rank 0, 10.0.0.2 for rank 1, and so on."""
    stated = {} if gpus is None else {"gpus": gpus}
    return {"address": f"10.0.0.{rank + 1}", **stated, **more}


def nodes(*gpus: Any, **more: Any) -> list[dict[str, Any]]:
    """Nodes with these GPUs each."""
    return [node(rank, each, **more) for rank, each in enumerate(gpus)]


def deployment(
    profile: Mapping[str, Any] | None = None,
    machines: Sequence[Mapping[str, Any]] = ({},),
    version: str | None = RELEASE,
    **keys: Any,
) -> Deployment:
    """A deployment of the model `m`, on one node of which nothing is said unless nodes are given."""
    return Deployment.model_validate(
        {
            "engine": "vllm",
            "version": version,
            "profile": {"model": "m", **(profile or {})},
            "nodes": list(machines),
            **keys,
        }
    )


def planned(
    profile: Mapping[str, Any] | None = None,
    machines: Sequence[Mapping[str, Any]] = ({},),
    version: str | None = RELEASE,
    engine: Engine | None = None,
    **keys: Any,
) -> Plan:
    """The plan of such a deployment."""
    return plan(deployment(profile, machines, version, **keys), engine)


def commands(*args: Any, **keys: Any) -> list[list[Command]]:
    """The commands of each node of such a deployment."""
    return [list(machine.commands) for machine in planned(*args, **keys).nodes]


def only_command(*args: Any, **keys: Any) -> Command:
    """The command of such a deployment, where there is one."""
    ((command,),) = commands(*args, **keys)
    return command


def started(*args: Any, **keys: Any) -> list[Started]:
    """All commands of such a deployment, as far as most tests are concerned."""
    return [
        Started(machine.node_rank, command.name, command.argv, dict(command.env))
        for machine in planned(*args, **keys).nodes
        for command in machine.commands
    ]


def found(*args: Any, **keys: Any) -> tuple[Finding, ...]:
    """What there is to say about such a deployment, which can be launched."""
    return planned(*args, **keys).findings


def refused(*args: Any, **keys: Any) -> tuple[Finding, ...]:
    """The errors of such a deployment, which cannot be launched."""
    with pytest.raises(LaunchError) as caught:
        planned(*args, **keys)
    return caught.value.report.errors


def error(code: str, where: str, message: str, hint: str = "") -> Finding:
    """A finding that is an error."""
    return Finding(severity="error", code=code, message=message, hint=hint, where=where)


def warning(code: str, where: str, message: str, hint: str = "") -> Finding:
    """A finding that is a warning."""
    return Finding(severity="warning", code=code, message=message, hint=hint, where=where)


def info(code: str, where: str, message: str, hint: str = "") -> Finding:
    """A finding that is worth knowing."""
    return Finding(severity="info", code=code, message=message, hint=hint, where=where)
