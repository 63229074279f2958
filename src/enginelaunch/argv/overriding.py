"""Lay the operator's arguments over built ones: what they replace is taken out, not left beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from enginelaunch.argv.reading import Arguments


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """A built argument that the operator's arguments replace.

    Attributes:
        flag: the flag's long name.
        built: the items that were taken out.
        given: the items that replace them, as the operator wrote them.
    """

    flag: str
    built: tuple[str, ...]
    given: tuple[str, ...]


def overrides(built: Iterable[Sequence[str]], given: Arguments) -> tuple[Override, ...]:
    """Every built argument that `given` replaces.

    Args:
        built: arguments, each a flag's long name followed by its values.
        given: the operator's arguments, read by the same table.

    Example:
        >>> from enginelaunch.argv import Flag, FlagTable, Grammar, parse
        >>> port = Flag(name="--port", destination="port", value="port")
        >>> given = parse(["--port=9000"], FlagTable([port], Grammar()))
        >>> overrides([("--port", "8000"), ("--host", "::")], given)
        (Override(flag='--port', built=('--port', '8000'), given=('--port=9000',)),)
    """
    replaced = given.names()
    return tuple(
        Override(
            flag=argument[0],
            built=tuple(argument),
            given=tuple(given.items[index] for use in given.of(argument[0]) for index in use.indices),
        )
        for argument in built
        if argument[0] in replaced
    )
