"""The whole cluster: a deployment file, and the plan of what runs on each of its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from enginelaunch.addresses import is_only_this_machine, same_host_key
from enginelaunch.command import Command, ListeningPort
from enginelaunch.engine import Endpoint, Engine, engine_class
from enginelaunch.findings import Finding, LaunchError, Report
from enginelaunch.profile import Profile
from enginelaunch.shard import NODE_RANK, GPUs, LaunchMode, Platform, Ports, ShardSpec
from enginelaunch.spec import Address, Interface, NonEmptyText, Port, Secret, Spec, explained


class Node(Spec):
    """A machine of the deployment.

    Example:
        >>> Node(address="10.0.0.1", gpus="8 x H100", interface="eth0").http_port
        8000
    """

    address: Address | None = None
    """Its address as the other nodes reach it; left out when a scheduler decides it."""

    gpus: GPUs | None = None
    """Its GPUs: a count, a list of ids, or a count and a model like `8 x H100`."""

    interface: Interface | None = None
    """The network interface over which the nodes talk, such as `eth0`."""

    http_host: Address = "0.0.0.0"
    """The address on which its server listens."""

    http_port: Port = 8000
    """The port on which its server listens; further servers of the node take the next ones."""


def _version(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise explained(
            "version",
            f"must be text in quotes, not the number {value}: a number loses a zero at its end",
        )
    return value


def _some_nodes(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    if not nodes:
        raise explained("nodes", "there must be at least one node")
    return nodes


class Deployment(Spec):
    """What to serve and where, as a deployment file says it.

    Example:
        >>> deployment = Deployment(engine="vllm", version="0.32.0",
        ...                         profile={"model": "/models/llama"}, nodes=[{"gpus": 1}])
        >>> plan(deployment).nodes[0].commands[0].argv[:3]
        ('vllm', 'serve', '/models/llama')
    """

    secret_fields: ClassVar[frozenset[str]] = frozenset({"api_key", "cluster_token"})

    engine: NonEmptyText
    """The engine: vllm."""

    version: Annotated[NonEmptyText | None, BeforeValidator(_version)] = None
    """The engine's release, in quotes; the newest known when left out."""

    platform: Platform = "cuda"
    """What computes: cuda, rocm, xpu or cpu."""

    launch_mode: LaunchMode = "mp"
    """How the processes of several nodes come together: mp (the engine's own) or ray."""

    profile: Profile
    """What to serve."""

    nodes: Annotated[tuple[Node, ...], AfterValidator(_some_nodes), Field(json_schema_extra={"minItems": 1})]
    """The machines, in the order of their ranks; the first one leads."""

    api_key: Secret | None = None
    """The key that requests have to bring: `{env: NAME}` or `{file: PATH}`."""

    cluster_token: Secret | None = None
    """The token that nodes show to one another: `{env: NAME}` or `{file: PATH}`."""

    ports: Ports = Ports()
    """Ports at which the nodes meet."""

    @classmethod
    def from_yaml(cls, path: str | Path) -> Deployment:
        """Read a deployment file.

        Args:
            path: the file.

        Raises:
            LaunchError: the file cannot be read, or says something that cannot be; every error is in
                its report, with the place in the file.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LaunchError.of("unreadable-file", f"{path}: {reason}", where=str(path)) from None
        return cls.from_yaml_text(text, name=str(path))

    @classmethod
    def from_yaml_text(cls, text: str, name: str = "deployment") -> Deployment:
        """Read a deployment from the text of a file.

        Args:
            text: YAML.
            name: what to call the file in errors.

        Raises:
            LaunchError: as `from_yaml`.
        """
        from enginelaunch.yaml_file import read_yaml  # noqa: PLC0415 - yaml is only needed for files

        data = read_yaml(text, name)
        if not isinstance(data, dict):
            raise LaunchError.of(
                "unreadable-file",
                f"{name}: a deployment file is a mapping with engine, profile and nodes, "
                f"not {'empty' if data is None else type(data).__name__}",
                where=name,
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise LaunchError(Report.of(_validation_findings(error))) from None


def _validation_findings(error: ValidationError) -> list[Finding]:
    return [
        Finding(
            severity="error",
            code=entry["type"].removeprefix("explained_").replace("_", "-"),
            message=entry["msg"],
            where=_place(entry["loc"]),
        )
        for entry in error.errors(include_url=False, include_input=False)
    ]


def _place(location: Iterable[str | int]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if part.isprintable() else repr(part)
            text += f".{key}" if text else key
    return text


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on one node.

    Attributes:
        node_rank: its rank, from 0.
        address: its address; None when a scheduler decides it.
        shard: its part of the deployment.
        commands: the commands to start on it, in their order.
        endpoints: where it takes requests; empty when it only computes.
    """

    node_rank: int
    address: str | None
    shard: ShardSpec
    commands: tuple[Command, ...]
    endpoints: tuple[Endpoint, ...]

    def as_dict(self) -> dict[str, Any]:
        """The node's plan as JSON data."""
        return {
            "node_rank": self.node_rank,
            "address": self.address,
            "commands": [command.as_dict() for command in self.commands],
            "endpoints": [endpoint.as_dict() for endpoint in self.endpoints],
        }


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What runs where.

    Attributes:
        engine: the engine's name.
        version: the engine's version as it was given, or the release that was taken instead.
        nodes: what runs on each node, in the order of ranks.
        findings: what should be known about it; none of them is an error.
    """

    engine: str
    version: str
    nodes: tuple[NodePlan, ...]
    findings: tuple[Finding, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON data."""
        return {
            "engine": self.engine,
            "version": self.version,
            "nodes": [node.as_dict() for node in self.nodes],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def plan(deployment: Deployment, engine: Engine | None = None) -> Plan:
    """Work out what runs on each node.

    Args:
        deployment: what to serve and where.
        engine: the engine to build with, for its paths; the deployment's own when None.

    Raises:
        LaunchError: the deployment cannot be launched as it is; the report holds all findings.
    """
    if engine is None:
        engine = engine_class(deployment.engine)(version=deployment.version)
    findings = [*_engine_findings(deployment, engine), *_node_findings(deployment)]
    if any(finding.severity == "error" for finding in findings):
        raise LaunchError(Report.of(findings))
    shards = shards_of(deployment)
    for rank, shard in enumerate(shards):
        report = engine.review(shard)
        findings += [_on_node(finding, rank) for finding in report.findings]
    Report.of(findings).raise_for_errors()
    nodes = tuple(
        NodePlan(
            node_rank=rank,
            address=shard.node_addr,
            shard=shard,
            commands=tuple(engine.commands(shard)),
            endpoints=tuple(engine.endpoints(shard)),
        )
        for rank, shard in enumerate(shards)
    )
    report = Report.of([*findings, *_port_findings(nodes)])
    report.raise_for_errors()
    return Plan(
        engine=engine.name,
        version=engine.version or engine.release,
        nodes=nodes,
        findings=report.findings,
    )


def shards_of(deployment: Deployment) -> tuple[ShardSpec, ...]:
    """One ShardSpec per node, in the order of ranks."""
    nodes = deployment.nodes
    several = len(nodes) > 1
    counts = None
    if all(node.gpus is not None for node in nodes):
        counts = tuple(len(node.gpus or ()) for node in nodes)
    return tuple(
        ShardSpec(
            profile=deployment.profile,
            nnodes=len(nodes),
            # A scheduler that decides a follower's address starts all of them from one template.
            node_rank=NODE_RANK if several and rank > 0 and node.address is None else rank,
            leader_addr=nodes[0].address if several else None,
            leader_port=deployment.ports.leader,
            node_addr=node.address,
            interface=node.interface,
            http_host=node.http_host,
            http_port=node.http_port,
            gpus=node.gpus,
            gpus_per_node=counts if several else None,
            ports=deployment.ports,
            launch_mode=deployment.launch_mode,
            platform=deployment.platform,
            api_key=deployment.api_key,
            cluster_token=deployment.cluster_token,
        )
        for rank, node in enumerate(nodes)
    )


def _on_node(finding: Finding, rank: int) -> Finding:
    if not finding.where.startswith("node."):
        return finding
    return msgspec.structs.replace(finding, where=f"nodes[{rank}].{finding.where.removeprefix('node.')}")


def _node_findings(deployment: Deployment) -> list[Finding]:
    nodes = deployment.nodes
    findings: list[Finding] = []
    if len(nodes) > 1:
        findings += _address_findings(nodes)
    stated = [node.gpus is not None for node in nodes]
    if any(stated) and not all(stated):
        findings.append(
            _error(
                "gpus-missing",
                f"nodes[{stated.index(False)}].gpus",
                "the GPUs of some nodes are stated and of this one are not",
                "state those of every node, or of none",
            )
        )
    return findings


def _engine_findings(deployment: Deployment, engine: Engine) -> list[Finding]:
    findings: list[Finding] = []
    if engine.name != deployment.engine:
        findings.append(
            _error(
                "other-engine",
                "engine",
                f"the deployment is for {deployment.engine}, not for {engine.name}",
                "plan it with its own engine",
            )
        )
    elif deployment.version is not None and not _same_release(engine.version, deployment.version):
        findings.append(
            _error(
                "other-version",
                "version",
                f"the deployment is for {deployment.version}, the engine was made for "
                f"{engine.version or f'the newest known, {engine.release}'}",
                "make the engine with the deployment's version",
            )
        )
    return findings


def _same_release(one: str | None, other: str) -> bool:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - only for an engine of one's own

    if one is None or one == other:
        return one == other
    try:
        releases = [Version(version).release for version in (one, other)]
    except InvalidVersion:
        return False
    length = max(len(release) for release in releases)
    first, second = ((*release, *(0,) * (length - len(release))) for release in releases)
    return first == second


def _address_findings(nodes: tuple[Node, ...]) -> list[Finding]:
    findings: list[Finding] = []
    seen: dict[str, int] = {}
    for rank, node in enumerate(nodes):
        where = f"nodes[{rank}].address"
        if node.address is None:
            continue
        if is_only_this_machine(node.address):
            findings.append(
                _error(
                    "unreachable-address",
                    where,
                    f"{node.address} is an address of one machine alone, and {len(nodes)} nodes have to meet",
                    "give the address at which the other nodes reach it",
                )
            )
            continue
        first = seen.setdefault(same_host_key(node.address), rank)
        if first != rank:
            findings.append(
                _error(
                    "same-address-twice",
                    where,
                    f"{node.address} is also the address of nodes[{first}]",
                    "give each node its own address",
                )
            )
    given = [node.address is not None for node in nodes[1:]]
    if any(given) and not (all(given) and nodes[0].address is not None):
        missing = 0 if nodes[0].address is None else given.index(False) + 1
        findings.append(
            _error(
                "address-missing",
                f"nodes[{missing}].address",
                "some followers have an address and this node has none",
                "give every node its address, or leave out those of all followers",
            )
        )
    return findings


def _error(code: str, where: str, message: str, hint: str) -> Finding:
    return Finding(severity="error", code=code, message=message, hint=hint, where=where)


def _port_findings(nodes: Iterable[NodePlan]) -> list[Finding]:
    findings: list[Finding] = []
    for node in nodes:
        used = [(command.name, port) for command in node.commands for port in command.ports]
        for (one, first), (other, second) in combinations(used, 2):
            if first.base <= second.last and second.base <= first.last:
                findings.append(
                    _error(
                        "port-collision",
                        f"nodes[{node.node_rank}]",
                        f"{_described(one, first)} and {_described(other, second)} collide",
                        "set http_port, ports or the ports of kv_events so that they differ",
                    )
                )
        for name, port in used:
            if port.last > 65535:
                findings.append(
                    _error(
                        "port-collision",
                        f"nodes[{node.node_rank}]",
                        f"{_described(name, port)} goes above 65535",
                        "use a lower base port",
                    )
                )
    return findings


def _described(command: str, port: ListeningPort) -> str:
    span = str(port.base) if port.span == 1 else f"{port.base} to {port.last}"
    return f"{port.name} ({span}) of {command}"
