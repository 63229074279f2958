"""Reads the configuration classes of one release: their fields, and what else they accept."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Protocol

from enginelaunch.engines.vllm.source_tree import SourceTree
from enginelaunch.engines.vllm.source_values import (
    DataclassField,
    EngineClass,
    EngineFunction,
    EnumerationMember,
    Unknown,
)

STANDARD_DATACLASS: Final = "dataclasses.dataclass"
DATACLASS_DECORATORS: Final = (STANDARD_DATACLASS, "pydantic.dataclasses.dataclass")
CONFIG_DECORATOR: Final = "config"
"""The engine's own decorator, which in some releases makes a dataclass of a class."""


class Evaluates(Protocol):
    """What this reader asks of the interpreter."""

    def evaluate_in(self, module: str, expression: ast.expr) -> object:
        """Evaluates an expression as if it stood at the top of a module."""

    def look_up(self, module: str, name: str) -> object:
        """Returns what a module-level name stands for."""


class ClassReader:
    """Answers questions about the classes of one release.

    Args:
        tree: the release's sources.
        evaluator: evaluates annotations and bases.
    """

    def __init__(self, tree: SourceTree, evaluator: Evaluates) -> None:
        self._tree = tree
        self._evaluator = evaluator

    def bases(self, cls: EngineClass) -> list[object]:
        """Returns what the class names as its bases."""
        return [self._evaluator.evaluate_in(cls.module, base) for base in cls.node.bases]

    def lineage(self, cls: EngineClass) -> list[EngineClass]:
        """Returns the class and those of its bases that the sources define, nearest first."""
        found = [cls]
        for base in self.bases(cls):
            if isinstance(base, EngineClass):
                found.extend(ancestor for ancestor in self.lineage(base) if ancestor not in found)
        return found

    def outer_bases(self, cls: EngineClass) -> Iterator[object]:
        """Yields the bases of the class and of its bases that the sources do not define."""
        for ancestor in self.lineage(cls):
            yield from (base for base in self.bases(ancestor) if not isinstance(base, EngineClass))

    def is_subclass(self, cls: object, base: object) -> bool:
        """Says whether a class, a stand-in or a real one, derives from another."""
        if isinstance(cls, EngineClass):
            outer = [typing.get_origin(one) or one for one in self.outer_bases(cls)]
            return base in self.lineage(cls) or any(self.is_subclass(one, base) for one in outer)
        return isinstance(cls, type) and isinstance(base, type) and issubclass(cls, base)

    def is_typed_dict(self, cls: object) -> bool:
        """Says whether a class is a `TypedDict`."""
        return isinstance(cls, EngineClass) and any(
            base is typing.TypedDict for base in self.outer_bases(cls)
        )

    def is_dataclass(self, cls: EngineClass) -> bool:
        """Says whether the class or one of its bases is made a dataclass."""
        return any(self.dataclass_marks(ancestor) for ancestor in self.lineage(cls))

    def dataclass_marks(self, cls: EngineClass) -> list[tuple[object, ast.expr]]:
        """Returns the decorators that make the class itself a dataclass: what each is, and as written."""
        marks = [
            (self._evaluator.evaluate_in(cls.module, mark.func if isinstance(mark, ast.Call) else mark), mark)
            for mark in cls.node.decorator_list
        ]
        return [(made, mark) for made, mark in marks if _makes_dataclasses(made)]

    def fields(self, cls: EngineClass) -> list[DataclassField]:
        """Returns the dataclass's fields with the types that it has while running."""
        found: dict[str, DataclassField] = {}
        for owner in reversed(self.lineage(cls)):
            for name, annotation, _ in annotated_names(owner):
                kind = ast.unparse(annotation)
                if not kind.startswith(("ClassVar", "InitVar", "typing.ClassVar")):
                    hint = self._evaluator.evaluate_in(owner.module, annotation)
                    found[name] = DataclassField(name, hint)
        return list(found.values())

    def field_texts(self, cls: EngineClass) -> dict[str, str]:
        """Returns the text that stands below each field, by the field's name."""
        texts: dict[str, str] = {}
        for owner in reversed(self.lineage(cls)):
            for statement, below in pairwise(owner.node.body):
                match statement, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        texts[name] = text
        return texts

    def enumeration_members(self, cls: EngineClass) -> list[EnumerationMember]:
        """Returns the members of an enumeration in order; none when the class is none."""
        outer = {base.path for base in self.outer_bases(cls) if isinstance(base, Unknown)}
        if not any(path.startswith("enum.") for path in outer):
            return []
        members = []
        for owner in self.lineage(cls):
            for statement in owner.node.body:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=name)]):
                        value = self._evaluator.evaluate_in(owner.module, statement.value)
                        members.append(EnumerationMember(name, value))
        return members


def annotated_names(cls: EngineClass) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """Yields each annotated name in the class's own body: name, annotation and default."""
    for statement in cls.node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, statement.annotation, statement.value


def _makes_dataclasses(decorator: object) -> bool:
    if isinstance(decorator, EngineFunction):
        return decorator.name == CONFIG_DECORATOR
    return isinstance(decorator, Unknown) and decorator.path in DATACLASS_DECORATORS


def last_name(mark: ast.expr) -> str:
    """Returns the last part of a dotted name, or of what is called by it."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    return called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
