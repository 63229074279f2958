"""Reads which keys a JSON object for each configuration class of one release may have."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final

from enginelaunch.engines.catalogue import ConfigClass, ConfigField
from enginelaunch.engines.vllm.source_classes import STANDARD_DATACLASS, annotated_names, last_name
from enginelaunch.engines.vllm.source_interpreter import Interpreter
from enginelaunch.engines.vllm.source_tree import SourceError
from enginelaunch.engines.vllm.source_values import EngineClass, EngineFunction, Unknown

_PYDANTIC_MODEL: Final = "pydantic.BaseModel"
_FIELD_MAKERS: Final = ("field", "Field")
_CONFIG_MODULES: Final = "vllm.config"


@dataclass(frozen=True, slots=True)
class FilledClass:
    """A class, and how JSON becomes an object of it.

    Attributes:
        cls: the class.
        validated: True when pydantic validates the JSON against the class, False when the class is
            called with the keys. Pydantic lets a plain dataclass have unknown keys, a call does not.
    """

    cls: EngineClass
    validated: bool


def read_config_classes(interpreter: Interpreter, filled: Iterable[FilledClass]) -> list[ConfigClass]:
    """Reads the classes, and all that may stand as an object within one of them.

    Raises:
        SourceError: two different classes have one name.
    """
    waiting, found, made = list(filled), dict[str, FilledClass](), list[ConfigClass]()
    while waiting:
        one = waiting.pop(0)
        known = found.setdefault(one.cls.name, one)
        if known.cls != one.cls:
            raise SourceError(f"{one.cls.name} is in {known.cls.module} and in {one.cls.module}")
        if known is one:
            fields = [*_fields(interpreter, one)]
            nested = {cls for _, classes in fields for cls in classes}
            waiting += [FilledClass(cls, one.validated) for cls in sorted(nested, key=lambda cls: cls.name)]
            sorted_fields = sorted((field for field, _ in fields), key=lambda field: field.name)
            made.append(
                ConfigClass(one.cls.name, tuple(sorted_fields), _takes_unknown_keys(interpreter, one))
            )
    return made


def _fields(interpreter: Interpreter, filled: FilledClass) -> Iterator[tuple[ConfigField, list[EngineClass]]]:
    cls = filled.cls
    lineage = interpreter.classes.lineage(cls)
    holds_objects = filled.validated or not _is_standard_dataclass(interpreter, cls)
    normalised = {name for owner in lineage for name in _normalised_before(owner)}
    model = _is_model(interpreter, cls)
    declared: dict[str, tuple[EngineClass, ast.expr, ast.expr | None]] = {}
    for owner in reversed(lineage):
        for name, annotation, default in annotated_names(owner):
            declared[name] = (owner, annotation, default)
    for name, (owner, annotation, default) in declared.items():
        kind = (
            last_name(annotation.value) if isinstance(annotation, ast.Subscript) else ast.unparse(annotation)
        )
        if kind == "ClassVar" or kind.endswith("KW_ONLY") or (model and name.startswith("_")):
            continue
        if _keyword(default, "init") is False:
            continue
        members = [*_members(interpreter, owner.module, _hint(interpreter, owner, annotation))]
        classes = [one for one in members if isinstance(one, EngineClass) and _fillable(interpreter, one)]
        if not (holds_objects or _made_afterwards(lineage, name)):
            classes = []
        # A validator that runs first may accept more spellings than the annotation tells.
        choices = () if {name, "*"} & normalised else _choices(members)
        names = tuple(sorted(one.name for one in classes))
        yield ConfigField(name, ast.unparse(annotation), choices, names, _is_required(default)), classes


def _made_afterwards(lineage: Iterable[EngineClass], name: str) -> bool:
    """Says whether a class that is only called makes an object of a field's dictionary itself."""
    return any(f"isinstance(self.{name}, dict)" in ast.unparse(owner.node) for owner in lineage)


def _hint(interpreter: Interpreter, owner: EngineClass, annotation: ast.expr) -> object:
    """What an annotation stands for; annotations need not be made out, for most hold no class."""
    try:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        inner = {
            statement.name: EngineClass(owner.module, statement.name, statement)
            for statement in owner.node.body
            if isinstance(statement, ast.ClassDef)
        }
        return interpreter.evaluate_in(owner.module, annotation, inner)
    except (SourceError, SyntaxError, AttributeError, KeyError, TypeError, ValueError):
        return Unknown(ast.unparse(annotation))


