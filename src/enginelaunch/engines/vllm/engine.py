"""The vLLM engine behind the Engine protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from enginelaunch.command import Command
from enginelaunch.engine import Endpoint, Metrics
from enginelaunch.engines.catalogue import Catalogue, ReleaseChoice, UnknownReleaseError
from enginelaunch.engines.vllm.environment import environment_findings, visibility_findings
from enginelaunch.engines.vllm.installation import Installation, find_installation
from enginelaunch.engines.vllm.kv_events import KVEventEndpoint, kv_event_endpoints
from enginelaunch.engines.vllm.layout import Cluster, Layout
from enginelaunch.engines.vllm.prepared import PreparedProfile, PreparedProfiles
from enginelaunch.engines.vllm.ray import DEFAULT_HEAD_PORT, ray_commands, ray_findings
from enginelaunch.engines.vllm.serve import (
    DEFAULT_MASTER_PORT,
    HEALTH_PATH,
    ServePart,
    endpoint,
    node_host_in_url,
    serve_command,
)
from enginelaunch.findings import Finding, LaunchError, Report
from enginelaunch.profile import Profile
from enginelaunch.shard import GPU, LaunchMode, ShardSpec


@dataclass(frozen=True, slots=True)
class _Draft:
    """What a shard comes to, before it is put into commands."""

    prepared: PreparedProfile
    parts: tuple[ServePart, ...]
    findings: tuple[Finding, ...]


class VLLM:
    """vLLM in one release.

    Args:
        version: the release, such as `0.32.0`; post, local and dev parts do not matter. None is the newest
            known.
        path: the `vllm` program; the bare word, looked up when it is started, when None.
        ray_path: the `ray` program, likewise.
        ray_version: the release of Ray; None when it is not known.

    Raises:
        LaunchError: the version is no version, or older than all that are known.

    Example:
        >>> from enginelaunch.profile import Profile
        >>> from enginelaunch.shard import ShardSpec
        >>> engine = VLLM(version="0.32.0")
        >>> command, = engine.commands(ShardSpec(profile=Profile(model="/models/llama")))
        >>> command.argv  # doctest: +NORMALIZE_WHITESPACE
        ('vllm', 'serve', '/models/llama', '--host', '0.0.0.0', '--port', '8000',
         '--tensor-parallel-size', '1', '--served-model-name', '/models/llama')
    """

    name = "vllm"
    health_path = HEALTH_PATH
    metrics = Metrics(path="/metrics")

    def __init__(
        self,
        version: str | None = None,
        path: str | None = None,
        ray_path: str | None = None,
        ray_version: str | None = None,
    ) -> None:
        self.version = version
        self.path = path
        self.ray_path = ray_path
        self.ray_version = ray_version
        try:
            self._choice = Catalogue.load("vllm").choose(version)
        except (UnknownReleaseError, ValueError) as error:
            raise LaunchError.of("unknown-release", str(error), where="version") from None
        self._version_findings = _version_findings(self._choice)
        self._installed: Installation | None = None
        self._prepared = PreparedProfiles()

    def __repr__(self) -> str:
        """How it was made."""
        return f"VLLM(version={self.version!r}, path={self.path!r}, ray_path={self.ray_path!r})"

    @property
    def release(self) -> str:
        """The release of the catalogue by which commands are built."""
        return self._choice.release

    @classmethod
    def find(cls, environment: str) -> VLLM:
        """The vLLM that is installed in a Python environment, with its version and that of Ray.

        Args:
            environment: the environment's folder, such as `/opt/env`.

        Raises:
            LaunchError: there is no vLLM in it.
        """
        found = find_installation(environment)
        return cls(
            version=found.version,
            path=found.vllm_path,
            ray_path=found.ray_path,
            ray_version=found.ray_version,
        )

    def use_installed(self, path: str) -> None:
        """Start the programs of this Python environment from now on; commands made before stay as they are.

        It may be called from any thread: the paths change together, and the release does not change.

        Args:
            path: the environment's folder, such as `/opt/env`.

        Raises:
            LaunchError: there is no vLLM in it.
        """
        self._installed = find_installation(path)

    def validate(self, profile: Profile, gpus: Iterable[GPU], model: Any = None) -> Report:
        """Say what is wrong with a profile on one node with these GPUs.

        Args:
            profile: what to serve.
            gpus: the GPUs of the node.
            model: what is known of the model; nothing is checked against it yet.
        """
        del model
        return self.review(ShardSpec(profile=profile, gpus=tuple(gpus)))

    def review(self, shard: ShardSpec) -> Report:
        """Say what `commands` would do with a shard: refusals, overrides, notes."""
        try:
            draft = self._draft(shard)
        except LaunchError as error:
            return error.report
        return Report.of([*self._version_findings, *draft.prepared.findings, *draft.findings])

    def commands(self, shard: ShardSpec) -> list[Command]:
        """The commands to start on the shard's node, in their order.

        Raises:
            LaunchError: the shard cannot be launched as it is.
        """
        draft = self._draft(shard)
        if draft.prepared.has_errors or any(finding.severity == "error" for finding in draft.findings):
            self.review(shard).raise_for_errors()
        installed = self._installed
        vllm_path = (installed and installed.vllm_path) or self.path or "vllm"
        if shard.launch_mode == "ray":
            ray_path = (installed and installed.ray_path) or self.ray_path or "ray"
            return ray_commands(shard, draft.prepared, draft.parts, vllm_path, ray_path)
        return [serve_command(part, vllm_path) for part in draft.parts]

    def endpoints(self, shard: ShardSpec) -> list[Endpoint]:
        """Where the shard's node takes requests; empty on a node that only computes.

        Raises:
            LaunchError: the sizes do not fit the nodes.
        """
        return [endpoint(part) for part in self._parts(shard) if part.answers_http]

    def serves_http(self, shard: ShardSpec) -> bool:
        """Whether the shard's node takes requests."""
        return bool(self.endpoints(shard))

    def kv_event_endpoints(self, shard: ShardSpec) -> list[KVEventEndpoint]:
        """Where the KV events of the node's data-parallel ranks are; empty where none are published.

        Raises:
            LaunchError: the sizes do not fit the nodes.
        """
        return [
            found
            for part in self._parts(shard)
            if part.process.has_scheduler
            for found in kv_event_endpoints(
                shard.profile.kv_events,
                node_host_in_url(shard),
                part.process.first_rank,
                part.process.rank_count,
            )
        ]

    def default_leader_port(self, launch_mode: LaunchMode) -> int:
        """The port at which nodes meet when none is given."""
        return DEFAULT_HEAD_PORT if launch_mode == "ray" else DEFAULT_MASTER_PORT

    def _parts(self, shard: ShardSpec) -> tuple[ServePart, ...]:
        return self._draft(shard).parts

    def _draft(self, shard: ShardSpec) -> _Draft:
        prepared = self._prepared.get(shard.profile, self.release)
        findings = visibility_findings(shard, self.release)
        if shard.profile.env:
            findings += environment_findings(shard, prepared.operator.port or shard.http_port)
        try:
            layout = prepared.layout(_cluster(shard))
        except LaunchError as error:
            known = [*self._version_findings, *prepared.findings, *findings]
            raise LaunchError(Report.of([*known, *error.report.findings])) from None
        findings += layout.findings
        if shard.launch_mode == "ray":
            findings += ray_findings(shard, layout.processes, self.release, self.ray_version)
        parts = tuple(ServePart.of(shard, prepared, process) for process in layout.processes)
        for part in parts:
            findings += prepared.argument_findings(part.arguments)
        findings += _shared_port_findings(prepared, layout)
        return _Draft(prepared, parts, tuple(findings))


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


def _version_findings(choice: ReleaseChoice) -> tuple[Finding, ...]:
    if choice.reason == "newest_not_given":
        message = f"no version is given; commands are built for {choice.release}, the newest known"
        return (_version_warning("version-not-given", message, "state the release that is installed"),)
    if choice.reason == "newest_assumed_newer":
        message = (
            f"{choice.requested} is newer than {choice.release}, the newest known; "
            "commands are built for that"
        )
        return (_version_warning("version-not-known", message, "check the commands with the release itself"),)
    return ()


def _version_warning(code: str, message: str, hint: str) -> Finding:
    return Finding(severity="warning", code=code, message=message, hint=hint, where="version")


def _shared_port_findings(prepared: PreparedProfile, layout: Layout) -> list[Finding]:
    if len(layout.processes) < 2 or "--port" not in prepared.operator.names:
        return []
    return [
        Finding(
            severity="error",
            code="refused-argument",
            message=f"--port in args gives {len(layout.processes)} servers of one node the same port",
            hint="set http_port; each server takes the next one",
            where=f"profile.args[{prepared.operator.arguments.of('--port')[-1].start}]",
        )
    ]
