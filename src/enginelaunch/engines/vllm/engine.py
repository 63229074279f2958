"""The vLLM engine behind the Engine protocol."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enginelaunch.addresses import is_ipv6
from enginelaunch.command import Command
from enginelaunch.engine import Endpoint, Metrics
from enginelaunch.engines.vllm.defaults import HEALTH_PATH, MASTER_PORT, RAY_HEAD_PORT
from enginelaunch.engines.vllm.installation import Programs, find_installation
from enginelaunch.findings import Finding, LaunchError, Report
from enginelaunch.profile import Profile
from enginelaunch.shard import GPU, LaunchMode, ShardSpec

if TYPE_CHECKING:
    from enginelaunch.engines.catalogue import ReleaseChoice
    from enginelaunch.engines.vllm.blueprint import Blueprint
    from enginelaunch.engines.vllm.kv_events import KVEventEndpoint


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
        # What builds commands is imported when an engine is made, so that `import` stays light.
        from enginelaunch.engines.catalogue import Catalogue, UnknownReleaseError  # noqa: PLC0415
        from enginelaunch.engines.vllm.blueprint import Blueprints  # noqa: PLC0415
        from enginelaunch.engines.vllm.prepared import prepare  # noqa: PLC0415

        self.version = version
        self.path = path
        self.ray_path = ray_path
        self.ray_version = ray_version
        try:
            self._choice = Catalogue.load("vllm").choose(version)
        except (UnknownReleaseError, ValueError) as error:
            raise LaunchError.of("unknown-release", str(error), where="version") from None
        self._version_findings = _version_findings(self._choice)
        self._programs = Programs(vllm=path or "vllm", ray=ray_path or "ray", ray_version=ray_version)
        self._blueprints = Blueprints(lambda profile: prepare(profile, self.release))

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

    def use_installed(self, path: str, ray_path: str | None = None) -> None:
        """Start these programs from now on; commands made before stay as they are.

        It may be called from any thread: the paths change together. The release stays what it is.

        Args:
            path: the `vllm` program, or the folder of the Python environment in which it is installed.
            ray_path: the `ray` program; that of the environment, or what was used before, when None.

        Raises:
            LaunchError: the path is a folder without a `vllm` program in it.
        """
        before = self._programs
        if Path(path).is_dir():
            found = find_installation(path)
            self._programs = Programs(
                vllm=found.vllm_path,
                ray=ray_path or found.ray_path or before.ray,
                ray_version=found.ray_version if found.ray_path and not ray_path else before.ray_version,
            )
        else:
            self._programs = Programs(vllm=path, ray=ray_path or before.ray, ray_version=before.ray_version)

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
        blueprint = self._blueprint(shard)
        findings = [*self._version_findings, *blueprint.report.findings]
        return Report.of([*findings, *_ipv4_findings(shard, blueprint)])

    def commands(self, shard: ShardSpec) -> list[Command]:
        """The commands to start on the shard's node, in their order.

        Raises:
            LaunchError: the shard cannot be launched as it is.
        """
        blueprint = self._launchable(shard)
        values = shard.known_addresses()
        return [command.fill(values) for command in blueprint.commands]

    def endpoints(self, shard: ShardSpec) -> list[Endpoint]:
        """Where the shard's node takes requests; empty on a node that only computes.

        Raises:
            LaunchError: the shard cannot be launched as it is.
        """
        values = shard.known_addresses()
        return [endpoint.fill(values) for endpoint in self._launchable(shard).endpoints]

    def serves_http(self, shard: ShardSpec) -> bool:
        """Whether the shard's node takes requests."""
        return bool(self.endpoints(shard))

    def kv_event_endpoints(self, shard: ShardSpec) -> list[KVEventEndpoint]:
        """Where the KV events of the node's data-parallel ranks are; empty where none are published.

        Raises:
            LaunchError: the shard cannot be launched as it is.
        """
        from enginelaunch.engines.vllm.kv_events import kv_event_endpoints  # noqa: PLC0415 - as in __init__

        values, blueprint = shard.known_addresses(), self._launchable(shard)
        return [
            found
            for process in blueprint.processes
            if process.has_scheduler and blueprint.publishes
            for found in kv_event_endpoints(
                shard.profile.kv_events, process.first_rank, process.rank_count, values
            )
        ]

    def default_leader_port(self, launch_mode: LaunchMode) -> int:
        """The port at which nodes meet when none is given."""
        return RAY_HEAD_PORT if launch_mode == "ray" else MASTER_PORT

    def _blueprint(self, shard: ShardSpec) -> Blueprint:
        return self._blueprints.get(shard, self._programs)

    def _launchable(self, shard: ShardSpec) -> Blueprint:
        blueprint = self._blueprint(shard)
        if not blueprint.commands:
            self.review(shard).raise_for_errors()
        return blueprint


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


def _ipv4_findings(shard: ShardSpec, blueprint: Blueprint) -> list[Finding]:
    address = shard.node_addr
    if address is None or not is_ipv6(address) or blueprint.http_host != "0.0.0.0" or not blueprint.endpoints:
        return []
    return [
        Finding(
            severity="warning",
            code="http-host",
            message=f"0.0.0.0 listens on IPv4 alone, and {address}, at which requests would come, is IPv6",
            hint="set http_host: '::'",
            where="node.http_host",
        )
    ]


def _version_warning(code: str, message: str, hint: str) -> Finding:
    return Finding(severity="warning", code=code, message=message, hint=hint, where="version")