def _members(interpreter: Interpreter, module: str, hint: Any) -> Iterator[object]:
    """Yields the types that a hint allows, `X | Y` taken apart."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        # Other metadata than constraints replaces or skips the checking of the type itself.
        plain = not any(_replaces_check(mark) for mark in arguments[1:])
        yield from _members(interpreter, module, arguments[0]) if plain else [Unknown(str(hint))]
    elif origin in (typing.Union, UnionType):
        for argument in arguments:
            yield from _members(interpreter, module, argument)
    elif isinstance(hint, typing.ForwardRef) and hint.__forward_arg__.isidentifier():
        yield interpreter.look_up(module, hint.__forward_arg__)
    else:
        yield hint


def _replaces_check(mark: object) -> bool:
    return mark == "SkipValidation" or (
        isinstance(mark, Unknown)
        and mark.path.endswith(("Validator()", "GetPydanticSchema()", "SkipValidation()"))
    )


def _choices(members: list[object]) -> tuple[str, ...]:
    given = [member for member in members if member not in (None, type(None))]
    if not given or any(typing.get_origin(member) is not typing.Literal for member in given):
        return ()
    return tuple(dict.fromkeys(str(value) for member in given for value in typing.get_args(member)))


def _normalised_before(cls: EngineClass) -> Iterator[str]:
    """Yields the fields of which a validator sees the value before the annotation does."""
    for statement in cls.node.body:
        for mark in statement.decorator_list if isinstance(statement, ast.FunctionDef) else ():
            if isinstance(mark, ast.Call) and last_name(mark) == "field_validator":
                mode = _keyword(mark, "mode")
                if mode in ("before", "wrap", "plain"):
                    yield from (str(one.value) for one in mark.args if isinstance(one, ast.Constant))


def _keyword(call: ast.expr | None, name: str) -> object:
    """Returns the constant given to a call under a name; None when there is none."""
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        if keyword.arg == name and isinstance(keyword.value, ast.Constant):
            return keyword.value.value
    return None


def _is_required(default: ast.expr | None) -> bool:
    if not isinstance(default, ast.Call) or last_name(default) not in _FIELD_MAKERS:
        return default is None
    names = {keyword.arg for keyword in default.keywords}
    ellipsis = _keyword(default, "default") is ... or [ast.unparse(one) for one in default.args[:1]] == [
        "..."
    ]
    return ellipsis or not (default.args or names & {"default", "default_factory"})


def _is_model(interpreter: Interpreter, cls: EngineClass) -> bool:
    return Unknown(_PYDANTIC_MODEL) in interpreter.classes.outer_bases(cls)


def _fillable(interpreter: Interpreter, cls: EngineClass) -> bool:
    """Says whether an object in JSON may stand for the class.

    A plain dataclass outside of the configuration is a value of the engine's own.
    """
    if _is_model(interpreter, cls):
        return True
    if not interpreter.classes.is_dataclass(cls):
        return False
    return cls.module.startswith(_CONFIG_MODULES) or not _is_standard_dataclass(interpreter, cls)


def _is_standard_dataclass(interpreter: Interpreter, cls: EngineClass) -> bool:
    return Unknown(STANDARD_DATACLASS) in [made for made, _ in _makers(interpreter, cls)]


def _makers(interpreter: Interpreter, cls: EngineClass) -> Iterator[tuple[object, ast.expr]]:
    """Yields the decorators that make the class a dataclass, nearest class first."""
    for owner in interpreter.classes.lineage(cls):
        yield from interpreter.classes.dataclass_marks(owner)


def _takes_unknown_keys(interpreter: Interpreter, filled: FilledClass) -> bool:
    setting = _extra_setting(interpreter, filled.cls)
    if setting is not None:
        return setting != "forbid"
    return filled.validated or not _is_standard_dataclass(interpreter, filled.cls)


def _extra_setting(interpreter: Interpreter, cls: EngineClass) -> str | None:
    """Returns pydantic's `extra` setting of the class, where the class or its decorator makes one."""
    own: list[ast.AST] = []
    from_decorator: list[ast.AST] = []
    for owner in interpreter.classes.lineage(cls):
        own += [
            statement.value
            for statement in owner.node.body
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "model_config"
        ]
    for made, mark in _makers(interpreter, cls):
        own += [mark]
        if isinstance(made, EngineFunction):
            from_decorator += made.node.body if isinstance(made.node, ast.FunctionDef) else [made.node.body]
    for place in (*own, *from_decorator):
        for call in ast.walk(place):
            if isinstance(call, ast.Call) and last_name(call) == "ConfigDict":
                extra = _keyword(call, "extra")
                if isinstance(extra, str):
                    return extra
    return None
