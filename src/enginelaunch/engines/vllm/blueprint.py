"""What runs on a node, made once for all nodes of one shape and then filled in with addresses."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable

import msgspec

from enginelaunch.command import Command, Text
from enginelaunch.engine import Endpoint
from enginelaunch.engines.vllm.environment import (
    REFUSED_ENV,
    environment_findings,
    visibility_findings,
    visible_gpus_findings,
)
from enginelaunch.engines.vllm.installation import Programs
from enginelaunch.engines.vllm.layout import Cluster, Layout, Process, lay_out
from enginelaunch.engines.vllm.prepared import PreparedProfile
from enginelaunch.engines.vllm.ray import built_start_environment, ray_commands, ray_findings
from enginelaunch.engines.vllm.releases import at_least
from enginelaunch.engines.vllm.serve import (
    ServePart,
    built_environment,
    endpoint,
    feature_environment,
    serve_command,
)
from enginelaunch.findings import Finding, LaunchError, Report, Severity
from enginelaunch.profile import Profile
from enginelaunch.shard import GPU, RayPorts, ShardSpec


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on the nodes of one shape.

    Attributes:
        report: what there is to say about it, apart from the release.
        processes: the `vllm serve` processes.
        publishes: their KV events are configured by the profile, not by its args.
        http_host: the address on which servers listen.
        commands: the commands, with placeholders for addresses; empty when the report has errors.
        endpoints: where requests are taken, likewise.
    """

    report: Report
    processes: tuple[Process, ...] = ()
    publishes: bool = False
    http_host: str = ""
    commands: tuple[Command, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()


def draw_blueprint(shard: ShardSpec, prepared: PreparedProfile, programs: Programs) -> Blueprint:
    """Work out what runs on nodes like this one."""
    findings = [*prepared.findings, *visibility_findings(shard, prepared.release)]
    http_port = prepared.operator.port or shard.http_port
    try:
        layout = lay_out(prepared.operator.sizes, _cluster(shard))
    except LaunchError as error:
        findings += environment_findings(shard, range(http_port, http_port + 1))
        return Blueprint(report=Report.of([*findings, *error.report.findings]))
    findings += environment_findings(shard, range(http_port, http_port + max(1, len(layout.processes))))
    findings += visible_gpus_findings(shard, layout.processes, prepared.operator.sizes.replica)
    findings += _context_parallel_findings(shard, prepared, layout)
    findings += layout.findings
    if shard.launch_mode == "ray":
        findings += ray_findings(shard, layout.processes, prepared.release, programs.ray_version)
    parts = tuple(ServePart.of(shard, prepared, process) for process in layout.processes)
    for part in parts:
        findings += prepared.argument_findings(part.arguments)
    findings += _shared_findings(prepared, layout)
    findings += _dense_model_findings(shard, prepared)
    findings += _environment_override_findings(shard, prepared, parts)
    findings += _unused_findings(shard)
    report = Report.of(findings)
    if not report.ok:
        return Blueprint(report=report, processes=layout.processes)
    return Blueprint(
        report=report,
        processes=layout.processes,
        http_host=prepared.operator.host or shard.http_host,
        publishes="--kv-events-config" not in prepared.operator.names,
        commands=_commands(shard, prepared, parts, programs),
        endpoints=tuple(endpoint(part) for part in parts if part.answers_http),
    )


def _commands(
    shard: ShardSpec, prepared: PreparedProfile, parts: tuple[ServePart, ...], programs: Programs
) -> tuple[Command, ...]:
    if shard.launch_mode == "ray":
        return tuple(ray_commands(shard, prepared, parts, programs.vllm, programs.ray))
    return tuple(serve_command(part, programs.vllm) for part in parts)


FIRST_RELEASE_THAT_REFUSES_DENSE_MODELS = "0.21.0"
"""From it on, EngineArgs.create_engine_config refuses a dense model whose replicas are balanced outside."""


def _dense_model_findings(shard: ShardSpec, prepared: PreparedProfile) -> list[Finding]:
    profile = shard.profile
    mode = profile.data_parallel_mode
    if mode == "hybrid" and shard.nnodes == 1:
        return []  # vLLM takes it for internal
    if mode == "internal" or prepared.operator.sizes.data == 1 or profile.enable_expert_parallel:
        return []
    if not at_least(prepared.release, FIRST_RELEASE_THAT_REFUSES_DENSE_MODELS):
        return []
    return [
        Finding(
            severity="info",
            code="mixtures-of-experts-only",
            message=f"vLLM {prepared.release} takes data_parallel_mode {mode} for mixtures of experts only",
            hint="for a dense model use internal, or a deployment of its own for each replica",
            where="profile.data_parallel_mode",
        )
    ]


def _environment_override_findings(
    shard: ShardSpec, prepared: PreparedProfile, parts: tuple[ServePart, ...]
) -> list[Finding]:
    built: dict[str, Text] = {}
    for part in parts:
        built |= feature_environment(part) if shard.launch_mode == "ray" else built_environment(part)
    if shard.launch_mode == "ray":
        built |= built_start_environment(shard, prepared)
    return [
        Finding(
            severity="warning",
            code="override",
            message=f"env replaces {name}={built[name]} with {value}",
            hint="leave it out, unless that is meant",
            where=f"profile.env.{name}",
        )
        for name, value in prepared.env.items()
        if name in built and name not in REFUSED_ENV and built[name] != value
    ]


def _unused_findings(shard: ShardSpec) -> list[Finding]:
    if shard.launch_mode == "ray":
        return []
    unused: list[tuple[str, Severity, bool]] = [
        ("cluster_token", "warning", shard.cluster_token is not None),
        ("ports.ray", "info", shard.ports.ray != RayPorts()),
    ]
    return [
        Finding(
            severity=severity,
            code="without-effect",
            message=f"{where} has no effect with launch_mode {shard.launch_mode}: it is for a Ray cluster",
            hint="leave it out, or use launch_mode: ray",
            where=where,
        )
        for where, severity, is_given in unused
        if is_given
    ]


def _cluster(shard: ShardSpec) -> Cluster:
    counts = shard.gpus_per_node
    if counts is None and shard.gpus is not None:
        counts = (len(shard.gpus),) * shard.nnodes
    return Cluster(
        nnodes=shard.nnodes,
        node_rank=shard.node_rank,
        gpus_per_node=None if shard.platform == "cpu" else counts,
        launch_mode=shard.launch_mode,
        load_balancing=shard.profile.data_parallel_mode,
    )


_SHARED = (
    ("--port", "port", "set http_port; each server takes the next one"),
    ("--grpc-port", "port for gRPC", "leave it out, or give 0"),
    ("--uds", "socket", "leave it out"),
)
"""Flags that would make servers of one node listen at the same place."""


def _shared_findings(prepared: PreparedProfile, layout: Layout) -> list[Finding]:
    if len(layout.processes) < 2:
        return []
    return [
        Finding(
            severity="error",
            code="refused-argument",
            message=f"{name} in args gives {len(layout.processes)} servers of one node the same {what}",
            hint=hint,
            where=f"profile.args[{prepared.operator.arguments.of(name)[-1].start}]",
        )
        for name, what, hint in _SHARED
        if name in prepared.operator.names
    ]


def _context_parallel_findings(shard: ShardSpec, prepared: PreparedProfile, layout: Layout) -> list[Finding]:
    # Up to 0.29 vLLM leaves prefill_context_parallel_size out when it divides the sizes by --nnodes.
    sizes, release = prepared.operator.sizes, prepared.release
    counted = sizes.total // sizes.prefill_context
    spans = any(process.spans_nodes for process in layout.processes)
    if not spans or at_least(release, "0.30.0") or counted % shard.nnodes == 0:
        return []
    return [
        Finding(
            severity="error",
            code="impossible-layout",
            message=f"vLLM {release} does not count prefill_context_parallel_size {sizes.prefill_context}, "
            f"and {shard.nnodes} nodes cannot share the other {counted} evenly",
            hint=f"use 0.30.0 or newer, or other sizes whose product is a multiple of {shard.nnodes}",
            where="profile",
        )
    ]


def shape_of(shard: ShardSpec) -> Hashable:
    """All of a shard that a blueprint depends on: everything but the profile and the addresses."""
    return (
        shard.nnodes,
        shard.node_rank,
        shard.gpus_per_node,
        _visible(shard.gpus),
        shard.interface,
        shard.http_host,
        shard.http_port,
        shard.leader_port,
        shard.ports,
        shard.launch_mode,
        shard.platform,
        shard.api_key,
        shard.cluster_token,
        # Some flags and variables are left out where one node alone does not need its address.
        shard.leader_addr is None,
        shard.node_addr is None,
    )


def _visible(gpus: tuple[GPU, ...] | None) -> Hashable:
    # All GPUs of a node have an id or none has.
    if not gpus or gpus[0].id is None:
        return gpus and len(gpus)
    return tuple([gpu.id for gpu in gpus])


class _ProfileBlueprints(msgspec.Struct):
    profile: weakref.ref[Profile]
    prepared: PreparedProfile
    by_shape: dict[Hashable, Blueprint] = {}


_MOST_SHAPES = 4096
"""How many blueprints of one profile are remembered; a cluster has a few shapes, or one a node."""


class Blueprints:
    """Remembers the blueprints of a profile for as long as the profile lives.

    A profile is compared by identity, which costs nothing; it is frozen, so that what was made from it
    stays true.
    """

    __slots__ = ("_by_profile", "_prepare")

    def __init__(self, prepare: Callable[[Profile], PreparedProfile]) -> None:
        self._prepare = prepare
        self._by_profile: dict[int, _ProfileBlueprints] = {}

    def get(self, shard: ShardSpec, programs: Programs) -> Blueprint:
        """The blueprint of nodes like this one."""
        known = self._of(shard.profile)
        shape = (programs, shape_of(shard))
        found = known.by_shape.get(shape)
        if found is None:
            if len(known.by_shape) >= _MOST_SHAPES:
                known.by_shape.clear()
            found = known.by_shape[shape] = draw_blueprint(shard, known.prepared, programs)
        return found

    def _of(self, profile: Profile) -> _ProfileBlueprints:
        key = id(profile)
        found = self._by_profile.get(key)
        if found is not None and found.profile() is profile:
            return found
        # Nothing that is remembered may keep the profile alive.
        reference = weakref.ref(profile, lambda _gone: self._by_profile.pop(key, None))
        made = _ProfileBlueprints(reference, self._prepare(profile))
        self._by_profile[key] = made
        return made
