"""Answers what real argument parsers make of a command; run by the python that has vLLM and Ray.

Reads one JSON object per line, ``{"id", "kind", "argv", "env"}``, and writes one per line,
``{"id", "accepted", "why", "values"}``. The kinds are ``parse`` (vLLM's parser alone),
``engine_config`` (the parser and then the configuration that the engine makes of it) and
``ray_start`` (Ray's parser). The only command line argument is the vLLM release that has to be
the one on the path.

Nothing of enginelaunch is imported here, so what is under test cannot colour the answer.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import enum
import functools
import importlib
import inspect
import io
import json
import os
import sys
import traceback
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",  # 0.33
    "vllm.entrypoints.launchers.cli_args",  # 0.32
    "vllm.entrypoints.openai.cli_args",  # up to 0.31
)

PARALLEL_FIELDS = (
    "world_size",
    "local_world_size",
    "nnodes",
    "node_rank",
    "node_rank_within_dp",
    "data_parallel_size",
    "data_parallel_size_local",
    "data_parallel_rank",
    "data_parallel_index",
    "data_parallel_hybrid_lb",
    "data_parallel_external_lb",
    "data_parallel_backend",
    "data_parallel_master_ip",
    "data_parallel_rpc_port",
    "master_addr",
    "master_port",
    "distributed_executor_backend",
    "enable_expert_parallel",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
)

LORA_FIELDS = ("max_loras", "max_lora_rank", "max_cpu_loras", "fully_sharded_loras")

KV_EVENTS_FIELDS = ("enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "topic")

NOT_SET = object()


class RefusedError(Exception):
    """The real program does not take this command."""


def as_json(value: Any) -> Any:
    """Return `value` as something that JSON can hold, with nothing that matters lost."""
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"config": type(value).__name__, "set": fields_that_differ(value)}
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((as_json(item) for item in value), key=repr)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def fields_that_differ(config: Any) -> dict[str, Any]:
    """Return the fields of a config object that differ from those of a default-made one."""
    defaults = default_values(type(config))
    return {
        name: as_json(value)
        for name, value in present_values(config).items()
        if value != defaults.get(name, NOT_SET)
    }


def present_values(config: Any) -> dict[str, Any]:
    """Return the fields of a config object; some have fields that are set later or never."""
    names = [field.name for field in dataclasses.fields(config)]
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def default_values(config_class: Any) -> dict[str, Any]:
    """Return the values of a default-made config object, as far as it has defaults."""
    try:
        return present_values(config_class())
    except Exception:  # some fields must be given: only the others have defaults
        fields = dataclasses.fields(config_class)
        return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}


@contextlib.contextmanager
def environment(extra: dict[str, str]) -> Iterator[None]:
    """Add `extra` for the time of one request and undo also what vLLM itself sets meanwhile."""
    before = dict(os.environ)
    os.environ.update(extra)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def message_of_argparse(printed: str) -> str:
    """Return the message out of the usage text that argparse prints before it exits."""
    _, found, message = printed.partition(": error: ")
    return (message if found else printed).strip()


def in_words(error: BaseException) -> str:
    """Return an error as its type and what it says, since an empty assertion says nothing."""
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


class ServeParser:
    """The parser of ``vllm serve`` as the release on the path builds it."""

    def __init__(self, release: str) -> None:
        before_0_10 = tuple(int(part) for part in release.split(".")[:2]) < (0, 10)
        with models_registered_twice() if before_0_10 else contextlib.nullcontext():
            check_release(release)
            self._root = root_parser(old_serve_command() if before_0_10 else add_serve_command)
            self._defaults = vars(self._root.parse_args(["serve"]))

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Return the namespace of a command, or raise RefusedError."""
        if argv[:2] != ["vllm", "serve"]:
            raise RefusedError(f"not a vllm serve command: {argv[:2]}")
        printed = io.StringIO()
        try:
            with contextlib.redirect_stderr(printed):
                return self._root.parse_args(argv[1:])
        except SystemExit as stop:
            message = message_of_argparse(printed.getvalue())
            raise RefusedError(message or f"the parser exited with {stop.code}") from stop
        except Exception as error:
            raise RefusedError(in_words(error)) from error

    def values(self, namespace: argparse.Namespace) -> dict[str, Any]:
        """Return what differs from a command without any argument."""
        return {
            name: as_json(value)
            for name, value in vars(namespace).items()
            if value != self._defaults.get(name, NOT_SET)
        }


