"""What to serve and where, turned into the commands that launch an LLM inference engine.

    from enginelaunch import Deployment, plan

    for node in plan(Deployment.from_yaml("deployment.yaml")).nodes:
        for command in node.commands:
            print(node.address, command.argv)

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginelaunch.command import Command
    from enginelaunch.deployment import Deployment, Node, NodePlan, Plan, plan
    from enginelaunch.engine import Engine
    from enginelaunch.engines.vllm import VLLM
    from enginelaunch.findings import Finding, LaunchError, Report
    from enginelaunch.profile import KVEvents, LoRA, LoRAAdapter, Profile
    from enginelaunch.shard import GPU, ComputeCapability, ShardSpec

__version__ = "0.1.0"

_HOMES = {
    "Command": "command",
    "ComputeCapability": "shard",
    "Deployment": "deployment",
    "Engine": "engine",
    "Finding": "findings",
    "GPU": "shard",
    "KVEvents": "profile",
    "LaunchError": "findings",
    "LoRA": "profile",
    "LoRAAdapter": "profile",
    "Node": "deployment",
    "NodePlan": "deployment",
    "Plan": "deployment",
    "Profile": "profile",
    "Report": "findings",
    "ShardSpec": "shard",
    "VLLM": "engines.vllm",
    "plan": "deployment",
}

__all__ = [
    "GPU",
    "VLLM",
    "Command",
    "ComputeCapability",
    "Deployment",
    "Engine",
    "Finding",
    "KVEvents",
    "LaunchError",
    "LoRA",
    "LoRAAdapter",
    "Node",
    "NodePlan",
    "Plan",
    "Profile",
    "Report",
    "ShardSpec",
    "plan",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - keeps `import enginelaunch` light

    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted({*globals(), *_HOMES})
