"""Follows the few functions with which a release builds its parser, statement by statement.

A release derives most flags from the annotations of its configuration classes, by a rule that
changes between releases. That rule is itself in the sources, so it is followed rather than retold:
what a release says of its flags is then what that release would register.

Only plain statements are followed, over plain values. Functions of other modules, and whatever lies
outside the sources, come out as `Unknown`; a decision that hangs on such a value is refused.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from enginelaunch.engines.vllm.source_classes import ClassReader
from enginelaunch.engines.vllm.source_expressions import ExpressionEvaluator, Frame, operate
from enginelaunch.engines.vllm.source_tree import Found, Outside, SourceError, SourceTree
from enginelaunch.engines.vllm.source_values import (
    BUILTINS,
    KNOWN,
    EngineClass,
    EngineFunction,
    OrderedSet,
    Unknown,
)

NO_TEXT: Final = frozenset({"_maybe_add_docs_url"})
"""Functions that only add links to a help text; they come out as the empty text."""

ASSUMED: Final[Mapping[str, object]] = {"NEEDS_HELP": True}
"""Names that get this value whatever they are assigned: help texts tell which flags are deprecated."""


PLAIN_ATTRIBUTES: Final = frozenset({"__doc__", "__module__", "__name__"})
"""The only attributes with an underscore in front that are followed on real objects."""


class _Returned(Exception):  # noqa: N818
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class Interpreter(ExpressionEvaluator):
    """Follows functions of one release.

    Args:
        tree: the release's sources.
        followed: says of a module whether its functions are followed when they are called.
    """

    def __init__(self, tree: SourceTree, followed: Callable[[str], bool]) -> None:
        self._tree = tree
        self._followed = followed
        self._assigned: dict[tuple[str, str], object] = {}
        self.classes = ClassReader(tree, self)

    def look_up(self, module: str, name: str) -> object:
        """Returns what a module-level name stands for.

        Raises:
            SourceError: the expression assigned to it cannot be followed.
        """
        if name in ASSUMED:
            return ASSUMED[name]
        found = self._tree.find(module, name)
        if isinstance(found, Outside):
            return self._outside(found.path)
        if found is None:
            if name in BUILTINS:
                return BUILTINS[name]
            return Unknown(f"builtins.{name}") if hasattr(builtins, name) else Unknown(f"{module}.{name}")
        return self._made(found)

    def enumeration_members(self, cls: EngineClass) -> Iterable[object]:
        """Returns what iterating over a class of the sources gives."""
        return self.classes.enumeration_members(cls)

    def evaluate_in(
        self, module: str, expression: ast.expr, local: Mapping[str, object] | None = None
    ) -> object:
        """Evaluates an expression as if it stood at the top of a module, with names of its own."""
        return self.evaluate(expression, Frame(module, dict(local or {})))

    def call(self, function: EngineFunction, *values: object, **keywords: object) -> object:
        """Follows one call.

        Raises:
            SourceError: a statement cannot be followed; the text names it and its line.
        """
        node = function.node
        names = [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)]
        given = values if function.bound is None else (function.bound, *values)
        local = {**function.scope, **function.defaults, **dict(zip(names, given, strict=False)), **keywords}
        frame = Frame(function.module, local, function.owner)
        if isinstance(node, ast.Lambda):
            return self.evaluate(node.body, frame)
        try:
            self._run(node.body, frame)
        except _Returned as returned:
            return returned.value
        return None

    def method(self, cls: EngineClass, name: str, bound: EngineClass | None = None) -> EngineFunction | None:
        """Finds a method of a class or of one of its bases."""
        for owner in self.classes.lineage(cls):
            for statement in owner.node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == name:
                    marks = {ast.unparse(mark) for mark in statement.decorator_list}
                    first = (bound or cls) if "classmethod" in marks else None
                    made = self.closure(name, statement, Frame(owner.module, {}, owner))
                    return replace(made, bound=first)
        return None

    # Statements.

    def _run(self, body: list[ast.stmt], frame: Frame) -> None:
        for statement in body:
            try:
                self._run_one(statement, frame)
            except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
                if isinstance(error, SourceError):
                    raise
                raise self.refused(statement, frame, f"{type(error).__name__}: {error}") from error

    def _run_one(self, statement: ast.stmt, frame: Frame) -> None:
        match statement:
            case ast.Return():
                raise _Returned(self.evaluate(statement.value, frame) if statement.value else None)
            case ast.Assign():
                value = self.evaluate(statement.value, frame)
                for target in statement.targets:
                    self.assign(target, value, frame)
            case ast.AnnAssign(value=ast.expr()):
                assert statement.value is not None
                self.assign(statement.target, self.evaluate(statement.value, frame), frame)
            case ast.AugAssign():
                reading = cast(ast.expr, _as_read(statement.target))
                left, right = self.evaluate(reading, frame), self.evaluate(statement.value, frame)
                self.assign(statement.target, operate(statement.op, left, right), frame)
            case ast.Delete():
                for target in statement.targets:
                    assert isinstance(target, ast.Subscript)
                    container = cast(Any, self.evaluate(target.value, frame))
                    del container[self.evaluate(target.slice, frame)]
            case ast.If():
                branch = statement.body if self.holds(statement.test, frame) else statement.orelse
                self._run(branch, frame)
            case ast.For():
                for item in self.items(self.evaluate(statement.iter, frame), statement, frame):
                    self.assign(statement.target, item, frame)
                    self._run(statement.body, frame)
            case ast.With():
                self._run(statement.body, frame)
            case ast.FunctionDef():
                frame.local[statement.name] = self.closure(statement.name, statement, frame)
            case ast.Expr():
                self.evaluate(statement.value, frame)
            case ast.Import() | ast.ImportFrom():
                self._import(statement, frame)
            case ast.Assert() | ast.Pass() | ast.AnnAssign():
                pass
            case _:
                raise self.refused(statement, frame, "this kind of statement is not followed")

    def _import(self, statement: ast.Import | ast.ImportFrom, frame: Frame) -> None:
        if isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            for alias in statement.names:
                inside = self._tree.has_module(statement.module)
                frame.local[alias.asname or alias.name] = (
                    self.look_up(statement.module, alias.name)
                    if inside
                    else self._outside(f"{statement.module}.{alias.name}")
                )

    # Names.

    def _outside(self, path: str) -> object:
        return KNOWN.get(path, Unknown(path))

    def _made(self, found: Found) -> object:
        key = (found.module, found.name)
        match found.binding:
            case ast.FunctionDef():
                return self.closure(found.name, found.binding, Frame(found.module, {}))
            case ast.ClassDef():
                made = EngineClass(found.module, found.name, found.binding)
                return self._assigned.setdefault(key, made)
            case expression:
                if key not in self._assigned:
                    self._assigned[key] = Unknown(".".join(key))  # What a circle of names comes to.
                    self._assigned[key] = self._evaluate_or_unknown(expression, found)
                return self._assigned[key]

    def _evaluate_or_unknown(self, expression: ast.expr, found: Found) -> object:
        """Module level holds much that has nothing to do with flags; it need not be understood."""
        try:
            return self.evaluate_in(found.module, expression)
        except (SourceError, AttributeError, KeyError, IndexError, TypeError, ValueError):
            return Unknown(f"{found.module}.{found.name}")

    def attribute(self, value: object, name: str) -> object:
        """Returns an attribute of a value."""
        if isinstance(value, Unknown):
            if name == "__module__":
                return value.path.rpartition(".")[0]
            if self._tree.has_module(value.path):
                return self.look_up(value.path, name)
            return self._outside(f"{value.path}.{name}")
        if isinstance(value, EngineClass):
            return self._class_attribute(value, name)
        if name.startswith("_") and name not in PLAIN_ATTRIBUTES:
            raise ValueError(f"the attribute {name} is not followed")
        return getattr(value, name)

    def _class_attribute(self, cls: EngineClass, name: str) -> object:
        if name in ("__name__", "__module__"):
            return cls.name if name == "__name__" else cls.module
        found = self.method(cls, name)
        if found is not None:
            return found
        members = {member.name: member for member in self.classes.enumeration_members(cls)}
        return members.get(name, Unknown(f"{cls.module}.{cls.name}.{name}"))

    # Calls.

    def evaluate_call(self, node: ast.Call, frame: Frame) -> object:
        """Returns what a call comes to: of a followed function its result, of another one `Unknown`."""
        function = self._called(node.func, frame)
        values = self.elements(node.args, frame)
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, frame)
            keywords |= cast("Mapping[str, object]", value) if keyword.arg is None else {keyword.arg: value}
        if isinstance(function, EngineFunction):
            if function.name in NO_TEXT:
                return ""
            if function.name == "get_attr_docs":
                return self.classes.field_texts(cast(EngineClass, values[0]))
            if not self._followed(function.module):
                return Unknown(f"{function.module}.{function.name}()")
            return self.call(function, *values, **keywords)
        if isinstance(function, Unknown):
            special = self._special(function.path)
            return special(*values, **keywords) if special else Unknown(f"{function.path}()")
        if isinstance(function, EngineClass):
            return Unknown(f"{function.module}.{function.name}()")
        if function in (list, tuple, set, sorted) and any(isinstance(value, EngineClass) for value in values):
            values = [self.classes.enumeration_members(cast(EngineClass, values[0]))]
        try:
            # The name `set` stays the built-in class, for it is compared with the origins of types.
            return cast(Any, OrderedSet if function is set else function)(*values, **keywords)
        except TypeError:
            unknown = next((value for value in values if isinstance(value, Unknown)), None)
            if unknown is None:
                raise
            return Unknown(f"{getattr(function, '__name__', function)}({unknown.path})")

    def _called(self, node: ast.expr, frame: Frame) -> Any:
        """Resolves what is called; `super()` means the next class that has the method."""
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[])) if frame.owner:
                cls = frame.local.get("cls")
                for base in self.classes.lineage(frame.owner)[1:]:
                    found = self.method(base, node.attr, cls if isinstance(cls, EngineClass) else None)
                    if found is not None:
                        return found
                raise self.refused(node, frame, f"no base class has {node.attr}")
        return self.evaluate(node, frame)

    def _special(self, path: str) -> Callable[..., object] | None:
        """The functions that have to know of the stand-ins, and the harmless built-in ones."""
        specials: dict[str, Callable[..., object]] = {
            "builtins.isinstance": self._is_instance,
            "builtins.issubclass": self.classes.is_subclass,
            "builtins.hasattr": lambda value, name: (
                isinstance(value, EngineClass) and self.method(value, name) is not None
            ),
            "dataclasses.is_dataclass": lambda value: (
                isinstance(value, EngineClass) and self.classes.is_dataclass(value)
            ),
            "dataclasses.fields": self.classes.fields,
            "typing_extensions.is_typeddict": self.classes.is_typed_dict,
            "typing.is_typeddict": self.classes.is_typed_dict,
            "copy.deepcopy": _copied,
        }
        return specials.get(path)

    def _is_instance(self, value: object, cls: object) -> bool:
        if isinstance(cls, Unknown):
            return False
        return isinstance(value, EngineClass | type) if cls is type else isinstance(value, cast(Any, cls))


def _as_read(target: ast.expr) -> ast.AST:
    return ast.parse(ast.unparse(target), mode="eval").body


def _copied(value: object) -> object:
    """A copy of dictionaries and lists all the way down; what they hold is never changed."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
