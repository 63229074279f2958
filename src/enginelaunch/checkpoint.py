"""What a model's or an adapter's folder says of itself. This reads the disk; builders do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from enginelaunch.findings import LaunchError
from enginelaunch.profile import LoRAAdapter, Profile

ADAPTER_CONFIG = "adapter_config.json"


def adapter_rank(folder: str | Path) -> int:
    """The largest rank of a LoRA adapter: `r`, or one that `rank_pattern` gives to some layers.

    Args:
        folder: the adapter's folder, with its adapter_config.json.

    Raises:
        LaunchError: the file is not there, cannot be read, or states no rank.
    """
    path = Path(folder) / ADAPTER_CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreadable(path, f"{path}: {reason}") from None
    ranks = _stated_ranks(config)
    if not ranks:
        raise _unreadable(path, f'{path} states no rank: "r" must be a whole number from 1 on')
    return max(ranks)


def _stated_ranks(config: Any) -> list[int]:
    if not isinstance(config, dict):
        return []
    pattern = config.get("rank_pattern")
    stated = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    return [rank for rank in stated if isinstance(rank, int) and not isinstance(rank, bool) and rank > 0]


def _unreadable(path: Path, message: str) -> LaunchError:
    return LaunchError.of(
        "unreadable-adapter",
        message,
        hint="give the folder of a LoRA adapter, or state its rank",
        where=str(path),
    )


def with_adapter_ranks(profile: Profile) -> Profile:
    """The same profile, with the rank of each adapter that states none read from its folder.

    An adapter whose path is no folder on this machine keeps its unknown rank: it may be a name on a hub,
    or a folder on the nodes.

    Raises:
        LaunchError: an adapter's folder is there, but its rank cannot be read.
    """
    lora = profile.lora
    if lora is None:
        return profile
    adapters = tuple(_with_rank(adapter) for adapter in lora.adapters)
    return profile.model_copy(update={"lora": lora.model_copy(update={"adapters": adapters})})


def _with_rank(adapter: LoRAAdapter) -> LoRAAdapter:
    if adapter.rank is not None or not Path(adapter.path).is_dir():
        return adapter
    return adapter.model_copy(update={"rank": adapter_rank(adapter.path)})
