"""One `vllm serve` process: its arguments, environment, readiness and ports.

Addresses stand as placeholders here, whether they are known or not: what is built is the same for all
nodes of a shape, and a node's addresses are filled in last.
"""

from __future__ import annotations

import msgspec

from enginelaunch.addresses import is_ipv6, is_wildcard
from enginelaunch.command import (
    Command,
    Exits,
    FrozenDict,
    HTTPReady,
    LeaderAddress,
    ListeningPort,
    NodeRank,
    OwnAddress,
    SecretReference,
    SocketAddress,
    Stop,
    StopSignal,
    Text,
    Wait,
)
from enginelaunch.engine import Endpoint
from enginelaunch.engines.vllm.defaults import DATA_PARALLEL_RPC_PORT, HEALTH_PATH, MASTER_PORT
from enginelaunch.engines.vllm.environment import (
    CLEARED,
    network_environment,
    visibility_environment,
)
from enginelaunch.engines.vllm.kv_events import built_ports, given_ports
from enginelaunch.engines.vllm.layout import Process
from enginelaunch.engines.vllm.prepared import BuiltArgument, PreparedProfile
from enginelaunch.shard import ShardSpec

READY_TIMEOUT = 3600.0
"""Seconds to wait for a server: loading hundreds of gigabytes from a network disk takes this long."""

_STOP = Stop(
    # A server that is still starting does not heed the first SIGTERM; a second one ends it.
    signals=(StopSignal("SIGTERM", 30.0), StopSignal("SIGTERM", 15.0), StopSignal("SIGKILL", 5.0)),
)

_MEANINGS = (
    (1, "it failed while starting or running; its last lines say why"),
    (2, "an argument is wrong"),
    (137, "it was killed, by SIGKILL or for lack of memory"),
    (143, "it was stopped while it was still importing"),
)

SERVER_EXITS = Exits(success=(0, 143), meanings=((0, "it was stopped as asked"), *_MEANINGS))
WORKER_EXITS = Exits(
    success=(), meanings=((0, "it ended; a worker that ends leaves the server hanging"), *_MEANINGS)
)


