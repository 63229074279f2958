"""The same deployments built by NVIDIA/srt-slurm, from a checkout of it that is given as argument.

It resolves host names, which is left out here, and validates nothing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace


def main(checkout: str, deployments: int) -> None:
    """Print the CPU time of one shard in microseconds."""
    sys.path.insert(0, str(Path(checkout) / "src"))
    from srtctl.backends.vllm import VLLMProtocol, VLLMServerConfig  # type: ignore[import-not-found]
    from srtctl.core import slurm  # type: ignore[import-not-found]

    slurm.get_hostname_ip = lambda host, _interface=None: host
    config = {"tensor-parallel-size": 8, "pipeline-parallel-size": 2, "max-model-len": 32768}
    backend = VLLMProtocol(vllm_config=VLLMServerConfig(aggregated=config))
    runtime = SimpleNamespace(
        is_hf_model=False,
        model_path=Path("/models/llama"),
        network_interface="eth0",
        frontend_port=8000,
        request_plane="tcp",
    )
    build(10, backend, runtime)
    started = time.process_time()
    build(deployments, backend, runtime)
    print((time.process_time() - started) / (2 * deployments) * 1e6)


def build(deployments: int, backend: object, runtime: object) -> int:
    """Build so many deployments of two nodes each; return how many argv items they have."""
    items = 0
    for number in range(deployments):
        network = f"10.{number // 256}.{number % 256}"
        endpoints = backend.allocate_endpoints(  # type: ignore[attr-defined]
            num_prefill=0,
            num_decode=0,
            num_agg=1,
            gpus_per_prefill=0,
            gpus_per_decode=0,
            gpus_per_agg=16,
            gpus_per_node=8,
            available_nodes=(f"{network}.1", f"{network}.2"),
        )
        processes = backend.endpoints_to_processes(endpoints, frontend_type="vllm")  # type: ignore[attr-defined]
        for process in processes:
            command = backend.build_worker_command(  # type: ignore[attr-defined]
                process, processes, runtime, frontend_type="vllm"
            )
            items += len(command) + len(backend.get_process_environment(process))  # type: ignore[attr-defined]
    return items


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
