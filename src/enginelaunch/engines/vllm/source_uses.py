"""Tells which parsed values an engine process reads, so that the others are the API server's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from enginelaunch.engines.vllm.source_interpreter import Interpreter
from enginelaunch.engines.vllm.source_tree import Found, SourceTree
from enginelaunch.engines.vllm.source_values import EngineClass

_ENGINE_ARGUMENTS: Final = ("vllm.engine.arg_utils", "AsyncEngineArgs", "from_cli_args")
_HEADLESS: Final = ("vllm.entrypoints.cli.serve", "run_headless")

ALWAYS_READ: Final = frozenset({"help", "model_tag", "config", "headless"})
"""Destinations that decide what runs at all."""

ONLY_REFUSED: Final = frozenset({"api_server_count"})
"""Destinations that a headless process reads only to refuse them."""


def engine_destinations(tree: SourceTree, interpreter: Interpreter) -> frozenset[str]:
    """Returns the destinations whose values a process without an API server has a use for.

    Those are the fields of the engine's arguments, and what the functions read that such a process
    runs. Only reading by name is seen: `arguments.name` and `getattr(arguments, "name")`.
    """
    read = set(ALWAYS_READ)
    module, class_name, method_name = _ENGINE_ARGUMENTS
    cls = interpreter.look_up(module, class_name)
    if isinstance(cls, EngineClass):
        for owner in interpreter.classes.lineage(cls):
            read |= {
                statement.target.id
                for statement in owner.node.body
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            }
        method = interpreter.method(cls, method_name)
        if method is not None and isinstance(method.node, ast.FunctionDef):
            read |= _names_read(tree, method.module, method.node, 1, set())
    found = tree.find(*_HEADLESS)
    if isinstance(found, Found) and isinstance(found.binding, ast.FunctionDef):
        read |= _names_read(tree, found.module, found.binding, 0, set())
    return frozenset(read - ONLY_REFUSED)


def _names_read(
    tree: SourceTree, module: str, function: ast.FunctionDef, place: int, seen: set[tuple[str, str]]
) -> set[str]:
    """Collects what is read of the parameter at a place, also by functions that it is passed on to."""
    key = (module, function.name)
    if key in seen or place >= len(function.args.args):
        return set()
    seen.add(key)
    parameter = function.args.args[place].arg
    read: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == parameter:
                read.add(attribute)
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"),
                args=[ast.Name(id=name), ast.Constant(value=str(attribute)), *_],
            ) if name == parameter:
                read.add(attribute)
            case ast.Call(func=ast.Name()):
                for found, passed in _passed_on(tree, module, node, parameter):
                    assert isinstance(found.binding, ast.FunctionDef)
                    read |= _names_read(tree, found.module, found.binding, passed, seen)
    return read


def _passed_on(tree: SourceTree, module: str, call: ast.Call, parameter: str) -> Iterator[tuple[Found, int]]:
    """Yields the function called and the place at which it gets the parameter."""
    assert isinstance(call.func, ast.Name)
    found = tree.find(module, call.func.id)
    if isinstance(found, Found) and isinstance(found.binding, ast.FunctionDef):
        for place, argument in enumerate(call.args):
            if isinstance(argument, ast.Name) and argument.id == parameter:
                yield found, place