class ServePart(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a node, before it is put into a command.

    Attributes:
        shard: the node's part.
        prepared: what all ranks share.
        process: which of the deployment's processes it is.
        arguments: its built arguments, before the operator's.
    """

    shard: ShardSpec
    prepared: PreparedProfile
    process: Process
    arguments: tuple[BuiltArgument, ...]

    @classmethod
    def of(cls, shard: ShardSpec, prepared: PreparedProfile, process: Process) -> ServePart:
        """The part with its arguments built."""
        arguments = built_arguments(shard, prepared, process)
        return cls(shard=shard, prepared=prepared, process=process, arguments=tuple(arguments))

    @property
    def name(self) -> str:
        """The command's name, unique on its node."""
        if self.process.headless:
            return "worker"
        return f"server-{self.process.index}" if self.process.gpu_slice else "server"

    @property
    def http_port(self) -> int:
        """The port at which it answers."""
        return self.prepared.operator.port or self.shard.http_port + self.process.index

    @property
    def http_host(self) -> str:
        """The address on which it listens."""
        return self.prepared.operator.host or self.shard.http_host

    @property
    def answers_http(self) -> bool:
        """Whether it can be asked over HTTP at its port."""
        return not self.process.headless and self.prepared.operator.answers_http


def built_arguments(shard: ShardSpec, prepared: PreparedProfile, process: Process) -> list[BuiltArgument]:
    """The built arguments of a process, before the operator's."""
    arguments: list[BuiltArgument] = []
    if not process.headless:
        arguments.append(("--host", shard.http_host))
        arguments.append(("--port", str(shard.http_port + process.index)))
    arguments.extend(prepared.engine)
    if process.executor:
        arguments.append(("--distributed-executor-backend", process.executor))
    if process.spans_nodes:
        arguments.extend(_node_arguments(shard))
    if process.ranks:
        arguments.extend(_data_parallel_arguments(shard, prepared, process))
    if process.headless:
        arguments.append(("--headless",))
    else:
        arguments.extend(prepared.server)
    if process.has_scheduler:
        arguments.extend(prepared.kv_events.arguments)
    return arguments


def master_port(shard: ShardSpec) -> int:
    """The port at which the nodes of one replica meet."""
    return shard.leader_port or shard.ports.leader or MASTER_PORT


def data_parallel_rpc_port(shard: ShardSpec) -> int:
    """The port at which data-parallel ranks report to the leader."""
    return shard.ports.data_parallel_rpc or DATA_PARALLEL_RPC_PORT


def _node_arguments(shard: ShardSpec) -> list[BuiltArgument]:
    return [
        ("--nnodes", str(shard.nnodes)),
        ("--node-rank", _rank(shard.node_rank)),
        ("--master-addr", LeaderAddress()),
        ("--master-port", str(master_port(shard))),
    ]


def _rank(rank: int | NodeRank) -> Text:
    return str(rank) if isinstance(rank, int) else rank


def _data_parallel_arguments(
    shard: ShardSpec, prepared: PreparedProfile, process: Process
) -> list[BuiltArgument]:
    ranks = process.ranks
    assert ranks is not None
    external = shard.profile.data_parallel_mode == "external"
    hybrid = shard.profile.data_parallel_mode == "hybrid" and ranks.start_rank is not None
    arguments: list[BuiltArgument] = [("--data-parallel-size", str(shard.profile.data_parallel_size))]
    if ranks.size_local is not None:
        arguments.append(("--data-parallel-size-local", str(ranks.size_local)))
    if ranks.start_rank is not None:
        arguments.append(("--data-parallel-start-rank", _rank(ranks.start_rank)))
    if ranks.rank is not None:
        arguments.append(("--data-parallel-rank", _rank(ranks.rank)))
    if hybrid:
        arguments.append(("--data-parallel-hybrid-lb",))
    elif external and "--data-parallel-external-lb" in prepared.table.names:
        # Older releases take a rank alone for external load balancing.
        arguments.append(("--data-parallel-external-lb",))
    if ranks.address and (shard.nnodes > 1 or shard.leader_addr or shard.node_addr):
        arguments.append(("--data-parallel-address", LeaderAddress()))
    if ranks.address:
        arguments.append(("--data-parallel-rpc-port", str(data_parallel_rpc_port(shard))))
    if process.ray_data_parallel:
        arguments.append(("--data-parallel-backend", "ray"))
    return arguments


def serve_command(part: ServePart, path: str) -> Command:
    """The command for one `vllm serve` process started by the operator's node, not by Ray."""
    return make_serve_command(part, path, {**built_environment(part), **part.prepared.env}, {})


def built_environment(part: ServePart) -> dict[str, Text]:
    """The environment of a process that Ray does not place, before the profile's own."""
    shard, process = part.shard, part.process
    return {
        **network_environment(shard),
        **visibility_environment(shard, part.prepared.release, process.gpu_slice),
        **feature_environment(part),
    }


def feature_environment(part: ServePart) -> dict[str, Text]:
    """What the profile's features need in the environment of the process."""
    env: dict[str, Text] = {}
    if not part.process.headless:
        env.update(part.prepared.lora.server_env)
    if part.process.has_scheduler:
        env.update(part.prepared.kv_events.env)
    return env


def make_serve_command(
    part: ServePart,
    path: str,
    env: dict[str, Text],
    secret_env: dict[str, SecretReference],
    waits_for: tuple[Wait, ...] = (),
) -> Command:
    """Put a `vllm serve` command together.

    Args:
        part: the process.
        path: the program.
        env: its whole environment.
        secret_env: secrets of the cluster; the profile's and the API key are added.
        waits_for: what has to listen before it starts.
    """
    shard, process, prepared = part.shard, part.process, part.prepared
    operator = prepared.operator
    secrets = {**secret_env, **prepared.secret_env}
    if process.headless:
        secrets.pop("VLLM_API_KEY", None)  # requests do not reach it
    if shard.api_key is not None and not process.headless:
        secrets["VLLM_API_KEY"] = shard.api_key
    given = operator.for_headless if process.headless else operator.for_server
    return Command(
        name=part.name,
        path=path,
        args=("serve", prepared.model, *prepared.items(part.arguments), *given),
        env=FrozenDict({name: value for name, value in env.items() if name not in secrets}),
        secret_env=FrozenDict(secrets),
        clear_env=CLEARED,
        role="worker" if process.headless else "serves",
        waits_for=waits_for,
        ready=_ready(part),
        ports=listening_ports(part),
        stop=_STOP,
        exits=WORKER_EXITS if process.headless else SERVER_EXITS,
    )


def _ready(part: ServePart) -> HTTPReady | None:
    if not part.answers_http:
        return None
    return HTTPReady(
        address=SocketAddress(_probe_host(part.http_host), part.http_port),
        path=HEALTH_PATH,
        scheme=part.prepared.operator.scheme,
        timeout=READY_TIMEOUT,
    )


def _probe_host(http_host: str) -> str:
    if not is_wildcard(http_host):
        return http_host
    return "::1" if is_ipv6(http_host) and "." not in http_host else "127.0.0.1"


def listening_ports(part: ServePart) -> tuple[ListeningPort, ...]:
    """Where the process listens, as far as it is known beforehand."""
    shard, process = part.shard, part.process
    ports: list[ListeningPort] = []
    if part.answers_http:
        ports.append(ListeningPort(name="http", base=part.http_port))
    ports.extend(_grpc_ports(part))
    if process.spans_nodes and shard.is_leader:
        ports.append(ListeningPort(name="master", base=master_port(shard)))
    if process.ranks and process.ranks.address and shard.is_leader and process.index == 0:
        ports.append(ListeningPort(name="data parallel RPC", base=data_parallel_rpc_port(shard)))
    ports.extend(_kv_event_ports(part))
    return tuple(ports)


def _grpc_ports(part: ServePart) -> list[ListeningPort]:
    # --grpc puts its server in the place of the HTTP one; --grpc-port opens one beside it, at any if 0.
    operator = part.prepared.operator
    if part.process.headless:
        return []
    if "--grpc" in operator.names:
        return [ListeningPort(name="gRPC", base=part.http_port)]
    beside = operator.value("--grpc-port")
    return [ListeningPort(name="gRPC", base=beside)] if beside else []


def _kv_event_ports(part: ServePart) -> list[ListeningPort]:
    process, operator = part.process, part.prepared.operator
    if not process.has_scheduler or process.first_rank is None:
        return []
    if "--kv-events-config" in operator.names:
        bases = given_ports(operator.value("--kv-events-config"))
    else:
        bases = built_ports(part.shard.profile.kv_events)
    return [
        ListeningPort(name=name, base=base + process.first_rank, span=process.rank_count)
        for name, base in bases
    ]


def endpoint(part: ServePart) -> Endpoint:
    """Where the process takes requests."""
    wildcard = is_wildcard(part.http_host)
    process = part.process
    ranks = None
    if process.ranks and process.first_rank is not None:
        # An internal load balancer stands in front of the ranks of all nodes.
        internal = part.shard.profile.data_parallel_mode == "internal"
        last = (
            part.prepared.operator.sizes.data - 1 if internal else process.first_rank + process.rank_count - 1
        )
        ranks = (process.first_rank, last)
    return Endpoint(
        command=part.name,
        host=OwnAddress() if wildcard else part.http_host,
        port=part.http_port,
        scheme=part.prepared.operator.scheme,
        data_parallel_ranks=ranks,
    )
