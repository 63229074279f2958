"""The maker, run on the wheel of a release, gives the data that are shipped for that release."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from conftest import not_set_up
from packaging.version import Version
from real_vllm import SET_UP_COMMANDS

from enginelaunch.engines.catalogue import Catalogue, ReleaseContents
from enginelaunch.engines.make_catalogue import WheelTexts, make, read_wheel, release_of_wheel
from enginelaunch.engines.vllm import sources

WHEELS_VARIABLE = "ENGINELAUNCH_VLLM_WHEELS"


def wheels_in(environ: Mapping[str, str]) -> list[Path]:
    """Return the wheels in the folder that the environment names; none if it names no folder."""
    folder = environ.get(WHEELS_VARIABLE)
    return sorted(Path(folder).glob("*.whl")) if folder else []


WHEELS = wheels_in(os.environ)


@pytest.fixture(params=WHEELS or [None], ids=lambda wheel: release_of_wheel(wheel) if wheel else "no wheel")
def wheel(request: pytest.FixtureRequest) -> Path:
    """Return each wheel that is there."""
    if not os.environ.get(WHEELS_VARIABLE):
        not_set_up(f"{WHEELS_VARIABLE} not set; run: {SET_UP_COMMANDS}")
    if request.param is None:
        not_set_up(f"no wheel in {os.environ[WHEELS_VARIABLE]}, which {WHEELS_VARIABLE} names")
    return Path(request.param)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue.load("vllm")


def shipped(catalogue: Catalogue, release: str) -> ReleaseContents:
    return ReleaseContents(catalogue.flags(release), catalogue.config_classes(release))


def differences(read: ReleaseContents, expected: ReleaseContents) -> list[str]:
    """Return what differs, one line each."""
    pairs = (
        ({one.name: one for one in read.flags}, {one.name: one for one in expected.flags}),
        ({one.name: one for one in read.config_classes}, {one.name: one for one in expected.config_classes}),
    )
    return [
        f"{name}: read {ours.get(name)}, shipped {theirs.get(name)}"
        for ours, theirs in pairs
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    ]


def test_a_wheel_gives_the_data_that_are_shipped(catalogue: Catalogue, wheel: Path, tmp_path: Path) -> None:
    release = release_of_wheel(wheel)
    assert make("vllm", [wheel], [], tmp_path) == [release]
    assert differences(shipped(Catalogue(tmp_path), release), shipped(catalogue, release)) == []


class ChangedTexts(Mapping[str, str]):
    """The texts of a wheel with one thing replaced wherever it stands."""

    def __init__(self, texts: Mapping[str, str], old: str, new: str) -> None:
        self.texts, self.old, self.new = texts, old, new

    def __getitem__(self, name: str) -> str:
        return self.texts[name].replace(self.old, self.new)

    def __contains__(self, name: object) -> bool:
        return name in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        ('"-tp"', '"-tq"', {"--tensor-parallel-size"}),
        ("max_num_seqs: int", "max_num_seqs: str", {"--max-num-seqs"}),
        ("buffer_steps: int", "buffer_stages: int", {"KVEventsConfig"}),
    ],
)
def test_a_wheel_with_one_thing_changed_differs(
    catalogue: Catalogue, old: str, new: str, differing: set[str]
) -> None:
    newest = max(WHEELS, key=lambda wheel: Version(release_of_wheel(wheel)), default=None)
    if newest is None:
        not_set_up(f"{WHEELS_VARIABLE} names no folder with wheels; run: {SET_UP_COMMANDS}")
    with zipfile.ZipFile(newest) as archive:
        read = sources.read_release(ChangedTexts(WheelTexts(archive, sources.PACKAGE), old, new))
    expected = shipped(catalogue, release_of_wheel(newest))
    assert differences(read_wheel(newest, sources), expected) == []
    assert {text.partition(":")[0] for text in differences(read, expected)} == differing
