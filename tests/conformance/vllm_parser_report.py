"""Tells, as JSON, what a real vLLM's `serve` parser accepts. Run by vLLM's own Python, not by the tests'.

VLLM_TARGET_DEVICE=cpu PYTHONPATH=<sources> <python> vllm_parser_report.py <file to write>
"""

import argparse
import dataclasses
import functools
import importlib
import json
import sys
import typing
import warnings

UNKNOWN_KEY = "no_such_key_anywhere"
REFUSALS = ("unexpected_keyword_argument", "extra_forbidden", "unexpected keyword argument")


def first_of(*places):
    """Returns the first of `module:name` that can be imported."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            last = error
    raise last


def let_old_releases_register_models_twice():
    """Releases before 0.10 register models that newer Transformers releases have themselves."""
    from transformers import AutoConfig

    register = AutoConfig.register
    AutoConfig.register = staticmethod(functools.partial(register, exist_ok=True))


def serve_parser():
    """Builds the parser of `vllm serve`."""
    parser_class = first_of(
        "vllm.utils.argparse_utils:FlexibleArgumentParser", "vllm.utils:FlexibleArgumentParser"
    )
    parser = parser_class(prog="vllm serve")
    try:
        subcommand = first_of("vllm.entrypoints.cli.serve:ServeSubcommand")
    except Exception:  # Its server needs more than is installed; the parser does not.
        make_arg_parser = first_of(
            "vllm.entrypoints.common.cli_args:make_arg_parser",
            "vllm.entrypoints.launchers.cli_args:make_arg_parser",
            "vllm.entrypoints.openai.cli_args:make_arg_parser",
        )
        return make_arg_parser(parser), "make_arg_parser"
    return subcommand().subparser_init(parser.add_subparsers()), "serve"


def converted(action, text):
    """Returns what the action's type makes of a text."""
    try:
        return action.type(text) if action.type else text
    except Exception:  # Releases differ in what they raise for a text that they cannot read.
        return UNKNOWN_KEY


def describe_type(kind, depth=0):
    """Names a converter, and those that it wraps."""
    name = getattr(kind, "__qualname__", None) or repr(kind)
    cells = getattr(kind, "__closure__", None) or ()
    inner = [describe_type(cell.cell_contents, depth + 1) for cell in cells if callable(cell.cell_contents)]
    defaults = [
        value.__qualname__ for value in (getattr(kind, "__defaults__", None) or ()) if isinstance(value, type)
    ]
    return [name, *inner, *defaults] if depth < 4 and (inner or defaults) else name


def describe(action, spellings):
    """Describes one action."""
    choices = None
    if action.choices is not None:
        choices = [str(choice) for choice in action.choices if converted(action, str(choice)) == choice]
    return {
        "spellings": spellings,
        "destination": action.dest,
        "nargs": action.nargs,
        "choices": choices,
        "action": type(action).__name__,
        "config_class": getattr(filled_class(action), "__name__", None),
        "takes_pairs": converted(action, "a=1") == {"a": 1},
        "lower_cases": converted(action, "A-B") == "a_b",
        "type": None if action.type is None else describe_type(action.type),
        "off": [s for s in spellings if switches_off(action, s)],
    }


def switches_off(action, spelling):
    """Says whether a boolean flag is set to False by a spelling."""
    if not isinstance(action, argparse.BooleanOptionalAction):
        return False
    namespace = argparse.Namespace()
    action(None, namespace, None, spelling)
    return getattr(namespace, action.dest) is False


def filled_class(action):
    """Returns the class that an action's type fills, if it fills one."""
    kind = action.type
    for _ in range(4):
        values = [*(getattr(kind, "__defaults__", None) or ())]
        values += [cell.cell_contents for cell in (getattr(kind, "__closure__", None) or ())]
        owner_name = getattr(kind, "__qualname__", "").rpartition(".")[0]
        module = sys.modules.get(getattr(kind, "__module__", None))
        for value in [getattr(kind, "__self__", None), getattr(module, owner_name, None), *values]:
            owner = getattr(value, "__self__", value)
            if isinstance(owner, type) and is_config_class(owner):
                return owner
        if isinstance(kind, type) and is_config_class(kind):
            return kind
        kind = next((value for value in values if callable(value)), None)
    return None


