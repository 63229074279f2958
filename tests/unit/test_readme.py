"""What the README shows is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from enginelaunch import Deployment, plan
from enginelaunch.deployment import Node
from enginelaunch.profile import KVEvents, LoRA, LoRAAdapter, Profile
from enginelaunch.shard import Ports, RayPorts
from enginelaunch.spec import Spec

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_its_deployment_file_plans_without_a_finding() -> None:
    (text,) = blocks("yaml")
    assert plan(Deployment.from_yaml_text(text)).findings == ()


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    (tmp_path / "deployment.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(blocks("python")[number], "README.md", "exec"), names)
    assert {"planned", "engine"} & names.keys()


@pytest.mark.parametrize(
    "spec",
    [Deployment, Node, Profile, LoRA, LoRAAdapter, KVEvents, Ports, RayPorts],
    ids=lambda s: s.__name__,
)
def test_it_names_every_field(spec: type[Spec]) -> None:
    assert [field for field in spec.model_fields if f"`{field}`" not in README] == []
