"""A Ray cluster for vLLM: the head with the server beside it, and the nodes that join.

Facts, seen with Ray 2.60 or read in vLLM: the head needs its own address, or picks one; whoever joins
before the head listens retries for minutes; the workers inherit the environment of `ray start`, and
vLLM copies the server's VLLM_*, NCCL_*, UCX_* and HF_* over theirs, so that what differs from node to
node must stand with `ray start` and not with the server.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from enginelaunch.command import (
    Command,
    EnvironmentSecret,
    Exits,
    FileSecret,
    FrozenDict,
    LeaderAddress,
    ListeningPort,
    LiteralSecret,
    OwnAddress,
    SocketAddress,
    Stop,
    StopSignal,
    TCPReady,
    Text,
    Wait,
    joined,
)
from enginelaunch.engines.vllm.defaults import RAY_CLIENT_SERVER_PORT, RAY_HEAD_PORT
from enginelaunch.engines.vllm.environment import (
    CLEARED,
    network_environment,
    own_address_environment,
    visibility_environment,
    visibility_variables,
)
from enginelaunch.engines.vllm.layout import Process
from enginelaunch.engines.vllm.prepared import PreparedProfile
from enginelaunch.engines.vllm.releases import at_least
from enginelaunch.engines.vllm.serve import ServePart, feature_environment, make_serve_command
from enginelaunch.findings import Finding
from enginelaunch.shard import RayPorts, ShardSpec
from enginelaunch.spec import shown

FIRST_RELEASE_WITH_TOKENS = "2.52.0"
"""The first Ray release with token authentication."""

FIRST_RELEASE_THAT_ASKS_RAY_FOR_ADDRESSES = "0.21.0"
"""Before it, the server's executor compares its own address with those of the workers and ends when a
machine shows two. VLLM_HOST_IP is one of the few VLLM_* that are never copied to workers
(WORKER_SPECIFIC_ENV_VARS of vllm/v1/executor/ray_utils.py and its forerunners)."""

HEAD_TIMEOUT = 600.0
"""Seconds to wait for the head to listen: nodes of a cluster do not start at once."""

# SIGTERM takes effect when a joiner's cycle of 41 seconds ends.
_STOP = Stop(order=1, signals=(StopSignal("SIGTERM", 45.0), StopSignal("SIGKILL", 5.0)))

_EXITS = Exits(
    success=(),
    meanings=(
        (0, "it ended; nothing computes on this node any more"),
        (1, "it was stopped, or lost or never found the head"),
        (2, "an argument is wrong"),
        (137, "it was killed, by SIGKILL or for lack of memory"),
    ),
)

_NODE_PORTS = (
    ("node_manager", "--node-manager-port"),
    ("object_manager", "--object-manager-port"),
    ("min_worker", "--min-worker-port"),
    ("max_worker", "--max-worker-port"),
    ("metrics_export", "--metrics-export-port"),
    ("dashboard_agent_grpc", "--dashboard-agent-grpc-port"),
    ("dashboard_agent_listen", "--dashboard-agent-listen-port"),
    ("runtime_env_agent", "--runtime-env-agent-port"),
)
"""Fields of RayPorts and the options of `ray start` on every node."""

_HEAD_PORTS = (("client_server", "--ray-client-server-port"),)
"""The same, on the head alone."""


def head_port(shard: ShardSpec) -> int:
    """The port of the head, at which the nodes meet."""
    return shard.leader_port or shard.ports.leader or RAY_HEAD_PORT


def ray_commands(
    shard: ShardSpec,
    prepared: PreparedProfile,
    parts: Iterable[ServePart],
    vllm_path: str,
    ray_path: str,
) -> list[Command]:
    """The commands of a node: on the leader the head and then the server, elsewhere the join alone."""
    if not shard.is_leader:
        return [_join_command(shard, prepared, ray_path)]
    servers = [_server_command(part, vllm_path) for part in parts]
    return [_head_command(shard, prepared, ray_path), *servers]


def _head_address(shard: ShardSpec) -> Text:
    return joined(LeaderAddress(in_url=True), f":{head_port(shard)}")


def _wait_for_head(shard: ShardSpec) -> Wait:
    return Wait(address=SocketAddress(LeaderAddress(), head_port(shard)), timeout=HEAD_TIMEOUT)


def _head_command(shard: ShardSpec, prepared: PreparedProfile, ray_path: str) -> Command:
    port = head_port(shard)
    args: list[Text] = ["start", "--block", "--head", "--port", str(port)]
    args += ["--node-ip-address", OwnAddress(), "--include-dashboard=false", *_gpus(shard)]
    args += _pinned(shard.ports.ray, (*_NODE_PORTS, *_HEAD_PORTS))
    env: dict[str, Text] = {}
    if shard.ports.ray.autoscaler_metrics is not None:
        env["AUTOSCALER_METRIC_PORT"] = str(shard.ports.ray.autoscaler_metrics)
    return _start_command(
        shard,
        prepared,
        Command(
            name="ray-head",
            path=ray_path,
            args=tuple(args),
            env=FrozenDict(env),
            role="worker",
            ready=TCPReady(address=SocketAddress(OwnAddress(), port), timeout=HEAD_TIMEOUT),
            ports=_listening_ports(shard, head=True),
            stop=_STOP,
            exits=_EXITS,
        ),
    )


def _join_command(shard: ShardSpec, prepared: PreparedProfile, ray_path: str) -> Command:
    args: list[Text] = ["start", "--block", "--address", _head_address(shard)]
    args += ["--node-ip-address", OwnAddress(), *_gpus(shard)]
    args += _pinned(shard.ports.ray, _NODE_PORTS)
    return _start_command(
        shard,
        prepared,
        Command(
            name="ray-join",
            path=ray_path,
            args=tuple(args),
            role="worker",
            waits_for=(_wait_for_head(shard),),
            ports=_listening_ports(shard, head=False),
            stop=_STOP,
            exits=_EXITS,
        ),
    )


def _start_command(shard: ShardSpec, prepared: PreparedProfile, command: Command) -> Command:
    env: dict[str, Text] = {
        **built_start_environment(shard, prepared),
        **command.env,
        **_token_mode(shard),
        **prepared.env,
    }
    secrets = {**_token(shard), **prepared.secret_env}
    secrets.pop("VLLM_API_KEY", None)  # requests do not reach it
    return msgspec.structs.replace(
        command,
        env=FrozenDict({name: value for name, value in env.items() if name not in secrets}),
        secret_env=FrozenDict(secrets),
        clear_env=(*CLEARED, "RAY_ADDRESS"),
    )


def built_start_environment(shard: ShardSpec, prepared: PreparedProfile) -> dict[str, Text]:
    """The environment of `ray start` on any node, before the profile's own."""
    return {
        **network_environment(shard),
        **visibility_environment(shard, prepared.release),
        **dict(prepared.kv_events.env),
    }


