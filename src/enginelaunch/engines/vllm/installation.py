"""Find the programs and releases of a Python environment. This reads the disk; builders do not."""

from __future__ import annotations

from pathlib import Path

import msgspec

from enginelaunch.findings import LaunchError


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """Which programs commands start, and the release of Ray where it is known."""

    vllm: str
    ray: str
    ray_version: str | None


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What is installed in a Python environment.

    Attributes:
        vllm_path: the `vllm` program.
        ray_path: the `ray` program; None when there is none.
        version: the release of vLLM; None when its metadata is not there.
        ray_version: the release of Ray, likewise.
    """

    vllm_path: str
    ray_path: str | None
    version: str | None
    ray_version: str | None


def find_installation(environment: str) -> Installation:
    """Look into a Python environment.

    Args:
        environment: its folder, such as `/opt/env`, or the `vllm` program in its `bin`.

    Raises:
        LaunchError: there is no `vllm` program in it.
    """
    root = Path(environment)
    if root.is_file() and root.parent.name == "bin":
        root = root.parent.parent
    vllm = root / "bin" / "vllm"
    if not vllm.is_file():
        raise LaunchError.of(
            "not-installed",
            f"there is no {vllm}",
            hint="give the folder of the Python environment in which vLLM is installed",
            where="path",
        )
    ray = root / "bin" / "ray"
    return Installation(
        vllm_path=str(vllm),
        ray_path=str(ray) if ray.is_file() else None,
        version=_version(root, "vllm"),
        ray_version=_version(root, "ray"),
    )


def _version(root: Path, distribution: str) -> str | None:
    from importlib.metadata import distributions  # noqa: PLC0415 - imports stay light

    folders = [str(folder) for folder in sorted(root.glob("lib*/python*/site-packages"))]
    for found in distributions(name=distribution, path=folders):
        return found.version
    return None
