"""What the catalogue's data files hold: histories, and the flags and classes that they are made of.

A history is a list of rows. Each row says from which release on something is how, and the last row
that is not above a release is the one that holds in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import msgspec

from enginelaunch.argv import Flag, Nargs, ValueKind

FLAGS_FILE: Final = "flags.json"
CLASSES_FILE: Final = "config_classes.json"
REMOVED_FILE: Final = "removed_flags.json"

EntryT = TypeVar("EntryT")

History = Sequence[tuple[str, EntryT | None]]
"""Since which release something is how; None where it is not there."""


class UnknownReleaseError(ValueError):
    """No release in the catalogue can stand for the version asked for."""


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One key of a configuration class.

    Attributes:
        name: the key.
        type: its annotation in the engine's sources.
        choices: the only texts allowed; empty when any is, or when they cannot be told.
        config_classes: the configuration classes that the value may itself be an object of.
        required: True when there is no default.
    """

    name: str
    type: str
    choices: tuple[str, ...] = ()
    config_classes: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class ConfigClass:
    """The keys that a JSON object for one configuration class may have in one release.

    Attributes:
        name: the class.
        fields: its keys, sorted by name.
        extra: True when unknown keys are let through; they have no effect then.
    """

    name: str
    fields: tuple[ConfigField, ...]
    extra: bool


@dataclass(frozen=True, slots=True)
class ReleaseContents:
    """All that one release accepts.

    Attributes:
        flags: its flags, sorted by name.
        config_classes: the classes that flags fill, and those that they hold, sorted by name.
    """

    flags: tuple[Flag, ...]
    config_classes: tuple[ConfigClass, ...]


class RemovedFlag(msgspec.Struct, frozen=True):
    """A flag that a release took away, and what took its place.

    Attributes:
        flag: its spelling.
        last_release: the last release that accepted it.
        absent_from: the first one that no longer did.
        replacement: what to use instead, in words.
        source: `stated` when the engine itself says so, `inferred` when it was concluded from what
            appeared at the same time.
    """

    flag: str
    last_release: str
    absent_from: str
    replacement: str
    source: Literal["stated", "inferred"]


def default_destination(name: str) -> str:
    """Returns the destination of a flag that names none itself.

    Example:
        >>> default_destination("--tensor-parallel-size")
        'tensor_parallel_size'
    """
    return name.lstrip("-").replace("-", "_")


class FlagEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A flag as the data hold it: `Flag` without its name, and without what follows from it."""

    destination: str | None = None
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    nargs: Nargs = 1
    append: bool = False
    value: ValueKind = "string"
    choices: tuple[str, ...] = ()
    none_allowed: bool = False
    config_class: str | None = None
    deprecated: bool = False
    api_server: bool = False

    @classmethod
    def of(cls, flag: Flag) -> FlagEntry:
        """Makes the entry of a flag."""
        destination = None if flag.destination == default_destination(flag.name) else flag.destination
        return cls(
            destination=destination,
            aliases=flag.aliases,
            negations=flag.negations,
            nargs=flag.nargs,
            append=flag.append,
            value=flag.value,
            choices=flag.choices,
            none_allowed=flag.none_allowed,
            config_class=flag.config_class,
            deprecated=flag.deprecated,
            api_server=flag.api_server,
        )

    def flag(self, name: str) -> Flag:
        """Makes the flag of the entry that stands under a name."""
        return Flag(
            name=name,
            destination=self.destination or default_destination(name),
            aliases=self.aliases,
            negations=self.negations,
            nargs=self.nargs,
            append=self.append,
            value=self.value,
            choices=self.choices,
            none_allowed=self.none_allowed,
            config_class=self.config_class,
            deprecated=self.deprecated,
            api_server=self.api_server,
        )


class FieldEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field as the data hold it: `ConfigField` without its name."""

    type: str
    choices: tuple[str, ...] = ()
    config_classes: tuple[str, ...] = ()
    required: bool = False

    @classmethod
    def of(cls, field: ConfigField) -> FieldEntry:
        """Makes the entry of a field."""
        return cls(field.type, field.choices, field.config_classes, field.required)

    def config_field(self, name: str) -> ConfigField:
        """Makes the field of the entry that stands under a name."""
        return ConfigField(name, self.type, self.choices, self.config_classes, self.required)


class ClassEntry(msgspec.Struct, frozen=True):
    """A class as the data hold it: histories of whether it takes unknown keys, and of its fields."""

    extra: tuple[tuple[str, bool | None], ...]
    fields: dict[str, tuple[tuple[str, FieldEntry | None], ...]]


class FlagsFile(msgspec.Struct, frozen=True):
    """The file of all flags of an engine."""

    engine: str
    releases: tuple[str, ...]
    flags: dict[str, tuple[tuple[str, FlagEntry | None], ...]]


class ClassesFile(msgspec.Struct, frozen=True):
    """The file of all configuration classes of an engine."""

    engine: str
    releases: tuple[str, ...]
    classes: dict[str, ClassEntry]


class Releases:
    """Releases in order, and the rows of histories in force in one of them.

    Args:
        names: the releases, ascending.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._places: Mapping[str, int] = {name: place for place, name in enumerate(self.names)}

    def place(self, release: str) -> int:
        """Returns the release's place in the order.

        Raises:
            UnknownReleaseError: the release is not one of these.
        """
        place = self._places.get(release)
        if place is None:
            raise UnknownReleaseError(
                f"release {release!r} is not in the catalogue; it holds {', '.join(self.names)}"
            )
        return place

    def entry(self, history: History[EntryT], place: int) -> EntryT | None:
        """Returns what a history says for the release at a place."""
        row = bisect_right(history, place, key=lambda row: self._places[row[0]])
        return history[row - 1][1] if row else None

    def spans(self, history: History[EntryT]) -> list[tuple[str, str, EntryT]]:
        """Returns each entry with the first and the last release in which it holds."""
        ends = [*(self._places[since] for since, _ in history[1:]), len(self.names)]
        return [
            (since, self.names[end - 1], entry)
            for (since, entry), end in zip(history, ends, strict=True)
            if entry is not None
        ]
