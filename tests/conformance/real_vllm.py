"""Asks the argument parsers and config classes of real vLLM releases, and Ray's, about commands.

`RealVLLM` keeps one process per release, in which ``parser_worker.py`` runs under the python that
has the real thing. See ``set_up.py`` for where that comes from.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from packaging.version import InvalidVersion, Version
from set_up import RELEASES, default_folder

__all__ = [
    "AVAILABLE_RELEASES",
    "MODELS",
    "RELEASES",
    "SET_UP_COMMANDS",
    "RealVLLM",
    "RealVLLMError",
    "Verdict",
    "missing_variables",
]

PYTHON_VARIABLE = "ENGINELAUNCH_VLLM_PYTHON"
SOURCES_VARIABLE = "ENGINELAUNCH_VLLM_SOURCES"

SET_UP_COMMANDS = (
    'python tests/conformance/set_up.py && eval "$(python tests/conformance/set_up.py --print-environment)"'
)

# Folders with a config.json and nothing else, which is all that an engine's configuration reads.
MODELS = Path(__file__).with_name("models")

WORKER = Path(__file__).with_name("parser_worker.py")

# No answer takes nearly this long: it is there so that a worker that hangs ends in an error.
SECONDS_BEFORE_A_WORKER_IS_GIVEN_UP = 600

# Variables of the calling environment that would colour what the real programs make of a command.
COLOURING_PREFIXES = ("VLLM_", "RAY_", "CUDA_", "NCCL_", "GLOO_", "HF_", "PYTHON")


class RealVLLMError(Exception):
    """The real vLLM could not be asked; this says nothing about the command."""


@dataclass(frozen=True)
class Verdict:
    """What a real program makes of a command.

    Attributes:
        accepted: Whether it takes the command.
        why: What it says when it does not.
        values: What it made of the command when it does.
    """

    accepted: bool
    why: str | None
    values: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A question for a worker; the environment holds for this one question only."""

    kind: str
    argv: Sequence[str]
    env: Mapping[str, str]


def missing_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables of the set-up that are not set."""
    return [name for name in (PYTHON_VARIABLE, SOURCES_VARIABLE) if not environ.get(name)]


@functools.cache
def installed_release(python: Path) -> str | None:
    """Return the vLLM release that is installed for a python, if there is one."""
    program = "import importlib.metadata; print(importlib.metadata.version('vllm'))"
    asked = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=False)
    return asked.stdout.strip().split("+", maxsplit=1)[0] if asked.returncode == 0 else None


def is_release(name: str) -> bool:
    """Return whether a name is a version, unlike that of half-done work."""
    try:
        Version(name)
    except InvalidVersion:
        return False
    return True


def releases_found(python: Path, sources: Path) -> tuple[str, ...]:
    """Return the releases that can be asked, oldest first."""
    unpacked = {folder.name for folder in sources.iterdir() if is_release(folder.name)}
    installed = installed_release(python)
    return tuple(sorted(unpacked | ({installed} if installed else set()), key=Version))


def releases_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the releases that can be asked with what the environment names; none if it names nothing."""
    if missing_variables(environ):
        return ()
    return releases_found(Path(environ[PYTHON_VARIABLE]), Path(environ[SOURCES_VARIABLE]))


AVAILABLE_RELEASES = releases_in(os.environ)