def check_release(release: str) -> None:
    """Make sure that the vLLM on the path is the one that was asked for."""
    import vllm

    found = str(vllm.__version__).split("+", maxsplit=1)[0]
    if found != release:
        raise RuntimeError(f"vLLM {release} was asked for, but {found} is at {vllm.__file__}")


@contextlib.contextmanager
def models_registered_twice() -> Iterator[None]:
    """Let an old release register models that a newer Transformers has by itself."""
    from transformers import AutoConfig

    register = AutoConfig.register

    def register_again(name: str, config: Any, exist_ok: bool = False) -> None:
        register(name, config, exist_ok=True)

    with unittest.mock.patch.object(AutoConfig, "register", register_again):
        yield


def root_parser(add_serve: Callable[[Any], Any]) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, with the serve command added to it.

    Only its own parse_args moves ``--model`` to the front and reads ``--config``, and it does so
    only when it sees the word "serve" first.
    """
    root: argparse.ArgumentParser = flexible_argument_parser()(description="vLLM CLI")
    add_serve(root.add_subparsers(required=False, dest="subparser"))
    return root


def add_serve_command(subcommands: Any) -> None:
    """Add ``vllm serve`` as its command does, whose module needs more than the parser alone."""
    make_arg_parser()(subcommands.add_parser("serve"))


def old_serve_command() -> Callable[[Any], Any]:
    """Return what adds ``vllm serve`` before 0.10, where the command adds arguments of its own."""
    from vllm.entrypoints.cli.serve import ServeSubcommand

    add: Callable[[Any], Any] = ServeSubcommand().subparser_init
    return add


def flexible_argument_parser() -> Any:
    """Return the release's own argument parser class."""
    try:
        module = importlib.import_module("vllm.utils.argparse_utils")
    except ModuleNotFoundError:
        module = importlib.import_module("vllm.utils")  # up to 0.11.0
    return module.FlexibleArgumentParser


def make_arg_parser() -> Callable[[Any], Any]:
    """Return the release's own function that adds the arguments of ``vllm serve``."""
    for name in PARSER_MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name is None or not name.startswith(missing.name):
                raise  # the module is there and something that it needs is not
            continue
        return module.make_arg_parser  # type: ignore[no-any-return]
    raise RuntimeError("this release keeps make_arg_parser in a place that is not known here")


@contextlib.contextmanager
def plenty_of_memory() -> Iterator[None]:
    """Let releases that weigh swap space against memory see a server's memory.

    Up to 0.17 every rank claims 4 GiB of swap space, so TP 8 would be refused on a small test
    machine, which says nothing about the machine that the command is for.
    """
    with contextlib.ExitStack() as stack:
        for module in (importlib.import_module("vllm.config"), sys.modules.get("vllm.config.cache")):
            if hasattr(module, "get_cpu_memory"):
                stack.enter_context(unittest.mock.patch.object(module, "get_cpu_memory", return_value=2**42))
        yield


