"""What all ranks of a profile share, made once per profile and release."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec

from enginelaunch.argv import FlagTable, Override, overrides
from enginelaunch.command import SecretReference, Text
from enginelaunch.engines.catalogue import Catalogue
from enginelaunch.engines.vllm.arguments import OperatorArguments, is_refused, read_operator_arguments
from enginelaunch.engines.vllm.flag_table import serve_flags
from enginelaunch.engines.vllm.kv_events import KVEventArguments, kv_event_arguments
from enginelaunch.engines.vllm.lora import LoRAArguments, lora_arguments
from enginelaunch.engines.vllm.releases import at_least
from enginelaunch.findings import Finding
from enginelaunch.profile import Profile

BuiltArgument = tuple[Text, ...]
"""A flag's long name followed by its values."""

_HINTS = dict.fromkeys(
    ("--nnodes", "--node-rank", "--master-addr", "--master-port"),
    "use launch_mode: ray, or replicas that fit into a node",
)
"""What to do instead, where an older release lacks a flag."""


class PreparedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile, read once for a release.

    It does not hold the profile, whose life decides how long it is remembered.

    Attributes:
        model: the model.
        release: the release of the catalogue.
        table: the release's flags.
        operator: the operator's arguments, read.
        engine: built arguments of every process.
        server: built arguments of a process that takes requests, besides those.
        lora: what LoRA adds.
        kv_events: what KV events add.
        env: the profile's plain variables.
        secret_env: the profile's secret variables.
        findings: what there is to say about the profile, whatever the node.
    """

    model: str
    release: str
    table: FlagTable
    operator: OperatorArguments
    engine: tuple[BuiltArgument, ...]
    server: tuple[BuiltArgument, ...]
    lora: LoRAArguments
    kv_events: KVEventArguments
    env: dict[str, str]
    secret_env: dict[str, SecretReference]
    findings: tuple[Finding, ...]

    def items(self, arguments: Iterable[BuiltArgument]) -> list[Text]:
        """Built arguments as argv items, without those that the operator replaces."""
        replaced = self.operator.names
        return [item for argument in arguments if argument[0] not in replaced for item in argument]

    def argument_findings(self, arguments: Sequence[BuiltArgument]) -> list[Finding]:
        """Which built arguments the operator replaces, and which the release does not have."""
        names = {argument[0] for argument in arguments}
        findings: list[Finding] = []
        if not names.isdisjoint(self.operator.names):
            findings += _override_findings(arguments, self.operator)
        if not names <= self.table.names:
            findings += self._missing_findings(arguments)
        return findings

    def _missing_findings(self, arguments: Sequence[BuiltArgument]) -> list[Finding]:
        catalogue = Catalogue.load("vllm")
        missing: dict[tuple[str | None, str], list[str]] = {}
        for argument in arguments:
            name = str(argument[0])
            if name not in self.table.names:
                key = (catalogue.first_release(name), _HINTS.get(name, ""))
                missing.setdefault(key, []).append(name)
        return [
            Finding(
                severity="error",
                code="not-in-release",
                message=f"vLLM {self.release} has no {', '.join(names)}; "
                + (f"{first} is the first release that does" if first else "no known release does"),
                hint=hint,
                where="version",
            )
            for (first, hint), names in missing.items()
        ]


def _override_findings(arguments: Sequence[BuiltArgument], operator: OperatorArguments) -> list[Finding]:
    plain = [tuple(str(item) for item in argument) for argument in arguments]
    findings: list[Finding] = []
    for override in overrides(plain, operator.arguments):
        if is_refused(override.flag):
            continue  # an error says so already
        lost = _lost_keys(override, operator)
        findings.append(
            Finding(
                severity="warning" if lost else "info",
                code="override",
                message=f"args replace {' '.join(override.built)} with {' '.join(override.given)}"
                + (f", which leaves out {', '.join(lost)}" if lost else ""),
                hint="args replace the whole JSON value: give all of its keys" if lost else "",
                where=f"profile.args[{operator.arguments.of(override.flag)[-1].start}]",
            )
        )
    return findings


def _lost_keys(override: Override, operator: OperatorArguments) -> list[str]:
    given = operator.value(override.flag)
    if not isinstance(given, dict) or len(override.built) != 2:
        return []
    built: dict[str, object] = json.loads(override.built[1])
    return sorted(built.keys() - given.keys())


def prepare(profile: Profile, release: str) -> PreparedProfile:
    """Read a profile for a release."""
    table = serve_flags(release)
    operator = read_operator_arguments(profile, table, release)
    lora = lora_arguments(profile, operator, release)
    kv_events = kv_event_arguments(profile.kv_events, release)
    # What the profile states: where args say otherwise, they replace it.
    engine: list[BuiltArgument] = [("--tensor-parallel-size", str(profile.tensor_parallel_size))]
    optional: tuple[tuple[str, int], ...] = (
        ("--pipeline-parallel-size", profile.pipeline_parallel_size),
        ("--prefill-context-parallel-size", profile.prefill_context_parallel_size),
        ("--decode-context-parallel-size", profile.decode_context_parallel_size),
    )
    engine.extend((flag, str(size)) for flag, size in optional if size > 1)
    if profile.enable_expert_parallel:
        engine.append(("--enable-expert-parallel",))
    engine.extend(lora.engine)
    server: list[BuiltArgument] = [("--served-model-name", *profile.served_model_names), *lora.server]
    return PreparedProfile(
        model=profile.model,
        release=release,
        table=table,
        operator=operator,
        engine=tuple(engine),
        server=tuple(server),
        lora=lora,
        kv_events=kv_events,
        env={name: value for name, value in profile.env.items() if isinstance(value, str)},
        secret_env={name: value for name, value in profile.env.items() if isinstance(value, SecretReference)},
        findings=(
            *operator.findings,
            *lora.findings,
            *kv_events.findings,
            *_prefix_caching_findings(profile, operator),
            *_decode_context_findings(operator, release),
        ),
    )


def _prefix_caching_findings(profile: Profile, operator: OperatorArguments) -> list[Finding]:
    if profile.kv_events is None or operator.value("--enable-prefix-caching", True):
        return []
    return [
        Finding(
            severity="error",
            code="kv-events-without-prefix-caching",
            message="prefix caching is switched off in args, and without it there are no KV events",
            hint="leave --no-enable-prefix-caching out, or leave kv_events out",
            where="profile.args",
        )
    ]


FIRST_RELEASE_WITH_DECODE_OVER_PREFILL = "0.26.0"
"""From it on decode context parallelism spans the GPUs of prefill context parallelism, or those and the
tensor-parallel ones, where both are used: ParallelConfig in vllm/config/parallel.py."""


def _decode_context_findings(operator: OperatorArguments, release: str) -> list[Finding]:
    sizes = operator.sizes
    decode, prefill, tensor = sizes.decode_context, sizes.prefill_context, sizes.tensor
    if prefill > 1 and at_least(release, FIRST_RELEASE_WITH_DECODE_OVER_PREFILL):
        fitting = sorted({1, prefill, tensor * prefill})
        rule = (
            f"must be 1, prefill_context_parallel_size {prefill}, or that times tensor_parallel_size {tensor}"
        )
    else:
        fitting = [size for size in range(1, tensor + 1) if tensor % size == 0]
        rule = f"must divide tensor_parallel_size {tensor}"
    if decode in fitting:
        return []
    return [
        Finding(
            severity="error",
            code="bad-value",
            message=f"decode_context_parallel_size {decode} {rule}",
            hint=f"use one of {', '.join(map(str, fitting))}",
            where="profile.decode_context_parallel_size",
        )
    ]
