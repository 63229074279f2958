"""What an adapter's folder says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginelaunch import LaunchError, LoRA, LoRAAdapter, Profile
from enginelaunch.checkpoint import adapter_rank, with_adapter_ranks


def adapter_folder(folder: Path, config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("config", "rank"),
    [
        ({"r": 24}, 24),
        ({"r": 8, "rank_pattern": {"q_proj": 64, "v_proj": 4}}, 64),
        ({"r": 8, "rank_pattern": {}}, 8),
        ({"r": 8, "rank_pattern": None}, 8),
    ],
)
def test_the_rank_is_the_largest_that_the_adapter_uses(
    tmp_path: Path, config: dict[str, Any], rank: int
) -> None:
    assert adapter_rank(adapter_folder(tmp_path, config)) == rank


@pytest.mark.parametrize("config", [{}, {"r": "8"}, {"r": True}, {"r": 0}, [8], None])
def test_an_adapter_that_states_no_rank_is_an_error(tmp_path: Path, config: Any) -> None:
    with pytest.raises(LaunchError) as raised:
        adapter_rank(adapter_folder(tmp_path, config))
    path = tmp_path / "adapter_config.json"
    assert str(raised.value) == (
        f'error: {path}: {path} states no rank: "r" must be a whole number from 1 on '
        "(give the folder of a LoRA adapter, or state its rank) [unreadable-adapter]"
    )


def test_a_folder_without_a_config_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="No such file or directory"):
        adapter_rank(tmp_path)


def test_ranks_are_read_only_where_they_are_not_stated_and_the_folder_is_here(tmp_path: Path) -> None:
    here = str(adapter_folder(tmp_path / "here", {"r": 24}))
    adapters = (
        LoRAAdapter(name="a", path=here),
        LoRAAdapter(name="b", path=here, rank=8),
        LoRAAdapter(name="c", path="owner/on-a-hub"),
    )
    read = with_adapter_ranks(Profile(model="m", lora=LoRA(adapters=adapters)))
    assert read.lora is not None
    assert [adapter.rank for adapter in read.lora.adapters] == [24, 8, None]


def test_a_profile_without_adapters_stays_as_it_is() -> None:
    profile = Profile(model="m")
    assert with_adapter_ranks(profile) is profile