def _server_command(part: ServePart, path: str) -> Command:
    shard, prepared = part.shard, part.prepared
    env: dict[str, Text] = {"RAY_ADDRESS": _head_address(shard)}
    if not at_least(prepared.release, FIRST_RELEASE_THAT_ASKS_RAY_FOR_ADDRESSES):
        env |= own_address_environment(shard)
    if part.process.ray_pack_strategy:
        env["VLLM_RAY_DP_PACK_STRATEGY"] = part.process.ray_pack_strategy
    env |= {**feature_environment(part), **_token_mode(shard), **_without_visibility(shard, prepared.env)}
    return make_serve_command(part, path, env, dict(_token(shard)), (_wait_for_head(shard),))


def _without_visibility(shard: ShardSpec, env: dict[str, str]) -> dict[str, Text]:
    hidden = visibility_variables(shard.platform)
    return {name: value for name, value in env.items() if name not in hidden}


def _token_mode(shard: ShardSpec) -> dict[str, Text]:
    return {} if shard.cluster_token is None else {"RAY_AUTH_MODE": "token"}


def _token(shard: ShardSpec) -> dict[str, EnvironmentSecret | FileSecret | LiteralSecret]:
    return {} if shard.cluster_token is None else {"RAY_AUTH_TOKEN": shard.cluster_token}


def _gpus(shard: ShardSpec) -> list[Text]:
    return [] if shard.gpus is None else ["--num-gpus", str(len(shard.gpus))]


def _pinned(ports: RayPorts, options: tuple[tuple[str, str], ...]) -> list[Text]:
    return [
        item
        for field, option in options
        if getattr(ports, field) is not None
        for item in (option, str(getattr(ports, field)))
    ]


