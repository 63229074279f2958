"""One node's part of what is served, and on what."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    InstanceOf,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from enginelaunch.addresses import is_only_this_machine
from enginelaunch.command import NodeRank, PlaceholderValues
from enginelaunch.profile import Profile
from enginelaunch.spec import (
    Address,
    Count,
    Interface,
    NonEmptyText,
    Port,
    Secret,
    Size,
    Spec,
    explained,
    placed,
    shown,
)

Platform = Literal["cuda", "rocm", "xpu", "cpu"]
"""What computes: NVIDIA, AMD or Intel GPUs, or the processor."""

LaunchMode = Literal["mp", "ray"]
"""How the processes of several nodes come together: the engine's own, or a Ray cluster."""


class ComputeCapability(Spec):
    """What an NVIDIA GPU's instruction set is, as a pair; never a float, since 12.1 is not 12.10.

    Example:
        >>> ComputeCapability.parse("9.0") < ComputeCapability.parse("12.0")
        True
        >>> str(ComputeCapability.parse("sm_103"))
        '10.3'
    """

    major: Count
    """The number before the dot."""

    minor: Count
    """The number after the dot."""

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read `9.0`, `sm_90` or `sm_103a`.

        Raises:
            ValueError: the text is no compute capability.
        """
        match = re.fullmatch(r"(\d+)\.(\d+)|sm_?(\d+)(\d)[af]?", text.strip())
        if not match:
            raise ValueError(f"{text!r} is no compute capability; write it like '9.0' or 'sm_90'")
        major, minor = (match[1], match[2]) if match[1] else (match[3], match[4])
        return cls(major=int(major), minor=int(minor))

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, float):
            raise explained("capability", f"write it as text, '{value}' in quotes: a number loses a zero")
        if isinstance(value, str):
            try:
                parsed = cls.parse(value)
            except ValueError as error:
                raise explained("capability", str(error)) from None
            return {"major": parsed.major, "minor": parsed.minor}
        return value

    def __str__(self) -> str:
        """Both numbers with a dot between them."""
        return f"{self.major}.{self.minor}"

    def __lt__(self, other: ComputeCapability) -> bool:
        """Whether it is older, number by number."""
        if not isinstance(other, ComputeCapability):
            return NotImplemented
        return (self.major, self.minor) < (other.major, other.minor)

    def __le__(self, other: ComputeCapability) -> bool:
        """Whether it is older or the same."""
        if not isinstance(other, ComputeCapability):
            return NotImplemented
        return (self.major, self.minor) <= (other.major, other.minor)

    def __gt__(self, other: ComputeCapability) -> bool:
        """Whether it is newer."""
        return NotImplemented if not isinstance(other, ComputeCapability) else other < self

    def __ge__(self, other: ComputeCapability) -> bool:
        """Whether it is newer or the same."""
        return NotImplemented if not isinstance(other, ComputeCapability) else other <= self


MOST_INDEX = 65535
"""No machine has as many GPUs; a larger index is a slip."""


def _gpu_id(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise explained("gpus", f"an index is 0 or more, not {shown(value)}")
        if value > MOST_INDEX:
            raise explained("gpus", f"an index is {MOST_INDEX} at most, not {shown(value)}")
        return str(value)
    if isinstance(value, str) and (not value.strip() or "," in value or "\0" in value):
        raise explained("gpus", f"an id is one index, UUID or MIG id, not {value!r}")
    return value


class GPU(Spec):
    """A GPU of a node, or a slice of one.

    Example:
        >>> GPU(id=3).id
        '3'
    """

    id: Annotated[NonEmptyText | None, BeforeValidator(_gpu_id)] = None
    """What the platform calls it: an index, a UUID or a MIG id, kept as text; None when any will do."""

    name: NonEmptyText | None = None
    """Its model, such as `H100`, as a person or the driver names it."""

    compute_capability: ComputeCapability | None = None
    """Its compute capability, when it is an NVIDIA GPU and this is known."""

    @property
    def has_integer_id(self) -> bool:
        """Whether its id is an index, whose meaning depends on the order of the devices."""
        return self.id is not None and self.id.isascii() and self.id.isdecimal()


_COUNT_OF_MODEL = re.compile(r"(\d+)\s*[x×]\s*(\S.*)")  # noqa: RUF001 - people type the sign


def _gpus(value: Any) -> Any:
    if isinstance(value, str):
        match = _COUNT_OF_MODEL.fullmatch(value.strip())
        if not match:
            raise explained(
                "gpus", f"give a count, a list of ids, or a count and a model like '8 x H100', not {value!r}"
            )
        return (GPU(name=match[2].strip()),) * _gpu_count(int(match[1][:9]))
    if isinstance(value, int) and not isinstance(value, bool):
        _gpu_count(value)
        return _ANONYMOUS.get(value) or (GPU(),) * value
    if isinstance(value, (list, tuple)):
        return _distinct(tuple(_one_gpu(entry, index) for index, entry in enumerate(value)))
    if value is None:
        return None
    raise explained(
        "gpus", f"give a count, a list of ids, or a count and a model like '8 x H100', not {value!r}"
    )


def _gpu_count(count: int) -> int:
    if not 0 <= count <= MOST_GPUS:
        raise explained("gpus", f"the number of GPUs must be from 0 to {MOST_GPUS}, not {shown(count)}")
    return count


def _one_gpu(entry: Any, index: int) -> GPU:
    if isinstance(entry, GPU):
        return entry
    if isinstance(entry, (str, int)) and not isinstance(entry, bool):
        return GPU(id=str(_gpu_id(entry)))
    if isinstance(entry, dict):
        try:
            return GPU.model_validate(entry)
        except ValidationError as error:
            raise placed(error, index) from None
    raise explained("gpus", f"an id is an index, a UUID or a MIG id, not {entry!r}")


def _device(gpu: GPU) -> str:
    """A text that is equal for two spellings of one device: 01 is 1, and a UUID has no case."""
    text = gpu.id or ""
    return text.lstrip("0") or "0" if gpu.has_integer_id else text.lower()


def _distinct(gpus: tuple[GPU, ...]) -> tuple[GPU, ...]:
    seen: set[str] = set()
    for gpu in gpus:
        if gpu.id is None:
            continue
        same = _device(gpu)
        if same in seen:
            raise explained("gpus", f"GPU {gpu.id!r} is there twice")
        seen.add(same)
    if seen and any(gpu.id is None for gpu in gpus):
        raise explained("gpus", "give every GPU of a node an id, or none")
    return gpus


MOST_GPUS = 1024
"""More GPUs than any machine has; a larger number is a slip."""

_ANONYMOUS = {count: (GPU(),) * count for count in range(1, 17)}

_GPU_ID_SCHEMA = {"type": ["integer", "string"], "minimum": 0, "minLength": 1}
_GPU_SCHEMA = {
    "type": "object",
    "properties": {
        "id": _GPU_ID_SCHEMA,
        "name": {"type": "string", "minLength": 1},
        "compute_capability": {"type": "string", "pattern": r"^(\d+\.\d+|sm_?\d{2,}[af]?)$"},
    },
    "additionalProperties": False,
}

GPUs = Annotated[
    tuple[InstanceOf[GPU], ...],
    BeforeValidator(_gpus),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "array", "items": {"anyOf": [_GPU_ID_SCHEMA, _GPU_SCHEMA]}},
                {"type": "string", "pattern": r"^\s*\d+\s*[x×]\s*\S"},  # noqa: RUF001 - as above
            ]
        }
    ),
]
"""GPUs of a node: a count, a list of ids, `8 x H100`, or `GPU` objects."""


class RayPorts(Spec):
    """Ports of a Ray cluster, for networks where only pinned ports are open; Ray picks what is left out.

    Example:
        >>> RayPorts(node_manager=6380, min_worker=10100, max_worker=10199).worker_span
        100
    """

    node_manager: Port | None = None
    """Node manager, on every node."""

    object_manager: Port | None = None
    """Object manager, on every node."""

    min_worker: Port | None = None
    """First port of the workers, on every node."""

    max_worker: Port | None = None
    """Last port of the workers, on every node."""

    client_server: Port | None = None
    """Ray client server, on the head."""

    metrics_export: Port | None = None
    """Metrics of a node, on every node."""

    autoscaler_metrics: Port | None = None
    """Metrics of the autoscaler, on the head."""

    dashboard_agent_grpc: Port | None = None
    """Dashboard agent, gRPC, on every node."""

    dashboard_agent_listen: Port | None = None
    """Dashboard agent, HTTP, on every node."""

    runtime_env_agent: Port | None = None
    """Runtime environment agent, on every node."""

    @model_validator(mode="after")
    def _worker_range(self) -> RayPorts:
        low, high = self.min_worker, self.max_worker
        if (low is None) != (high is None):
            raise explained("ports", "give min_worker and max_worker together")
        if low is not None and high is not None and low > high:
            raise explained("ports", f"min_worker {low} is above max_worker {high}")
        return self

    @property
    def worker_span(self) -> int:
        """How many ports the workers have; 0 when Ray picks them."""
        if self.min_worker is None or self.max_worker is None:
            return 0
        return self.max_worker - self.min_worker + 1


class Ports(Spec):
    """Ports at which the nodes of one deployment meet; None is the engine's own default.

    Example:
        >>> Ports(leader=29501).data_parallel_rpc is None
        True
    """

    leader: Port | None = None
    """On the leader: where nodes meet (torch.distributed, or the head of a Ray cluster)."""

    data_parallel_rpc: Port | None = None
    """On the leader: where data-parallel ranks of other nodes report."""

    ray: RayPorts = RayPorts()
    """Ports of the Ray cluster."""


NODE_RANK = NodeRank()


def _rank(value: Any) -> int | NodeRank:
    if isinstance(value, NodeRank) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise explained("rank", f"must be a whole number, or NODE_RANK, not {shown(value)}")


Rank = Annotated[
    int | NodeRank,
    PlainValidator(_rank),
    WithJsonSchema({"type": "integer", "minimum": 0}),
    PlainSerializer(lambda rank: rank if isinstance(rank, int) else "node_rank"),
]


class ShardSpec(Spec):
    """One node's part of a deployment.

    Example:
        >>> shard = ShardSpec(profile=Profile(model="m", tensor_parallel_size=16), nnodes=2, node_rank=1,
        ...                   leader_addr="10.0.0.1", node_addr="10.0.0.2", gpus=8)
        >>> shard.is_leader
        False
    """

    secret_fields: ClassVar[frozenset[str]] = frozenset({"api_key", "cluster_token"})

    profile: InstanceOf[Profile]
    """What to serve."""

    nnodes: Size = 1
    """How many nodes the deployment has."""

    node_rank: Rank = 0
    """This node's rank, from 0; `NODE_RANK` when a scheduler decides which follower it is."""

    leader_addr: Address | None = None
    """Address of the node with rank 0; None when a scheduler decides it."""

    leader_port: Port | None = None
    """Port at which the nodes meet; None is `ports.leader`, or the engine's default."""

    node_addr: Address | None = None
    """Address of this node; None when a scheduler decides it."""

    interface: Interface | None = None
    """Network interface over which the nodes talk, such as `eth0`."""

    http_host: Address = "0.0.0.0"
    """Address on which the server listens."""

    http_port: Port = 8000
    """Port on which the server listens."""

    gpus: GPUs | None = None
    """The GPUs of this node; None when they are not stated."""

    gpus_per_node: tuple[Count, ...] | None = None
    """How many GPUs each node has, in the order of their ranks; None when all have as many as this one."""

    ports: Ports = Ports()
    """Ports at which the nodes meet."""

    launch_mode: LaunchMode = "mp"
    """How the processes of several nodes come together."""

    platform: Platform = "cuda"
    """What computes."""

    api_key: Secret | None = None
    """The key that requests have to bring."""

    cluster_token: Secret | None = None
    """The token that nodes show to one another, where the cluster has one."""

    @model_validator(mode="after")
    def _consistent(self) -> ShardSpec:
        rank = self.node_rank
        if isinstance(rank, int) and not 0 <= rank < self.nnodes:
            raise explained("rank", f"node_rank must be from 0 to {self.nnodes - 1}, not {shown(rank)}")
        if self.gpus_per_node is not None and len(self.gpus_per_node) != self.nnodes:
            raise explained(
                "gpus_per_node",
                f"gpus_per_node has {len(self.gpus_per_node)} entries for {self.nnodes} nodes",
            )
        if self.nnodes == 1:
            return self
        for name, address in (("leader_addr", self.leader_addr), ("node_addr", self.node_addr)):
            if address is not None and is_only_this_machine(address):
                raise explained(
                    "address",
                    f"{name} {address} is an address of this machine alone; "
                    f"{self.nnodes} nodes need one that the others can reach",
                )
        return self

    @property
    def is_leader(self) -> bool:
        """Whether this is the node with rank 0."""
        return self.node_rank == 0

    def known_addresses(self) -> PlaceholderValues:
        """What it says of the addresses that commands have placeholders for."""
        leader, own = self.leader_addr, self.node_addr
        if self.is_leader:
            leader, own = leader or own, own or leader
        return PlaceholderValues(leader_addr=leader, node_addr=own)
