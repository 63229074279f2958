"""What a node's processes find in their environment: addresses, interfaces, visible GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from enginelaunch.command import OwnAddress, Text
from enginelaunch.engines.vllm.layout import Process
from enginelaunch.engines.vllm.releases import at_least
from enginelaunch.findings import Finding
from enginelaunch.shard import GPU, Platform, ShardSpec
from enginelaunch.spec import shown

VISIBILITY_VARIABLES: dict[Platform, tuple[tuple[str, str, str], ...]] = {
    "cuda": (("0.8.5", "CUDA_VISIBLE_DEVICES", ""),),
    # vLLM copies HIP_VISIBLE_DEVICES into CUDA_VISIBLE_DEVICES itself, and refuses two that differ.
    "rocm": (("0.8.5", "HIP_VISIBLE_DEVICES", ""),),
    "xpu": (("0.8.5", "ONEAPI_DEVICE_SELECTOR", "level_zero:"), ("0.10.1", "ZE_AFFINITY_MASK", "")),
    "cpu": (),
}
"""From which release on: the variable that says which GPUs are visible, and what its value begins with.

From device_control_env_var in vllm/platforms of each release."""

CLEARED = ("VLLM_PORT", "VLLM_DP_")
"""Variables that must not be inherited: Kubernetes sets VLLM_PORT to a URI for a service named vllm, and
vLLM takes ports from it; VLLM_DP_* are read where no data-parallel flag stands."""

REFUSED_ENV = {
    "VLLM_HOST_IP": "it is each node's own address",
    "HOST_IP": "it is each node's own address",
    "VLLM_DP_RANK": "it differs from rank to rank",
    "VLLM_DP_RANK_LOCAL": "it differs from rank to rank",
    "VLLM_DP_SIZE": "it follows from data_parallel_size",
    "VLLM_DP_MASTER_IP": "it follows from the nodes",
    "VLLM_DP_MASTER_PORT": "it follows from the nodes",
    "RANK": "it differs from rank to rank",
    "LOCAL_RANK": "it differs from rank to rank",
    "NODE_RANK": "it differs from node to node",
    "RAY_ADDRESS": "it is the address of the first node",
    "RAY_AUTH_TOKEN": "set cluster_token",
    "RAY_AUTH_TOKEN_PATH": "set cluster_token",
    "RAY_AUTH_MODE": "set cluster_token",
}
"""Variables that Profile.env may not set: every node gets the same ones, and the nodes would disagree."""

_PORT = re.compile(r"[0-9]{1,5}")
_FULL_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def network_environment(shard: ShardSpec) -> dict[str, Text]:
    """The node's own address and interface.

    Facts: NCCL takes a name for a prefix unless '=' stands in front; Gloo and TensorPipe take the
    plain name only.
    """
    env = own_address_environment(shard)
    if shard.interface is not None:
        env["GLOO_SOCKET_IFNAME"] = shard.interface
        env["TP_SOCKET_IFNAME"] = shard.interface
        env["NCCL_SOCKET_IFNAME"] = f"={shard.interface}"
    return env


def own_address_environment(shard: ShardSpec) -> dict[str, Text]:
    """The node's own address, where it has one or other nodes need it."""
    return {"VLLM_HOST_IP": OwnAddress()} if shard.node_addr is not None or shard.nnodes > 1 else {}


def visibility_environment(
    shard: ShardSpec, release: str, gpu_slice: tuple[int, int] | None = None
) -> dict[str, Text]:
    """Which GPUs the processes see; empty when all of the node's are theirs.

    Args:
        shard: the node's part.
        release: a release of the catalogue.
        gpu_slice: first and last + 1 of the node's GPUs that a process may use; None for all.
    """
    variables = [row for row in VISIBILITY_VARIABLES[shard.platform] if at_least(release, row[0])]
    ids = _visible_ids(shard.gpus, gpu_slice)
    if not variables or not ids:
        return {}
    _, name, prefix = variables[-1]
    env: dict[str, Text] = {name: prefix + ",".join(ids)}
    if shard.platform == "cuda" and any(gpu_id.isdecimal() for gpu_id in ids):
        # CUDA counts the fastest GPU first by default, and everything else counts by PCI address.
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return env


def _visible_ids(gpus: Sequence[GPU] | None, gpu_slice: tuple[int, int] | None) -> tuple[str, ...]:
    ids = tuple(gpu.id for gpu in gpus or () if gpu.id is not None)
    if gpu_slice is None:
        return ids
    first, stop = gpu_slice
    return ids[first:stop] if ids else tuple(str(index) for index in range(first, stop))


