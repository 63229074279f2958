"""LoRA as arguments and environment of `vllm serve`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginelaunch.argv import canonical_json
from enginelaunch.engines.vllm.arguments import OperatorArguments
from enginelaunch.engines.vllm.layout import Sizes
from enginelaunch.engines.vllm.releases import at_least
from enginelaunch.findings import Finding
from enginelaunch.profile import LoRA, LoRAAdapter, Profile

MAX_LORA_RANKS = (
    ("0.8.5", (8, 16, 32, 64, 128, 256, 320, 512)),
    ("0.11.1", (1, 8, 16, 32, 64, 128, 256, 320, 512)),
)
"""What --max-lora-rank takes, from which release on: vllm/config/lora.py (earlier vllm/config.py)."""

DEFAULT_MAX_LORA_RANK = 16
"""What --max-lora-rank is when it is left out: vllm/config/lora.py."""


class LoRAArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What LoRA adds to a command.

    Attributes:
        engine: arguments of every process of the engine.
        server: arguments of a process that takes requests.
        server_env: environment of a process that takes requests.
        findings: what is wrong, or should be known.
    """

    engine: tuple[tuple[str, ...], ...] = ()
    server: tuple[tuple[str, ...], ...] = ()
    server_env: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()


def lora_arguments(profile: Profile, operator: OperatorArguments, release: str) -> LoRAArguments:
    """The arguments and environment for a profile's LoRA adapters."""
    lora = profile.lora
    if lora is None:
        return LoRAArguments()
    rank, findings = _max_rank(lora, release)
    if "--max-lora-rank" in operator.names:
        findings = _given_rank_findings(lora, operator)
    engine: list[tuple[str, ...]] = [("--enable-lora",)]
    if rank is not None:
        engine.append(("--max-lora-rank", str(rank)))
    if lora.max_loras is not None:
        engine.append(("--max-loras", str(lora.max_loras)))
    findings.extend(_name_findings(operator.value("--served-model-name", profile.served_model_names), lora))
    if not lora.on_demand:
        modules = ("--lora-modules", *(_module(adapter) for adapter in lora.adapters))
        return LoRAArguments(engine=tuple(engine), server=(modules,), findings=tuple(findings))
    findings.extend(_api_server_findings(operator))
    return LoRAArguments(
        engine=tuple(engine),
        server=_one_api_server(profile, operator.sizes, release),
        server_env=(("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1"),),
        findings=tuple(findings),
    )


def _module(adapter: LoRAAdapter) -> str:
    plain = f"{adapter.name}={adapter.path}"
    # A comma makes vLLM read JSON, up to 0.29 a second '=' ends it, and a dash in front reads as a flag.
    is_plain = "," not in plain and plain.count("=") == 1 and not plain.startswith("-")
    if adapter.base_model_name is None and is_plain:
        return plain
    module = {"name": adapter.name, "path": adapter.path}
    if adapter.base_model_name is not None:
        module["base_model_name"] = adapter.base_model_name
    return canonical_json(module)


def _max_rank(lora: LoRA, release: str) -> tuple[int | None, list[Finding]]:
    known = [adapter.rank for adapter in lora.adapters if adapter.rank is not None]
    unknown = [adapter.name for adapter in lora.adapters if adapter.rank is None]
    findings: list[Finding] = []
    if unknown or (lora.on_demand and not known):
        whose = f"of {', '.join(unknown)}" if unknown else "of adapters that come later"
        findings.append(
            Finding(
                severity="info",
                code="lora-rank-unknown",
                message=f"the rank {whose} is not known; "
                f"one above {max([DEFAULT_MAX_LORA_RANK, *known])} fails after the model has loaded",
                hint="state adapters[].rank or --max-lora-rank in args, "
                "or read the adapters (--read-adapters)",
                where="profile.lora.adapters",
            )
        )
    if not known:
        return None, findings
    allowed = next(ranks for since, ranks in reversed(MAX_LORA_RANKS) if at_least(release, since))
    # Adapters of unknown rank still get at least what they would have had.
    wanted = max([*known, *([DEFAULT_MAX_LORA_RANK] if unknown else [])])
    fitting = next((rank for rank in allowed if rank >= wanted), None)
    if fitting is None:
        findings.append(
            Finding(
                severity="error",
                code="lora-rank-too-large",
                message=f"rank {wanted} is above {allowed[-1]}, the largest that vLLM {release} takes",
                where="profile.lora.adapters",
            )
        )
    return fitting, findings


def _given_rank_findings(lora: LoRA, operator: OperatorArguments) -> list[Finding]:
    given = operator.value("--max-lora-rank")
    return [
        Finding(
            severity="error",
            code="lora-rank-too-large",
            message=f"adapter {adapter.name!r} has rank {adapter.rank}, above --max-lora-rank {given} "
            "in args; vLLM ends with that after the model has loaded",
            hint="leave --max-lora-rank out, or raise it",
            where=f"profile.args[{operator.arguments.of('--max-lora-rank')[-1].start}]",
        )
        for adapter in lora.adapters
        if isinstance(given, int) and adapter.rank is not None and adapter.rank > given
    ]


def _name_findings(served_names: Sequence[str], lora: LoRA) -> list[Finding]:
    return [
        Finding(
            severity="error",
            code="lora-name-taken",
            message=f"adapter {adapter.name!r} has the name of the base model; "
            "vLLM ends with that after the model has loaded",
            hint="give the adapter another name",
            where="profile.lora.adapters",
        )
        for adapter in lora.adapters
        if adapter.name in served_names
    ]


def _api_server_findings(operator: OperatorArguments) -> list[Finding]:
    count = operator.value("--api-server-count", 1)
    if count <= 1:
        return []
    return [
        Finding(
            severity="error",
            code="lora-api-servers",
            message=f"--api-server-count {count}: vLLM refuses adapters on demand "
            "with more than one API server",
            hint="leave it out",
            where=f"profile.args[{operator.arguments.of('--api-server-count')[-1].start}]",
        )
    ]


def _one_api_server(profile: Profile, sizes: Sizes, release: str) -> tuple[tuple[str, ...], ...]:
    # From 0.15 on there are as many API servers as data-parallel ranks, and more than one refuses
    # adapters at run time. With external load balancing there is one each.
    several = sizes.data > 1 and profile.data_parallel_mode != "external" and at_least(release, "0.15.0")
    return (("--api-server-count", "1"),) if several else ()