def engine_config(namespace: argparse.Namespace) -> Any:
    """Return the configuration that the engine makes of a parsed command, or raise RefusedError."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    # A copy, since the engine writes into config objects that are the parser's defaults.
    namespace = copy.deepcopy(namespace)
    if getattr(namespace, "model_tag", None) is not None:
        namespace.model = namespace.model_tag  # as the serve command does after parsing
    options: dict[str, Any] = {"usage_context": UsageContext.OPENAI_API_SERVER}
    if "headless" in inspect.signature(AsyncEngineArgs.create_engine_config).parameters:
        options["headless"] = namespace.headless
    with plenty_of_memory():
        try:
            return AsyncEngineArgs.from_cli_args(namespace).create_engine_config(**options)
        except (Exception, SystemExit) as error:
            if says_that_vllm_is_broken(error):
                raise
            raise RefusedError(in_words(error)) from error


def says_that_vllm_is_broken(error: BaseException) -> bool:
    """Return whether an error is about this environment and not about the command."""
    return isinstance(error, ImportError) or "failed to be inspected" in str(error)


def engine_values(config: Any) -> dict[str, Any]:
    """Return what an engine configuration says about parallelism, LoRA and KV events."""
    lora, events = (getattr(config, name, None) for name in ("lora_config", "kv_events_config"))
    return {
        **chosen_fields(config.parallel_config, PARALLEL_FIELDS),
        "lora": None if lora is None else chosen_fields(lora, LORA_FIELDS),
        "kv_events": None if events is None else chosen_fields(events, KV_EVENTS_FIELDS),
    }


def chosen_fields(config: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return those of the named fields that this release has."""
    found = ((name, getattr(config, name, NOT_SET)) for name in names)
    return {name: as_json(value) for name, value in found if value is not NOT_SET}


class RayStartParser:
    """The parser of ``ray start``."""

    def __init__(self) -> None:
        import click
        from ray.scripts.scripts import start

        self._click = click
        self._start = start
        self._defaults = self._parameters([])

    def _parameters(self, arguments: list[str]) -> dict[str, Any]:
        # Making a context parses the arguments and stops short of running the command.
        return dict(self._start.make_context("ray start", arguments).params)

    def values(self, argv: list[str]) -> dict[str, Any]:
        """Return the parameters that differ from their defaults, or raise RefusedError."""
        if argv[:2] != ["ray", "start"]:
            raise RefusedError(f"not a ray start command: {argv[:2]}")
        try:
            given = self._parameters(argv[2:])
        except self._click.ClickException as error:
            raise RefusedError(error.format_message()) from error
        except self._click.exceptions.Exit as stop:
            raise RefusedError(f"the parser exited with {stop.exit_code}") from stop
        return {name: as_json(value) for name, value in given.items() if value != self._defaults[name]}


class Worker:
    """Answers requests; what a kind needs is imported when it is first asked for."""

    def __init__(self, release: str) -> None:
        self._release = release

    @functools.cached_property
    def _serve(self) -> ServeParser:
        return ServeParser(self._release)

    @functools.cached_property
    def _ray_start(self) -> RayStartParser:
        return RayStartParser()

    def _question(self, kind: str) -> Callable[[list[str]], dict[str, Any]]:
        if kind == "ray_start":
            return self._ray_start.values
        serve = self._serve
        if kind == "parse":
            return lambda argv: serve.values(serve.parse(argv))
        if kind == "engine_config":
            return lambda argv: engine_values(engine_config(serve.parse(argv)))
        raise ValueError(f"no such kind of request: {kind}")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the verdict on one request."""
        # What has to be imported is imported here, outside the environment of this one request.
        question = self._question(request["kind"])
        try:
            with environment(request["env"]):
                values = question(request["argv"])
        except RefusedError as refused:
            return {"id": request["id"], "accepted": False, "why": str(refused), "values": {}}
        return {"id": request["id"], "accepted": True, "why": None, "values": values}


def private_streams() -> tuple[Any, Any]:
    """Take stdin and stdout away, so that nothing a library prints or reads meets the protocol."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def main() -> int:
    """Answer until there are no more requests."""
    requests, answers = private_streams()
    worker = Worker(release=sys.argv[1])
    for line in requests:
        try:
            answer = worker.answer(json.loads(line))
        except Exception:  # a broken environment is no verdict: say so and stop
            traceback.print_exc()
            return 1
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Nothing is left to do, and letting torch go in good order takes seconds.
    os._exit(code)
