"""What the names in one release's sources can stand for while they are read.

Type forms of the standard library are the real ones, so that `typing` itself answers what a
`Literal` or a union holds. Everything of the engine's, and everything outside it, is a stand-in.
"""

from __future__ import annotations

import ast
import itertools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, MutableSet
from dataclasses import dataclass, field
from typing import Any, Final, cast


class StandIn:
    """What `typing` takes for a class: it can be called, joined by `|` and given parameters."""

    def __call__(self, *_args: object, **_keywords: object) -> StandIn:
        """Returns itself; `typing` only asks whether it could be called."""
        return self

    def __or__(self, other: object) -> Any:
        return typing.Union[self, other]  # noqa: UP007

    def __ror__(self, other: object) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __getitem__(self, _parameters: object) -> StandIn:
        return self

    __iter__ = None  # Else Python would take `__getitem__` for that of an endless sequence.
    __contains__ = None


class OrderedSet(MutableSet[Any]):
    """A set that keeps the order in which it was filled, so that reading twice gives the same.

    Where the engine takes any member of a set, its choice can change from run to run.
    """

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        """Adds an item at the end."""
        self._items[value] = None

    def discard(self, value: Any) -> None:
        """Takes an item away."""
        self._items.pop(value, None)

    def update(self, items: Iterable[Any]) -> None:
        """Adds items at the end."""
        self._items |= dict.fromkeys(items)


@dataclass(frozen=True)
class Unknown(StandIn):
    """Something whose value the sources alone do not tell, such as a registry filled while running.

    Attributes:
        path: how it is written, with its module where that is known.
    """

    path: str


@dataclass(frozen=True, eq=False)
class EngineClass(StandIn):
    """A class that the sources define; the class of that name in another release is another one.

    Attributes:
        module: the module that defines it.
        name: its name there.
        node: its definition.
    """

    module: str
    name: str
    node: ast.ClassDef = field(repr=False)

    @property
    def __name__(self) -> str:
        return self.name


@dataclass(frozen=True)
class EngineFunction:
    """A function, method or lambda of the sources, with what it has closed over.

    Attributes:
        module: the module that defines it.
        name: its name; `<lambda>` for a lambda.
        owner: the class whose method it is.
        bound: the class it was asked of, passed as its first argument.
        scope: the local names of the function that made it.
        defaults: the values of its parameters that have one.
    """

    module: str
    name: str
    node: ast.FunctionDef | ast.Lambda = field(compare=False, repr=False)
    owner: EngineClass | None = None
    bound: EngineClass | None = None
    scope: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    defaults: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class EnumerationMember:
    """One member of an enumeration of the sources."""

    name: str
    value: object


@dataclass(frozen=True)
class DataclassField:
    """What `dataclasses.fields` tells of a field, as far as building a parser needs it."""

    name: str
    type: object
    default: object = None
    default_factory: object = Unknown("dataclasses.MISSING")


@dataclass(frozen=True)
class Argument:
    """One `add_argument` call, with the values it was given."""

    options: tuple[str, ...]
    settings: Mapping[str, Any]


class RecordingParser:
    """Takes the calls that build an argument parser, and keeps what was added.

    Attributes:
        arguments: the calls of `add_argument`, in order.
    """

    def __init__(self) -> None:
        self.arguments: list[Argument] = []

    def add_argument(self, *options: str, **settings: object) -> Unknown:
        """Keeps one argument."""
        self.arguments.append(Argument(options, settings))
        return Unknown("argparse.Action")

    def add_argument_group(self, *_options: object, **_settings: object) -> RecordingParser:
        """A group only orders the help, so it is the parser itself."""
        return self

    def add_parser(self, *_options: object, **_settings: object) -> RecordingParser:
        """The parser of the only subcommand that is read is this one."""
        return self

    def check_port(self) -> None:
        """Stands for the engine's own check, named as the type of a port."""


class _AnnotatedForm:
    """A form such as `SkipValidation[X]`, which is `X` to whoever asks for the type."""

    def __getitem__(self, item: object) -> Any:
        return typing.Annotated[cast(Any, item), "SkipValidation"]


_SERVE_COMMAND_LINE: Final = ("vllm", "serve")

# Of `typing`, all but what evaluates text.
_TYPING: Final = {name: getattr(typing, name) for name in typing.__all__ if name != "get_type_hints"}

KNOWN: Final[Mapping[str, object]] = {
    **{
        f"{module}.{name}": form
        for module in ("typing", "typing_extensions")
        for name, form in _TYPING.items()
    },
    **{f"collections.abc.{name}": getattr(typing, name) for name in ("Callable", "Sequence", "Mapping")},
    "types.UnionType": types.UnionType,
    "pydantic.SkipValidation": _AnnotatedForm(),
    "pydantic.functional_validators.SkipValidation": _AnnotatedForm(),
    **{
        f"pydantic.{sign}{kind.title()}": typing.Annotated[base, sign]
        for sign in ("Positive", "NonNegative", "Negative", "NonPositive", "Strict")
        for kind, base in (("int", int), ("float", float))
    },
    "itertools.permutations": itertools.permutations,
    "sys.argv": list(_SERVE_COMMAND_LINE),
    "sys.modules": {},
}
"""The names from outside the sources that have their real meaning here, by dotted path."""

BUILTINS: Final[Mapping[str, object]] = {
    **{
        kind.__name__: kind
        for kind in (bool, dict, float, int, list, object, set, str, tuple, type, frozenset, bytes)
    },
    **{function.__name__: function for function in (all, any, iter, len, next, sorted)},
    "Ellipsis": ...,
}
"""The built-in names that have their real meaning here."""