class Worker:
    """One process that answers for one release."""

    def __init__(self, python: Path, release: str, sources: Path | None) -> None:
        self._release = release
        self._folder = Path(tempfile.mkdtemp(prefix="real-vllm-"))
        self._errors = self._folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, WORKER, release],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,  # a file, since a pipe that no one reads stops its writer when full
                cwd=self._folder,
                env=worker_environment(os.environ, release, sources),
                text=True,
                encoding="utf-8",
            )

    def ask(self, requests: Sequence[Request]) -> list[Verdict]:
        """Return the verdicts on requests, in their order."""
        # Writing in a thread: with both sides writing, full pipes would leave both waiting.
        writer = threading.Thread(target=self._write, args=(requests,))
        writer.start()
        try:
            return [self._read(number) for number in range(len(requests))]
        except BaseException:
            self._process.kill()  # else the writer might wait for a reader for ever
            raise
        finally:
            writer.join()

    def _write(self, requests: Sequence[Request]) -> None:
        stream = pipe(self._process.stdin)
        try:
            for number, request in enumerate(requests):
                question = {
                    "id": number,
                    "kind": request.kind,
                    "argv": list(request.argv),
                    "env": dict(request.env),
                }
                stream.write(json.dumps(question) + "\n")
            stream.flush()
        except OSError:
            pass  # the worker is gone, which the reading side reports with the reason

    def _read(self, number: int) -> Verdict:
        guard = threading.Timer(SECONDS_BEFORE_A_WORKER_IS_GIVEN_UP, self._process.kill)
        guard.start()
        try:
            line = pipe(self._process.stdout).readline()
        finally:
            guard.cancel()
        if not line:
            raise RealVLLMError(self._how_it_ended())
        answer = json.loads(line)
        if answer["id"] != number:
            raise RealVLLMError(f"the worker of {self._release} answered out of order: {line}")
        return Verdict(accepted=answer["accepted"], why=answer["why"], values=answer["values"])

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        said = self._errors.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        return "\n".join([f"the worker of {self._release} exited with {code}; its last words:", *said])

    def close(self) -> None:
        """End the process and remove what it left."""
        for stream in (self._process.stdin, self._process.stdout):
            # What could not be written to a worker that is gone is written nowhere.
            with contextlib.suppress(OSError):
                pipe(stream).close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def pipe(stream: IO[str] | None) -> IO[str]:
    """Return the stream of a process that was started with one."""
    if stream is None:
        raise TypeError("the process was started without this stream")
    return stream


def worker_environment(environ: Mapping[str, str], release: str, sources: Path | None) -> dict[str, str]:
    """Return the environment that a worker starts with."""
    kept = {name: value for name, value in environ.items() if not name.startswith(COLOURING_PREFIXES)}
    # vLLM looks at a model's class in a process of its own, 10 s a model, and remembers what it saw.
    remembered = default_folder(environ) / "model-inspections" / release
    return {
        **kept,
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(remembered),
        "HF_HUB_OFFLINE": "1",
        **({"PYTHONPATH": str(sources)} if sources else {}),
    }


class RealVLLM:
    """Real vLLM releases and a real Ray, each asked in a process that starts with the first question."""

    def __init__(self, python: Path, sources: Path) -> None:
        """Use the vLLM and Ray of `python`, and the other releases that lie in `sources`."""
        self.python = python
        self.sources = sources
        self._workers: dict[str, Worker] = {}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> RealVLLM:
        """Use what the variables of the set-up name."""
        return cls(Path(environ[PYTHON_VARIABLE]), Path(environ[SOURCES_VARIABLE]))

    def __enter__(self) -> RealVLLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def parse(self, release: str, commands: Iterable[Sequence[str]]) -> list[Verdict]:
        """Return what the parser of ``vllm serve`` makes of commands.

        The values of a verdict are those that differ from their default. A config object is
        ``{"config": its class, "set": the fields that differ from a default-made one}``.
        """
        return self._ask(release, [Request("parse", argv, {}) for argv in commands])

    def engine_config(
        self, release: str, commands: Iterable[tuple[Sequence[str], Mapping[str, str]]]
    ) -> list[Verdict]:
        """Return what the engine's configuration makes of commands, each with its environment.

        The values of a verdict are fields of the parallel config, and under ``lora`` and
        ``kv_events`` the chief fields of those configs, or None. Nothing is loaded or started.
        """
        return self._ask(release, [Request("engine_config", argv, env) for argv, env in commands])

    def ray_start(self, commands: Iterable[Sequence[str]]) -> list[Verdict]:
        """Return what the parser of ``ray start`` makes of commands; values as with `parse`."""
        release = installed_release(self.python)
        if release is None:
            raise RealVLLMError(f"no vLLM is installed for {self.python}")
        return self._ask(release, [Request("ray_start", argv, {}) for argv in commands])

    def close(self) -> None:
        """End all processes."""
        while self._workers:
            self._workers.popitem()[1].close()

    def _ask(self, release: str, requests: Sequence[Request]) -> list[Verdict]:
        try:
            return self._worker(release).ask(requests)
        except BaseException:
            # After an error the answers no longer match the questions: start anew.
            if release in self._workers:
                self._workers.pop(release).close()
            raise

    def _worker(self, release: str) -> Worker:
        if release not in self._workers:
            self._workers[release] = Worker(self.python, release, self._sources_of(release))
        return self._workers[release]

    def _sources_of(self, release: str) -> Path | None:
        if release == installed_release(self.python):
            return None
        folder = self.sources / release
        if not (folder / "vllm").is_dir():
            raise RealVLLMError(f"there are no sources of vLLM {release} in {self.sources}")
        return folder
