"""Read an argument vector by a flag table, the way argparse and its relatives do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from enginelaunch.argv.flags import Flag, FlagTable
from enginelaunch.argv.values import BadValueError, JSONValue, dotted_value, read_value

ProblemKind = Literal[
    "unknown_flag",
    "ambiguous_flag",
    "missing_value",
    "unexpected_value",
    "bad_value",
    "stray_value",
    "value_before_its_place",
]
"""Why an item of an argv cannot be read.

`stray_value`: no flag takes it. `value_before_its_place`: a positional that stands after a flag,
which some parsers take and others do not.
"""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of an argv that the table or the grammar refuses.

    Attributes:
        kind: which rule refuses it.
        index: its place in the argv, counted from 0.
        item: the item as it was written.
        message: what is wrong and what would be right, for a person.
        flag: the long name of the flag concerned, when there is one.
    """

    kind: ProblemKind
    index: int
    item: str
    message: str
    flag: str | None = None


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a flag in an argv.

    Attributes:
        flag: the flag, whatever spelling was used.
        spelling: the spelling that was used, without a value glued to it.
        values: the values as text, in order; empty for a switch.
        negated: True for a spelling that switches the flag off.
        key_path: for a dotted spelling the keys inside the JSON value, outermost first.
        appends: True for a dotted spelling that ends in `+`.
        start: index of the first item that belongs to it.
        stop: index after the last item that belongs to it.
        indices: every item that belongs to it; a dotted flag may stand among another flag's values.
    """

    flag: Flag
    spelling: str
    values: tuple[str, ...] = ()
    negated: bool = False
    key_path: tuple[str, ...] = ()
    appends: bool = False
    start: int
    stop: int
    indices: tuple[int, ...]


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """An argv that has been read.

    Attributes:
        items: the argv as it was given.
        occurrences: every use of a known flag, in order.
        positionals: (index, text) of every item that stands for itself.
        problems: every item that the table or the grammar refuses.

    Example:
        >>> from enginelaunch.argv import Flag, FlagTable, Grammar, parse
        >>> size = Flag(name="--tensor-parallel-size", destination="tensor_parallel_size",
        ...             aliases=("-tp",), value="integer")
        >>> arguments = parse(["-tp=4"], FlagTable([size], Grammar()))
        >>> arguments.value("--tensor-parallel-size")
        4
        >>> arguments.without({"--tensor-parallel-size"})
        ()
    """

    items: tuple[str, ...]
    occurrences: tuple[Occurrence, ...] = ()
    positionals: tuple[tuple[int, str], ...] = ()
    problems: tuple[Problem, ...] = ()
    json_number_suffixes: bool = False

    def of(self, name: str) -> tuple[Occurrence, ...]:
        """Every use of the flag with this long name."""
        return tuple(o for o in self.occurrences if o.flag.name == name)

    def __contains__(self, name: object) -> bool:
        """Whether the flag with this long name is used."""
        return any(o.flag.name == name for o in self.occurrences)

    def names(self) -> frozenset[str]:
        """The long names of all flags used."""
        return frozenset(o.flag.name for o in self.occurrences)

    def value(self, name: str, default: JSONValue = None) -> JSONValue:
        """What the parser makes of the flag with this long name.

        The last use wins, except that `append` flags collect all of theirs and that dotted keys
        together make one JSON value which replaces a plain one in either order.

        Raises:
            BadValueError: a value does not have the flag's type.
        """
        uses = self.of(name)
        if not uses:
            return default
        flag = uses[0].flag
        dotted = [o for o in uses if o.key_path]
        if dotted:
            try:
                return dotted_value([(o.key_path, o.values[0], o.appends) for o in dotted])
            except RecursionError:
                raise BadValueError(f"{flag.name} is nested too deeply") from None
        if flag.append:
            return [v for o in uses for v in _read_all(o, self.json_number_suffixes)]
        last = uses[-1]
        if flag.nargs == 0:
            return not last.negated
        values = _read_all(last, self.json_number_suffixes)
        if flag.nargs == "?" and not values:
            return True
        if not _takes_several(flag):
            return values[0]
        return [value for value in values if value is not None] if flag.value == "lora_modules" else values

    def values(self) -> dict[str, JSONValue]:
        """What the parser makes of every flag used, by the name under which it keeps the value."""
        # The last use counts, also where two flags set the same thing.
        names = {o.flag.destination: o.flag.name for o in self.occurrences}
        return {destination: self.value(name) for destination, name in names.items()}

    def without(self, names: frozenset[str] | set[str]) -> tuple[str, ...]:
        """The items that are left when every use of these flags is taken out."""
        dropped = {index for o in self.occurrences if o.flag.name in names for index in o.indices}
        return tuple(item for index, item in enumerate(self.items) if index not in dropped)


def parse(items: Sequence[str], table: FlagTable) -> Arguments:
    """Read the arguments of a command (argv without the program and its subcommand).

    Args:
        items: the arguments.
        table: the flags of the command and its grammar.

    Returns:
        What was read, with a `Problem` for each item that could not be; nothing is raised for
        the content of an argv.

    The order follows argparse as vLLM extends it: spellings are normalised, dotted keys are
    gathered wherever they stand (each takes the next item, whatever that is), then flags take
    their values from left to right.
    """
    reader = _Reader(tuple(items), table)
    reader.read()
    return Arguments(
        items=reader.items,
        occurrences=tuple(sorted(reader.occurrences, key=lambda o: o.start)),
        positionals=tuple(reader.positionals),
        problems=tuple(sorted(reader.problems, key=lambda p: p.index)),
        json_number_suffixes=table.grammar.json_number_suffixes,
    )


def _takes_several(flag: Flag) -> bool:
    return flag.nargs in ("*", "+") or (isinstance(flag.nargs, int) and flag.nargs > 1)


def _read_all(occurrence: Occurrence, json_number_suffixes: bool) -> list[JSONValue]:
    return [read_value(occurrence.flag, text, json_number_suffixes) for text in occurrence.values]


_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
"""argparse takes these for values while no flag looks like a number."""


_MOST_KEYS = 100
"""How many keys a dotted spelling has at most; a parser that merges them goes as deep."""


class _Token(msgspec.Struct, frozen=True):
    text: str
    start: int
    stop: int


class _Reader(msgspec.Struct):
    items: tuple[str, ...]
    table: FlagTable
    occurrences: list[Occurrence] = []
    positionals: list[tuple[int, str]] = []
    problems: list[Problem] = []

    def read(self) -> None:
        tokens = [self._normalise(index, item) for index, item in enumerate(self.items)]
        if self.table.grammar.dotted_keys:
            tokens = self._take_dotted(tokens)
        self._take_flags(tokens)

    def _normalise(self, index: int, item: str) -> _Token:
        grammar = self.table.grammar
        text = item
        if item.startswith("--"):
            name, equals, value = item.partition("=")
            text = self.table.normalise(name) + equals + value
        elif grammar.shorthand and item.startswith(grammar.shorthand):
            text = self._expand_shorthand(index, item, grammar.shorthand)
        return _Token(text, index, index + 1)

    def _expand_shorthand(self, index: int, item: str, shorthand: str) -> str:
        grammar = self.table.grammar
        rest = item[len(shorthand) :]
        if not rest:
            following = self.items[index + 1] if index + 1 < len(self.items) else ""
            return grammar.shorthand_means or item if following in ("0", "1", "2", "3") else item
        if rest.startswith(".") and grammar.shorthand_dotted_means:
            return grammar.shorthand_dotted_means + rest
        return f"{grammar.shorthand_means}={rest.removeprefix('=')}"

    def _problem(self, kind: ProblemKind, token: _Token, message: str, flag: Flag | None = None) -> None:
        self.problems.append(
            Problem(
                kind=kind,
                index=token.start,
                item=self.items[token.start],
                message=message,
                flag=flag.name if flag else None,
            )
        )

    def _take_dotted(self, tokens: list[_Token]) -> list[_Token]:
        left: list[_Token] = []
        remaining = iter(tokens)
        for token in remaining:
            name, equals, value = token.text.partition("=")
            if not token.text.startswith("-") or "." not in name:
                left.append(token)
            elif equals:
                self._dotted(token, name, value, token.stop)
            else:
                self._dotted_with_next(token, name, remaining)
        return left

    def _dotted_with_next(self, token: _Token, name: str, remaining: Iterator[_Token]) -> None:
        following = next(remaining, None)
        if following is None:
            self._problem("missing_value", token, f"{token.text} needs a value")
        else:
            self._dotted(token, name, following.text, following.stop)

    def _dotted(self, token: _Token, name: str, value: str, stop: int) -> None:
        base, *keys = name.removesuffix("+").split(".")
        appends = name.endswith("+")
        readings = self.table.resolve(base)
        if len(readings) != 1:
            self._unreadable(token, base, readings)
            return
        flag = readings[0][0]
        if appends and not self.table.grammar.dotted_append:
            self._problem("unknown_flag", token, f"{name}: this release does not append with '+'", flag)
            return
        if flag.value not in ("config", "json", "json_or_string"):
            self._problem("unexpected_value", token, f"{flag.name} has no keys: it does not take JSON", flag)
            return
        if len(keys) > _MOST_KEYS:
            self._problem(
                "bad_value", token, f"{flag.name}: {len(keys)} keys in one another are too many", flag
            )
            return
        self.occurrences.append(
            Occurrence(
                flag=flag,
                spelling=name,
                values=(value,),
                key_path=tuple(keys),
                appends=appends,
                start=token.start,
                stop=stop,
                indices=tuple(range(token.start, stop)),
            )
        )

    def _unreadable(self, token: _Token, name: str, readings: list[tuple[Flag, bool, str | None]]) -> None:
        if readings:
            names = ", ".join(sorted({flag.name for flag, _, _ in readings}))
            self._problem("ambiguous_flag", token, f"{name} could be any of {names}")
            return
        nearest = self.table.nearest(name)
        hint = f"; did you mean {nearest}?" if nearest else ""
        self._problem("unknown_flag", token, f"{name} is not a flag of this release{hint}")

    def _is_flag(self, token: _Token) -> bool:
        text = token.text
        if len(text) < 2 or not text.startswith("-"):
            return False
        if text in self.table or self.table.resolve(text):
            return True
        return not _NEGATIVE_NUMBER.fullmatch(text) and " " not in text

    def _take_flags(self, tokens: list[_Token]) -> None:
        seen_flag = False
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.text == "--":
                self._separator(token, tokens[index + 1 :], seen_flag)
                return
            if not self._is_flag(token):
                self._positional(token, seen_flag)
                index += 1
                continue
            seen_flag = True
            index = self._flag(tokens, index)

    def _separator(self, token: _Token, following: list[_Token], seen_flag: bool) -> None:
        # argparse drops the separator only together with a positional that it still wants.
        if not following or len(self.positionals) >= self.table.grammar.positionals:
            self._problem("stray_value", token, "'--' belongs to no flag")
        for positional in following:
            self._positional(positional, seen_flag)

    def _positional(self, token: _Token, seen_flag: bool) -> None:
        if len(self.positionals) >= self.table.grammar.positionals:
            self._problem("stray_value", token, self._stray(token))
            return
        if seen_flag:
            self._problem(
                "value_before_its_place", token, f"{token.text!r} has to stand in front of the first flag"
            )
        self.positionals.append((token.start, self.items[token.start]))

    def _stray(self, token: _Token) -> str:
        name = token.text.split(maxsplit=1)[0] if token.text.strip() else ""
        if name != token.text and name.startswith("-") and name in self.table:
            return f"{token.text!r} is one item; a flag and its value are two items"
        return f"{token.text!r} belongs to no flag"

    def _flag(self, tokens: list[_Token], index: int) -> int:
        """Read the flag at this index and its values; return the index after them."""
        token = tokens[index]
        readings = self.table.resolve(token.text)
        if len(readings) != 1:
            self._unreadable(token, token.text.partition("=")[0], readings)
            return index + 1 + self._values_of_unknown(tokens, index + 1)
        flag, negated, glued = readings[0]
        spelling = token.text if glued is None else token.text[: len(token.text) - len(glued)].rstrip("=")
        if glued is not None:
            values: tuple[str, ...] | None = self._glued_values(token, flag, glued)
            stop = index + 1
        else:
            stop = index + 1 + self._count_values(tokens, index + 1, flag)
            values = tuple(self.items[t.start] for t in tokens[index + 1 : stop])
            values = self._enough_values(token, flag, values)
        if values is None:
            return stop
        for value in values:
            self._check_value(token, flag, value)
        self.occurrences.append(
            Occurrence(
                flag=flag,
                spelling=spelling,
                values=values,
                negated=negated,
                start=token.start,
                stop=tokens[stop - 1].stop,
                indices=tuple(t.start for t in tokens[index:stop]),
            )
        )
        return stop

    def _values_of_unknown(self, tokens: list[_Token], index: int) -> int:
        # An unknown flag's values would each be reported as a stray: one report is enough.
        if "=" in tokens[index - 1].text or index >= len(tokens) or self._is_flag(tokens[index]):
            return 0
        return 1

    def _glued_values(self, token: _Token, flag: Flag, glued: str) -> tuple[str, ...] | None:
        if flag.nargs == 0:
            self._problem(
                "unexpected_value", token, f"{flag.name} is a switch and takes no value, got {glued!r}", flag
            )
            return None
        if isinstance(flag.nargs, int) and flag.nargs > 1:
            self._problem("missing_value", token, f"{flag.name} needs {flag.nargs} values, got 1", flag)
            return None
        return (glued,)

    def _count_values(self, tokens: list[_Token], index: int, flag: Flag) -> int:
        most = {"?": 1, "*": len(tokens), "+": len(tokens)}.get(str(flag.nargs), flag.nargs)
        assert isinstance(most, int)
        count = 0
        while count < most and index + count < len(tokens):
            following = tokens[index + count]
            if following.text == "--" or self._is_flag(following):
                break
            count += 1
        return count

    def _enough_values(self, token: _Token, flag: Flag, values: tuple[str, ...]) -> tuple[str, ...] | None:
        least = {"?": 0, "*": 0, "+": 1}.get(str(flag.nargs), flag.nargs)
        assert isinstance(least, int)
        if len(values) < least:
            got = f", got {len(values)}" if values else ""
            self._problem("missing_value", token, f"{flag.name} needs {_how_many(flag)}{got}", flag)
            return None
        return values

    def _check_value(self, token: _Token, flag: Flag, value: str) -> None:
        try:
            read_value(flag, value, self.table.grammar.json_number_suffixes)
        except BadValueError as error:
            self._problem("bad_value", token, str(error), flag)


def _how_many(flag: Flag) -> str:
    return {"+": "at least one value", "1": "a value"}.get(str(flag.nargs), f"{flag.nargs} values")