def visibility_findings(shard: ShardSpec, release: str) -> list[Finding]:
    """GPU ids that the platform or the release does not take.

    Facts: vLLM reads each entry as a number up to 0.23; from 0.24 on it asks NVML for a full UUID, which
    does not know short ones, and for a MIG id the index within its parent.
    """
    findings: list[Finding] = []
    gpus = shard.gpus or ()
    if shard.platform == "cpu" and gpus:
        findings.append(
            _gpu_finding("error", f"platform cpu has no GPUs, but {len(gpus)} are given", "leave gpus out")
        )
        return findings
    for gpu in gpus:
        if gpu.id is None or gpu.has_integer_id:
            continue
        if shard.platform != "cuda":
            findings.append(
                _gpu_finding(
                    "error", f"GPU {gpu.id!r}: vLLM takes indices on {shard.platform}", "give it as 0, 1, …"
                )
            )
        elif not at_least(release, "0.24.0"):
            findings.append(
                _gpu_finding(
                    "error",
                    f"GPU {gpu.id!r}: vLLM {release} takes indices only",
                    "give indices, or use 0.24.0 or newer, which takes full UUIDs",
                )
            )
        elif gpu.id.startswith("MIG-"):
            findings.append(
                _gpu_finding(
                    "warning",
                    f"GPU {gpu.id!r}: vLLM looks at the parent GPU for capability, name and memory",
                    "set --max-num-batched-tokens and --max-num-seqs in args",
                )
            )
        elif not _FULL_UUID.fullmatch(gpu.id):
            findings.append(
                _gpu_finding(
                    "error",
                    f"GPU {gpu.id!r} is no index and no full UUID, and vLLM finds no GPU by anything else",
                    "give an index, or GPU- and the whole UUID as `nvidia-smi -L` shows it",
                )
            )
    return findings


def visible_gpus_findings(shard: ShardSpec, processes: Sequence[Process], replica: int) -> list[Finding]:
    """Visible GPUs with which the processes of a node could not work.

    Fact: CUDA shows one MIG device to a process.
    """
    findings: list[Finding] = []
    slices = [gpu for gpu in shard.gpus or () if gpu.id is not None and gpu.id.startswith("MIG-")]
    if replica > 1 and len(slices) > 1:
        findings.append(
            _gpu_finding(
                "error",
                f"a replica over {replica} GPUs cannot use MIG slices: CUDA shows one of them to a process",
                "use whole GPUs, or sizes of 1 and one slice",
            )
        )
    if any(process.gpu_slice for process in processes):
        findings += [
            Finding(
                severity="error",
                code="refused-variable",
                message=f"{name} in env gives {len(processes)} servers of one node the same GPUs",
                hint="leave it out, and list the ids in nodes[].gpus",
                where=f"profile.env.{name}",
            )
            for name in shard.profile.env
            if name in visibility_variables(shard.platform)
        ]
    return findings


def visibility_variables(platform: Platform) -> frozenset[str]:
    """The variables that say which GPUs are visible, in any release."""
    names = {name for _, name, _ in VISIBILITY_VARIABLES[platform]}
    return frozenset({*names, "CUDA_VISIBLE_DEVICES"} if platform == "rocm" else names)


def _gpu_finding(severity: str, message: str, hint: str) -> Finding:
    return Finding(
        severity="error" if severity == "error" else "warning",
        code="gpu-id",
        message=message,
        hint=hint,
        where="node.gpus",
    )


def environment_findings(shard: ShardSpec, http_ports: range) -> list[Finding]:
    """Variables in Profile.env that would make the nodes disagree or break the engine."""
    findings = [
        Finding(
            severity="error",
            code="refused-variable",
            message=f"{name} cannot stand in env, which is the same on every node: {REFUSED_ENV[name]}",
            hint="leave it out",
            where=f"profile.env.{name}",
        )
        for name in shard.profile.env
        if name in REFUSED_ENV
    ]
    if shard.api_key is not None and "VLLM_API_KEY" in shard.profile.env:
        findings.append(
            Finding(
                severity="error",
                code="refused-variable",
                message="VLLM_API_KEY is what api_key sets, and both are given",
                hint="leave one of them out",
                where="profile.env.VLLM_API_KEY",
            )
        )
    port = shard.profile.env.get("VLLM_PORT")
    if port is not None:
        findings.extend(_port_findings(shard, port, http_ports))
    seed = shard.profile.env.get("PYTHONHASHSEED")
    if shard.profile.kv_events is not None and isinstance(seed, str) and not seed.isdecimal():
        findings.append(
            Finding(
                severity="error",
                code="refused-variable",
                message=f"PYTHONHASHSEED {seed!r} gives each process other block hashes",
                hint="set kv_events.hash_seed to a number",
                where="profile.env.PYTHONHASHSEED",
            )
        )
    return findings


def _port_findings(shard: ShardSpec, port: object, http_ports: range) -> list[Finding]:
    message = ""
    if shard.nnodes > 1:
        message = "VLLM_PORT is a base for internal ports, and nodes that share one collide on it"
    elif not isinstance(port, str) or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        message = f"VLLM_PORT must be a number from 1 to 65535, not {shown(port)}"
    elif int(port) in http_ports:
        message = f"VLLM_PORT is a base for internal ports, and {port} is the server's own port"
    if not message:
        return []
    return [
        Finding(
            severity="error",
            code="refused-variable",
            message=message,
            hint="leave it out; the server's port is http_port",
            where="profile.env.VLLM_PORT",
        )
    ]
