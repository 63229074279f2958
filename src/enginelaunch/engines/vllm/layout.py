"""Which processes of a deployment run on which node, and which data-parallel ranks they hold.

Facts: vLLM's EngineArgs.create_engine_config, ParallelConfig and `vllm serve`, read in the releases
from 0.9.0 to 0.33.0. In short: replicas that fit into a node are spread by the data-parallel flags
alone; a replica that is larger than a node needs --nnodes, and vLLM then works out each node's
ranks from --node-rank.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from enginelaunch.command import NodeRank
from enginelaunch.findings import Finding, LaunchError
from enginelaunch.shard import MOST_GPUS, LaunchMode

LoadBalancing = Literal["internal", "hybrid", "external"]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The parallel sizes that count, after the operator's arguments.

    Attributes:
        tensor: tensor parallel size.
        pipeline: pipeline parallel size.
        data: data parallel size.
        prefill_context: prefill context parallel size.
        decode_context: decode context parallel size; it reuses the tensor-parallel GPUs.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    prefill_context: int = 1
    decode_context: int = 1

    @property
    def replica(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.prefill_context

    @property
    def total(self) -> int:
        """GPUs of all replicas."""
        return self.replica * self.data

    def __str__(self) -> str:
        """The sizes as a product, those that are 1 left out."""
        named = {
            "tensor_parallel_size": self.tensor,
            "pipeline_parallel_size": self.pipeline,
            "prefill_context_parallel_size": self.prefill_context,
            "data_parallel_size": self.data,
        }
        return " x ".join(f"{name} {size}" for name, size in named.items() if size > 1) or "every size is 1"


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Where the sizes have to fit.

    Attributes:
        nnodes: how many nodes there are.
        node_rank: the rank of the node asked about, or a placeholder for that of any follower.
        gpus_per_node: GPUs of each node in the order of ranks; None when they are not stated.
        launch_mode: how processes of several nodes come together.
        load_balancing: who spreads requests over the replicas.
    """

    nnodes: int = 1
    node_rank: int | NodeRank = 0
    gpus_per_node: tuple[int, ...] | None = None
    launch_mode: LaunchMode = "mp"
    load_balancing: LoadBalancing = "internal"


class DataParallelRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The data-parallel flags of one process.

    Attributes:
        size_local: how many ranks it holds; None leaves the flag out.
        start_rank: its first rank; None leaves the flag out.
        rank: its only rank, for external load balancing; None leaves the flag out.
        address: whether it has to be told where the leader is.
    """

    size_local: int | None = None
    start_rank: int | NodeRank | None = None
    rank: int | NodeRank | None = None
    address: bool = False


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One `vllm serve` on a node.

    Attributes:
        headless: it computes for a server on another node.
        has_scheduler: it holds engine cores, not only workers of another node's engine core.
        spans_nodes: it is part of a replica that is larger than its node (--nnodes).
        executor: the executor to name; None where vLLM's own choice is right.
        ray_data_parallel: Ray places the replicas.
        ray_pack_strategy: how Ray places them, when it is not vLLM's default.
        ranks: its data-parallel flags; None without data parallelism.
        first_rank: the first global data-parallel rank that it holds; None when a scheduler decides it.
        rank_count: how many global data-parallel ranks it holds.
        gpu_slice: first and last + 1 of the node's GPUs that it may use; None for all of them.
        index: its place among the servers of its node.
    """

    headless: bool = False
    has_scheduler: bool = True
    spans_nodes: bool = False
    executor: Literal["mp", "ray"] | None = None
    ray_data_parallel: bool = False
    ray_pack_strategy: Literal["fill", "span"] | None = None
    ranks: DataParallelRanks | None = None
    first_rank: int | None = 0
    rank_count: int = 1
    gpu_slice: tuple[int, int] | None = None
    index: int = 0


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on one node.

    Attributes:
        processes: the `vllm serve` processes, none on a node that only joins a Ray cluster.
        findings: what the operator should know about the layout.
    """

    processes: tuple[Process, ...]
    findings: tuple[Finding, ...] = ()


def lay_out(sizes: Sizes, cluster: Cluster) -> Layout:
    """Which processes run on the node that is asked about.

    Raises:
        LaunchError: the sizes do not fit the nodes; the hint says which would.
    """
    if cluster.launch_mode == "ray":
        _refuse_several_servers(sizes, cluster)
        return _with_ray(sizes, cluster, _gpu_counts(sizes, cluster))
    counts = _gpu_counts(sizes, cluster)
    if cluster.nnodes == 1:
        return _on_one_node(sizes, cluster)
    if sizes.data == 1:
        return _one_replica_over_nodes(sizes, cluster, counts)
    if all(count % sizes.replica == 0 for count in counts):
        return _replicas_within_nodes(sizes, cluster, tuple(count // sizes.replica for count in counts))
    return _replicas_over_nodes(sizes, cluster, counts)


def _impossible(message: str, hint: str) -> LaunchError:
    return LaunchError.of("impossible-layout", message, hint=hint, where="profile")


def _gpu_counts(sizes: Sizes, cluster: Cluster) -> tuple[int, ...]:
    stated = cluster.gpus_per_node
    if stated is None:
        each, left = divmod(sizes.total, cluster.nnodes)
        if left:
            raise _impossible(
                f"{sizes}: that makes {sizes.total} GPUs, which {cluster.nnodes} nodes cannot share evenly",
                "state the GPUs of each node, or use sizes whose product is a multiple of "
                f"{cluster.nnodes}, such as {_nearest_multiples(sizes.total, cluster.nnodes)}",
            )
        return (each,) * cluster.nnodes
    if sum(stated) != sizes.total:
        raise _impossible(
            f"{sizes}: that makes {sizes.total} GPU{'s' * (sizes.total != 1)}, but the nodes have "
            f"{' + '.join(map(str, stated))}{f' = {sum(stated)}' if len(stated) > 1 else ''}",
            _sizes_for(sizes, cluster, sum(stated)),
        )
    return stated


def _nearest_multiples(number: int, of: int) -> str:
    below, above = number // of * of, -(-number // of) * of
    return f"{above}" if below == 0 else f"{below} or {above}"


def _sizes_for(sizes: Sizes, cluster: Cluster, gpus: int) -> str:
    candidates = [
        (f"{name}_parallel_size {gpus // rest}", msgspec.structs.replace(sizes, **{name: gpus // rest}))
        for name, rest in (
            ("data", sizes.replica),
            ("tensor", sizes.total // sizes.tensor),
            ("pipeline", sizes.total // sizes.pipeline),
        )
        if gpus and gpus % rest == 0
    ]
    ways = [text for text, candidate in candidates if _is_possible(candidate, cluster)]
    ways.append(f"give {sizes.total} GPU{'s' * (sizes.total != 1)}")
    return "use " + ", or ".join(ways) if len(ways) > 1 else ways[0]


def _is_possible(sizes: Sizes, cluster: Cluster) -> bool:
    try:
        lay_out(sizes, cluster)
    except LaunchError:
        return False
    return True


def _on_one_node(sizes: Sizes, cluster: Cluster) -> Layout:
    if sizes.data == 1:
        return Layout(processes=(Process(),))
    if cluster.load_balancing == "external":
        return _external(sizes, cluster, (sizes.data,))
    if cluster.load_balancing == "hybrid":
        return _hybrid(cluster, (sizes.data,))
    return Layout(processes=(Process(ranks=DataParallelRanks(), rank_count=sizes.data),))


def _one_replica_over_nodes(sizes: Sizes, cluster: Cluster, counts: tuple[int, ...]) -> Layout:
    if len(set(counts)) > 1:
        raise _impossible(
            f"one replica over nodes with {' + '.join(map(str, counts))} GPUs: vLLM splits a replica evenly",
            f"give each node {sizes.total // cluster.nnodes} GPUs"
            if sizes.total % cluster.nnodes == 0
            else f"use sizes whose product is a multiple of {cluster.nnodes}, with as many GPUs on each node",
        )
    leader = cluster.node_rank == 0
    return Layout(
        processes=(Process(headless=not leader, has_scheduler=leader, spans_nodes=True, executor="mp"),)
    )


def _start_rank(cluster: Cluster, held: tuple[int, ...]) -> int | NodeRank:
    """The first rank of the node asked about, when each node holds that many."""
    if isinstance(cluster.node_rank, int):
        return sum(held[: cluster.node_rank])
    followers = held[1:]
    if len(set(followers)) > 1:
        raise _impossible(
            "followers whose rank a scheduler decides must be alike, "
            f"but they would hold {', '.join(map(str, followers))} data-parallel ranks",
            "give them as many GPUs each, or give every node its address",
        )
    return NodeRank(times=followers[0], plus=held[0] - followers[0])


def _held_here(cluster: Cluster, held: tuple[int, ...]) -> int:
    return held[cluster.node_rank] if isinstance(cluster.node_rank, int) else held[1]


def _replicas_within_nodes(sizes: Sizes, cluster: Cluster, held: tuple[int, ...]) -> Layout:
    if cluster.load_balancing == "external":
        return _external(sizes, cluster, held)
    if cluster.load_balancing == "hybrid":
        return _hybrid(cluster, held)
    if 0 in held[1:]:
        raise _impossible(
            f"node {held[1:].index(0) + 1} has no GPU to hold a replica",
            "leave the node out, or give it GPUs; only the leader may have none",
        )
    here = _held_here(cluster, held)
    start = _start_rank(cluster, held)
    leader = cluster.node_rank == 0
    # Presence of a start rank on a node that is not headless selects hybrid load balancing.
    ranks = DataParallelRanks(size_local=here, start_rank=None if leader else start, address=True)
    return Layout(
        processes=(
            Process(
                headless=not leader,
                has_scheduler=here > 0,
                ranks=ranks,
                first_rank=start if isinstance(start, int) else None,
                rank_count=here,
            ),
        )
    )


def _hybrid(cluster: Cluster, held: tuple[int, ...]) -> Layout:
    if 0 in held:
        raise _impossible(
            f"node {held.index(0)} has no GPU to hold a replica, and in hybrid mode every node serves",
            "give each node GPUs, or use data_parallel_mode: internal",
        )
    if 1 in held and set(held) != {1}:
        raise _impossible(
            f"the nodes would hold {', '.join(map(str, held))} data-parallel ranks: vLLM turns hybrid into "
            "external load balancing on a node with one, and the nodes would disagree",
            "give each node at least two ranks, or use data_parallel_mode: internal",
        )
    here = _held_here(cluster, held)
    start = _start_rank(cluster, held)
    process = Process(
        ranks=DataParallelRanks(size_local=here, start_rank=start, address=cluster.nnodes > 1),
        first_rank=start if isinstance(start, int) else None,
        rank_count=here,
    )
    return Layout(processes=(process,), findings=_hybrid_findings(held))


def _hybrid_findings(held: tuple[int, ...]) -> tuple[Finding, ...]:
    if len(held) == 1:
        same_as, why = "internal", "there is one node"
    elif held[0] == 1:
        same_as, why = "external", "each node holds one data-parallel rank"
    else:
        return ()
    return (
        Finding(
            severity="info",
            code="hybrid-is-another-mode",
            message=f"{why}, so vLLM treats hybrid load balancing as {same_as}",
            hint=f"data_parallel_mode: {same_as} says the same",
            where="profile.data_parallel_mode",
        ),
    )


def _external(sizes: Sizes, cluster: Cluster, held: tuple[int, ...]) -> Layout:
    if 0 in held:
        raise _impossible(
            f"node {held.index(0)} has no GPU to hold a replica, and in external mode every node serves",
            "give each node GPUs, or use data_parallel_mode: internal",
        )
    here = _held_here(cluster, held)
    if here > MOST_GPUS:
        raise _impossible(
            f"one node would run {here} servers, one a replica",
            f"state the nodes and their GPUs; a node has at most {MOST_GPUS}",
        )
    start = _start_rank(cluster, held)
    return Layout(
        processes=tuple(
            Process(
                ranks=DataParallelRanks(rank=_plus(start, index), address=True),
                first_rank=start + index if isinstance(start, int) else None,
                gpu_slice=None if here == 1 else (index * sizes.replica, (index + 1) * sizes.replica),
                index=index,
            )
            for index in range(here)
        )
    )


def _plus(rank: int | NodeRank, more: int) -> int | NodeRank:
    return rank + more if isinstance(rank, int) else NodeRank(times=rank.times, plus=rank.plus + more)


def _replicas_over_nodes(sizes: Sizes, cluster: Cluster, counts: tuple[int, ...]) -> Layout:
    count = counts[0]
    if len(set(counts)) > 1 or sizes.replica % count:
        raise _impossible(
            f"replicas of {sizes.replica} GPUs neither fit into nodes with "
            f"{', '.join(map(str, sorted(set(counts))))} GPUs nor fill them",
            "use a tensor_parallel_size x pipeline_parallel_size that divides a node's GPUs, "
            "or a multiple of them with as many GPUs on each node",
        )
    if cluster.load_balancing == "hybrid":
        raise _impossible(
            f"hybrid load balancing needs whole replicas on each node, but one has {sizes.replica} GPUs "
            f"and a node {count}",
            "use data_parallel_mode: external (the first node of each replica serves) or internal",
        )
    nodes_per_replica = sizes.replica // count
    external = cluster.load_balancing == "external"
    rank = cluster.node_rank
    if not isinstance(rank, int):
        if external:
            raise _impossible(
                "in external mode the first node of each replica serves and the others do not, "
                "so followers that are larger than a node need known ranks",
                "give every node its address, or use data_parallel_mode: internal",
            )
        ranks = DataParallelRanks(address=True)
        return Layout(
            processes=(Process(headless=True, spans_nodes=True, executor="mp", ranks=ranks, first_rank=None),)
        )
    replica, place = divmod(rank, nodes_per_replica)
    return Layout(
        processes=(
            Process(
                headless=place > 0 if external else rank > 0,
                has_scheduler=place == 0,
                spans_nodes=True,
                executor="mp",
                ranks=DataParallelRanks(address=True),
                first_rank=replica,
            ),
        )
    )


def _refuse_several_servers(sizes: Sizes, cluster: Cluster) -> None:
    if sizes.data > 1 and cluster.load_balancing != "internal":
        raise _impossible(
            f"launch_mode ray starts one server, so {cluster.load_balancing} load balancing cannot be had",
            "use launch_mode: mp, or data_parallel_mode: internal",
        )


def _with_ray(sizes: Sizes, cluster: Cluster, counts: tuple[int, ...]) -> Layout:
    if cluster.node_rank != 0:
        return Layout(processes=())
    if sizes.data == 1:
        return Layout(processes=(Process(executor="ray"),))
    if all(count % sizes.replica == 0 for count in counts):
        held = tuple(count // sizes.replica for count in counts)
        even = len(set(held)) == 1
        return Layout(
            processes=(
                Process(
                    executor="ray",
                    ray_data_parallel=True,
                    ray_pack_strategy=None if even else "fill",
                    ranks=DataParallelRanks(size_local=held[0], address=True),
                    rank_count=sizes.data,
                ),
            )
        )
    if len(set(counts)) > 1 or sizes.replica % counts[0]:
        raise _impossible(
            f"replicas of {sizes.replica} GPUs neither fit into nodes with "
            f"{', '.join(map(str, sorted(set(counts))))} GPUs nor fill them",
            "use a tensor_parallel_size x pipeline_parallel_size that divides a node's GPUs, "
            "or a multiple of them with as many GPUs on each node",
        )
    return Layout(
        processes=(
            Process(
                executor="ray",
                ray_data_parallel=True,
                ray_pack_strategy="span",
                ranks=DataParallelRanks(address=True),
                rank_count=sizes.data,
            ),
        )
    )