def _listening_ports(shard: ShardSpec, *, head: bool) -> tuple[ListeningPort, ...]:
    ray = shard.ports.ray
    ports: list[ListeningPort] = []
    if head:
        ports.append(ListeningPort(name="Ray head", base=head_port(shard)))
        ports.append(
            ListeningPort(name="Ray client server", base=ray.client_server or RAY_CLIENT_SERVER_PORT)
        )
        if ray.autoscaler_metrics is not None:
            ports.append(ListeningPort(name="Ray autoscaler metrics", base=ray.autoscaler_metrics))
    if ray.min_worker is not None:
        ports.append(ListeningPort(name="Ray workers", base=ray.min_worker, span=ray.worker_span))
    single = [field for field, _ in _NODE_PORTS if field not in ("min_worker", "max_worker")]
    ports.extend(
        ListeningPort(name=f"Ray {field.replace('_', ' ')}", base=getattr(ray, field))
        for field in single
        if getattr(ray, field) is not None
    )
    return tuple(ports)


def ray_findings(
    shard: ShardSpec, processes: Iterable[Process], release: str, ray_version: str | None
) -> list[Finding]:
    """What is wrong with a Ray cluster, or should be known of it."""
    findings: list[Finding] = [*_token_findings(shard, ray_version)]
    if shard.platform == "cpu":
        findings.append(
            Finding(
                severity="error",
                code="ray-on-cpu",
                message="vLLM refuses Ray on platform cpu",
                hint="use launch_mode: mp",
                where="launch_mode",
            )
        )
    if at_least(release, "0.18.0"):
        findings.append(
            Finding(
                severity="info",
                code="ray-is-separate",
                message=f"vLLM {release} does not bring Ray with it: install it on every node",
                where="launch_mode",
            )
        )
    for process in processes:
        findings.extend(_data_parallel_findings(shard, process, release))
    return findings


def _data_parallel_findings(shard: ShardSpec, process: Process, release: str) -> list[Finding]:
    findings: list[Finding] = []
    if process.ray_pack_strategy == "span" and not at_least(release, "0.11.1"):
        findings.append(
            Finding(
                severity="error",
                code="impossible-layout",
                message=f"with Ray, vLLM {release} keeps each replica on one node; "
                "0.11.1 is the first that lets one span nodes",
                hint="use sizes whose replica fits into a node",
                where="profile",
            )
        )
    kv_events = shard.profile.kv_events
    binds = kv_events is not None and (kv_events.connect is None or kv_events.replay_port is not None)
    if binds and process.ray_data_parallel and shard.nnodes > 1:
        findings.append(
            Finding(
                severity="error",
                code="kv-events-anywhere",
                message="Ray decides on which node a data-parallel rank runs, so subscribers cannot know "
                "where its events are",
                hint="leave replay_port out, or use launch_mode: mp"
                if kv_events and kv_events.connect
                else "set kv_events.connect to the subscriber's address, or use launch_mode: mp",
                where="profile.kv_events",
            )
        )
    return findings


def _token_findings(shard: ShardSpec, ray_version: str | None) -> list[Finding]:
    where = "cluster_token"
    if shard.cluster_token is None:
        return [
            Finding(
                severity="warning",
                code="open-ray-cluster",
                message="without a token, whoever reaches the head's port can run programs on every node",
                hint=f"set cluster_token (Ray {FIRST_RELEASE_WITH_TOKENS} or newer), or close the network",
                where=where,
            )
        ]
    older = None if ray_version is None else _older_than_tokens(ray_version)
    if older is None:
        return [
            Finding(
                severity="info",
                code="ray-version-unknown",
                message=f"token authentication needs Ray {FIRST_RELEASE_WITH_TOKENS} or newer, "
                f"and the release is not known{_as_given(ray_version)}; an older one ignores the token",
                hint="compare with what `ray --version` says on the nodes",
                where=where,
            )
        ]
    if older:
        return [
            Finding(
                severity="error",
                code="no-ray-tokens",
                message=f"Ray {ray_version} has no token authentication and would run without any",
                hint=f"use Ray {FIRST_RELEASE_WITH_TOKENS} or newer",
                where=where,
            )
        ]
    return []


def _as_given(ray_version: object) -> str:
    return "" if ray_version is None else f" from {shown(ray_version)}"


def _older_than_tokens(ray_version: str) -> bool | None:
    """Whether a release of Ray is; None when the text does not say which release it is."""
    from packaging.version import Version  # noqa: PLC0415 - imports stay light

    try:
        return Version(ray_version) < Version(FIRST_RELEASE_WITH_TOKENS)
    except (ValueError, TypeError):
        return None