def class_filled_later(action):
    """Returns the class that the engine fills with what the action read as plain JSON."""
    action_module = sys.modules[type(action).__module__]
    if hasattr(action_module, "LoRAModulePath") and type(action).__name__ == "LoRAParserAction":
        return action_module.LoRAModulePath
    hints = first_of("vllm.config:VllmConfig").__annotations__
    named = [member for member in members(hints.get(action.dest)) if dataclasses.is_dataclass(member)]
    return named[0] if named else None


def is_config_class(cls):
    """Says whether a class is a dataclass or a pydantic model."""
    return isinstance(cls, type) and (dataclasses.is_dataclass(cls) or hasattr(cls, "model_fields"))


def field_types(cls):
    """Returns the keys that a class may be given, with their types."""
    if hasattr(cls, "model_fields"):
        return {name: field.annotation for name, field in cls.model_fields.items()}
    hints = {}
    for owner in reversed(cls.__mro__):
        hints |= getattr(owner, "__annotations__", {})
    found = {}
    for name, field in cls.__dataclass_fields__.items():
        kind = field._field_type.name
        default = field.default
        init = field.init and getattr(default, "init", None) is not False
        if kind != "_FIELD_CLASSVAR" and init:
            found[name] = hints[name] if kind == "_FIELD" else typing.Any
    return found


def members(hint):
    """Yields the types that a union or an annotated type allows."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        marks = {type(mark).__name__ for mark in hint.__metadata__}
        replaced = marks & {"SkipValidation", "GetPydanticSchema"}  # These replace the checking of the type.
        yield from [typing.Any] if replaced else members(hint.__origin__)
    elif origin is typing.Union or type(hint).__name__ == "UnionType":
        for argument in typing.get_args(hint):
            yield from members(argument)
    else:
        yield hint


def complaint(make, path, key, value=None):
    """Returns what is said against an object with this key, put at a path of keys; "" when it is made."""
    text = {key: value}
    for step in reversed(path):
        text = {step: text}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(json.dumps(text))
    except BaseException as error:
        return f"{error!r} {error.__cause__!r}"
    return ""


def accepts(make, path, key):
    """Says whether the key is known, whatever is said of its value."""
    return not any(refusal in complaint(make, path, key) for refusal in REFUSALS)


def texts_allowed(make, path, key, hint):
    """Returns the values of the key's literals that are allowed; None when any text is."""
    if "literal_error" not in complaint(make, path, key, UNKNOWN_KEY):
        return None
    literals = [member for member in members(hint) if typing.get_origin(member) is typing.Literal]
    values = [value for literal in literals for value in typing.get_args(literal)]
    return [str(value) for value in values if "literal_error" not in complaint(make, path, key, value)]


def made_of_keys(cls, text):
    """Calls a class with the keys of a JSON object."""
    return cls(**json.loads(text))


def class_reports(make, cls, path=(), above=()):
    """Yields what a class accepts where a flag fills it, and what the classes in it accept."""
    types = field_types(cls)
    yield {
        "class": cls.__name__,
        "path": path,
        "extra": accepts(make, path, UNKNOWN_KEY),
        "fields": {
            name: texts_allowed(make, path, name, hint)
            for name, hint in types.items()
            if accepts(make, path, name)
        },
    }
    for name, hint in types.items():
        for member in members(hint):
            if is_config_class(member) and member not in above and len(path) < 3:
                yield from class_reports(make, member, (*path, name), (*above, member))


def main(target):
    """Writes the report."""
    warnings.simplefilter("ignore")
    sys.argv = ["vllm", "serve"]
    let_old_releases_register_models_twice()
    parser, built_by = serve_parser()
    spellings = {}
    for spelling, action in parser._option_string_actions.items():
        spellings.setdefault(id(action), []).append(spelling)
    classes = []
    for action in parser._actions:
        cls, make = filled_class(action), action.type
        if cls is None:
            cls = class_filled_later(action)
            make = functools.partial(made_of_keys, cls)
        if cls is not None:
            # A plain dataclass that is only called leaves dictionaries in its fields as they are.
            descend = make is action.type or hasattr(cls, "__pydantic_validator__")
            reports = class_reports(make, cls, (), (cls,))
            classes += [{"flag": action.dest, **one} for one in reports if descend or not one["path"]]
    engine_arguments = first_of("vllm.engine.arg_utils:AsyncEngineArgs")
    report = {
        "built_by": built_by,
        "engine_destinations": [field.name for field in dataclasses.fields(engine_arguments)],
        "actions": [describe(one, spellings.get(id(one), [])) for one in parser._actions],
        "classes": classes,
    }
    with open(target, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(report, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
