"""What each release of an engine accepts on its command line, read from data that is shipped.

The data are made from the engine's released sources by `enginelaunch.engines.make_catalogue`. A flag
has a history: from which release on it looks how, and from which on it is gone.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from packaging.version import Version

from enginelaunch.argv import Flag
from enginelaunch.engines.catalogue_data import (
    CLASSES_FILE,
    FLAGS_FILE,
    REMOVED_FILE,
    ClassEntry,
    ClassesFile,
    ConfigClass,
    ConfigField,
    FlagsFile,
    ReleaseContents,
    Releases,
    RemovedFlag,
    UnknownReleaseError,
)

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = [
    "ENGINES",
    "Catalogue",
    "ConfigClass",
    "ConfigField",
    "Reason",
    "ReleaseChoice",
    "ReleaseContents",
    "RemovedFlag",
    "UnknownReleaseError",
]

ENGINES: Final = ("vllm",)
"""The engines of which there is a catalogue."""

Reason = Literal["exact", "newest_known_below", "newest_assumed_newer", "newest_not_given"]
"""Why a release was chosen for a version."""


@dataclass(frozen=True, slots=True)
class ReleaseChoice:
    """The release by whose flags a version is read.

    Attributes:
        release: the release, such as `0.32.0`.
        requested: the version asked for, as it was written; None when none was given.
        reason: `exact` when the numbers are those of the release, `newest_known_below` when the version
            lies between two known releases, `newest_assumed_newer` when it is above the newest one,
            `newest_not_given` when no version was given.
    """

    release: str
    requested: str | None
    reason: Reason


class Catalogue:
    """The flags and configuration classes of every known release of one engine.

    Use `Catalogue.load`, which reads each engine's data once per process.

    Args:
        folder: the folder that holds the data files. The flags are read at once, and the other files
            when something in them is first asked for.

    Attributes:
        engine: the engine's name.
        releases: the known releases, ascending.

    Example:
        >>> catalogue = Catalogue.load("vllm")
        >>> catalogue.choose("0.32.0+cu130").release
        '0.32.0'
        >>> catalogue.first_release("--nnodes")
        '0.11.1'
    """

    def __init__(self, folder: Traversable) -> None:
        self._folder = folder
        contents = msgspec.json.decode((folder / FLAGS_FILE).read_bytes(), type=FlagsFile)
        self.engine = contents.engine
        self.releases = contents.releases
        self._releases = Releases(contents.releases)
        self._flags = contents.flags
        self._flags_of: dict[str, tuple[Flag, ...]] = {}

    @staticmethod
    def load(engine: str) -> Catalogue:
        """Returns the catalogue of an engine.

        Raises:
            ValueError: there is no catalogue of that engine.
        """
        return _loaded(engine)

    def choose(self, version: str | None) -> ReleaseChoice:
        """Finds the release by whose flags a version is to be read: the newest known one not above it.

        Only the release numbers count: post-releases, local and development builds are read like the
        release they belong to, and so is a release candidate.

        Args:
            version: the version; None when it is not known, which stands for the newest release.

        Raises:
            UnknownReleaseError: the version is below the first known release.
            ValueError: the text is no version.
        """
        if version is None:
            return ReleaseChoice(self.releases[-1], None, "newest_not_given")
        if not isinstance(version, str):
            raise ValueError(f"a version is text such as '0.32.0', not {type(version).__name__}")
        wanted = _release_numbers(version)
        known = [_release_numbers(release) for release in self.releases]
        place = bisect_right(known, wanted) - 1
        if place < 0:
            raise UnknownReleaseError(
                f"{self.engine} {version} is older than every known release: "
                f"{self.releases[0]} is the first, {self.releases[-1]} the last"
            )
        reason: Reason = "newest_known_below" if place + 1 < len(known) else "newest_assumed_newer"
        return ReleaseChoice(self.releases[place], version, "exact" if known[place] == wanted else reason)

    def flags(self, release: str) -> tuple[Flag, ...]:
        """Returns all flags of a release, sorted by name; a positional argument has a name without dashes.

        Raises:
            UnknownReleaseError: the release is not one of `releases`.
        """
        if release not in self._flags_of:
            place = self._releases.place(release)
            self._flags_of[release] = tuple(
                entry.flag(name)
                for name, history in self._flags.items()
                if (entry := self._releases.entry(history, place)) is not None
            )
        return self._flags_of[release]

    def config_class(self, release: str, name: str) -> ConfigClass | None:
        """Returns a configuration class as it is in a release, or None when that has no such class.

        Raises:
            UnknownReleaseError: the release is not one of `releases`.
        """
        place = self._releases.place(release)
        entry = self._classes.get(name)
        extra = self._releases.entry(entry.extra, place) if entry else None
        if entry is None or extra is None:
            return None
        fields = (
            found.config_field(field)
            for field, history in entry.fields.items()
            if (found := self._releases.entry(history, place)) is not None
        )
        return ConfigClass(name, tuple(fields), extra)

    def config_classes(self, release: str) -> tuple[ConfigClass, ...]:
        """Returns all configuration classes of a release, sorted by name.

        Raises:
            UnknownReleaseError: the release is not one of `releases`.
        """
        found = (self.config_class(release, name) for name in self._classes)
        return tuple(cls for cls in found if cls is not None)

    def first_release(self, flag_spelling: str) -> str | None:
        """Returns the first release that accepts this exact spelling; None when none does."""
        span = self._spans.get(flag_spelling)
        return span[0] if span else None

    def last_release(self, flag_spelling: str) -> str | None:
        """Returns the last release that accepts this exact spelling; None when none does."""
        span = self._spans.get(flag_spelling)
        return span[1] if span else None

    def removed(self, flag_spelling: str) -> RemovedFlag | None:
        """Returns what is known of a flag's removal; None when nothing is."""
        return self._removed.get(flag_spelling)

    @functools.cached_property
    def _classes(self) -> Mapping[str, ClassEntry]:
        return msgspec.json.decode((self._folder / CLASSES_FILE).read_bytes(), type=ClassesFile).classes

    @functools.cached_property
    def _removed(self) -> Mapping[str, RemovedFlag]:
        rows = msgspec.json.decode((self._folder / REMOVED_FILE).read_bytes(), type=list[RemovedFlag])
        return {row.flag: row for row in rows}

    @functools.cached_property
    def _spans(self) -> Mapping[str, tuple[str, str]]:
        spans: dict[str, tuple[str, str]] = {}
        for name, history in self._flags.items():
            for since, until, entry in self._releases.spans(history):
                for spelling in (name, *entry.aliases, *entry.negations):
                    first, last = spans.get(spelling, (since, until))
                    place = self._releases.place
                    spans[spelling] = (min(first, since, key=place), max(last, until, key=place))
        return spans


@functools.cache
def _loaded(engine: str) -> Catalogue:
    if engine not in ENGINES:
        raise ValueError(f"there is no catalogue of engine {engine!r}; there is one of {', '.join(ENGINES)}")
    # `importlib.resources` would find it too, but takes longer to import than all of this to run.
    return Catalogue(Path(__file__).parent / engine / "data")


@functools.lru_cache(maxsize=1024)
def _release_numbers(version: str) -> Version:
    try:
        return Version(".".join(map(str, Version(version).release)))
    except ValueError as error:  # InvalidVersion, or more digits than int() takes
        written = repr(version) if len(version) <= 100 else f"a text of {len(version)} characters"
        raise ValueError(f"{written} is no version; one such as 0.32.0 or 0.32.1rc1 is") from error
