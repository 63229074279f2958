"""The command line `enginelaunch`.

Exit codes: 0 fine; 1 findings that are errors; 2 bad usage, or files that cannot be read or written.

typer and rich come with the extra `cli` and are imported when they are needed, so that `main` can say
so where they are missing. What the commands do stands in functions that return an exit code; all
that they write goes through `_write`, which knows of closed pipes, full disks and small alphabets.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Optional, TextIO

from enginelaunch import __version__, examples
from enginelaunch.findings import Finding, LaunchError

if TYPE_CHECKING:
    import typer
    from rich.text import Text as Line

    from enginelaunch.deployment import Deployment, Plan

FINE, ERRORS, UNUSABLE = 0, 1, 2
"""Exit codes: fine; findings that are errors; bad usage, or files that cannot be read or written."""

_INTERRUPTED, _PIPE_CLOSED = 130, 141
"""Exit codes as a shell gives them for a program that SIGINT or SIGPIPE has ended."""

_UNUSABLE_FINDINGS = frozenset(
    {"unreadable-file", "unreadable-adapter", "unknown-example", "unwritable-file"}
)
"""Codes of findings about files rather than about what stands in them."""

_TARGETS = ("shell",)
"""What `render --to` takes: names of functions in `enginelaunch.render`."""

_FILE_MODES = {"shell": 0o700}
"""Permissions of the files of a target."""

# typer before 0.12.4 does not read `str | None`.
_MaybeText = Optional[str]  # noqa: UP045

_NEEDS_EXTRA = "enginelaunch: the command line needs typer and rich: pip install 'enginelaunch[cli]'"


def main() -> None:
    """Run the command line; the entry point `enginelaunch`.

    Raises:
        SystemExit: always, with the exit code.
    """
    try:
        try:
            import rich  # noqa: F401, PLC0415 - part of an extra
            import typer  # noqa: F401, PLC0415 - part of an extra
        except ImportError:
            print(_NEEDS_EXTRA, file=sys.stderr)
            sys.exit(UNUSABLE)
        application()(prog_name="enginelaunch")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except OSError as error:
        if error.filename is not None:
            raise
        _cannot_write(error)


def application() -> "typer.Typer":
    """The command line as a typer application."""
    import typer  # noqa: PLC0415 - part of an extra

    app = typer.Typer(
        name="enginelaunch",
        help="Which processes, on which nodes, with which arguments and environment, serve this model?",
        no_args_is_help=True,
        add_completion=False,
        # Plain messages: what a user typed is not read as markup.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    file = typer.Argument(metavar="FILE|EXAMPLE", help="A deployment file, or the name of an example.")
    as_json = typer.Option("--json", help="Write JSON, errors too.")
    adapters = typer.Option(
        "--read-adapters", help="Read ranks of LoRA adapters whose folders are on this machine."
    )
    output = typer.Option("--output", "-o", metavar="DIR", help="Write files into this folder.")

    def show_version(asked: bool) -> None:
        if asked:
            _write(f"enginelaunch {__version__}\n")
            raise typer.Exit

    @app.callback()
    def _options(
        version: Annotated[
            bool,
            typer.Option(
                "--version", help="Write the version and end.", callback=show_version, is_eager=True
            ),
        ] = False,
    ) -> None:
        pass

    @app.command("plan")
    def _plan(
        deployment: Annotated[str, file],
        json_: Annotated[bool, as_json] = False,
        shell: Annotated[bool, typer.Option("--shell", help="Write a shell script for each node.")] = False,
        folder: Annotated[_MaybeText, output] = None,
        read_adapters: Annotated[bool, adapters] = False,
    ) -> None:
        """Show what runs on each node."""
        if json_ and shell:
            raise typer.BadParameter("--json and --shell exclude each other: use render --to shell --json")
        if folder is not None and not shell:
            raise typer.BadParameter("--output needs --shell")
        made = _make_plan(deployment, read_adapters)
        raise typer.Exit(_render(made, "shell", folder) if shell else _show_plan(made, json_))

    @app.command("render")
    def _render_command(
        deployment: Annotated[str, file],
        to: Annotated[str, typer.Option("--to", metavar="TARGET", help=f"{' or '.join(_TARGETS)}.")],
        folder: Annotated[_MaybeText, output] = None,
        json_: Annotated[bool, as_json] = False,
        read_adapters: Annotated[bool, adapters] = False,
    ) -> None:
        """Write a plan in the language of whoever starts it."""
        if to not in _TARGETS:
            raise typer.BadParameter(f"--to takes {' or '.join(_TARGETS)}, not {to!r}")
        raise typer.Exit(_render(_make_plan(deployment, read_adapters), to, folder, as_json=json_))

    @app.command("examples")
    def _examples(
        name: Annotated[_MaybeText, typer.Argument(metavar="NAME", help="Show this example.")] = None,
        json_: Annotated[bool, as_json] = False,
    ) -> None:
        """List the deployment files that ship with enginelaunch, or show one."""
        raise typer.Exit(_list_examples(json_) if name is None else _show_example(name, json_))

    @app.command("schema")
    def _schema(
        json_: Annotated[bool, typer.Option("--json", help="Write JSON, as always.")] = False,  # noqa: ARG001
    ) -> None:
        """Write the JSON Schema of a deployment file, for editors."""
        raise typer.Exit(_show_schema())

    return app


# --- what the commands do ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A plan, or why there is none.

    Attributes:
        plan: the plan; None when it could not be made.
        engine: the engine's name, as far as it is known.
        version: the engine's version, as far as it is known.
        findings: what was found.
    """

    plan: "Plan | None" = None
    engine: str | None = None
    version: str | None = None
    findings: tuple[Finding, ...] = ()

    def as_dict(self, **parts: Any) -> dict[str, Any]:
        """It as JSON data, with these parts between the version and the findings."""
        findings = [finding.as_dict() for finding in self.findings]
        return {"engine": self.engine, "version": self.version, **parts, "findings": findings}


def _make_plan(file: str, read_adapters: bool) -> _Planned:
    from enginelaunch.checkpoint import with_adapter_ranks  # noqa: PLC0415 - `--version` has no need of it
    from enginelaunch.deployment import plan  # noqa: PLC0415 - `--version` has no need of it

    try:
        deployment = _read_deployment(file)
        if read_adapters:
            profile = with_adapter_ranks(deployment.profile)
            deployment = deployment.model_copy(update={"profile": profile})
    except LaunchError as error:
        return _Planned(findings=error.report.findings)
    try:
        made = plan(deployment)
    except LaunchError as error:
        return _Planned(engine=deployment.engine, version=deployment.version, findings=error.report.findings)
    return _Planned(plan=made, engine=made.engine, version=made.version, findings=made.findings)


def _read_deployment(file: str) -> "Deployment":
    """Read a file, or the example of that name when there is no such file."""
    from enginelaunch.deployment import Deployment  # noqa: PLC0415 - `--version` has no need of it

    if _is_there(file):
        return Deployment.from_yaml(file)
    try:
        text = examples.text(file)
    except LaunchError:
        raise LaunchError.of(
            "unreadable-file",
            f"there is no file {file!r}, and no example of that name",
            hint=examples.nearest(file),
        ) from None
    return Deployment.from_yaml_text(text, name=file)


def _is_there(file: str) -> bool:
    """Whether there is something by that name, be it readable or not."""
    try:
        Path(file).lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return bool(file)


def _show_plan(made: _Planned, as_json: bool) -> int:
    found = made.plan
    if found is None:
        return _refuse(made, as_json, nodes=[])
    if as_json:
        return _write_json(found.as_dict())
    from enginelaunch.render.page import page  # noqa: PLC0415 - rich is part of an extra

    return _write_lines(lambda width: page(found, width))


def _render(made: _Planned, target: str, folder: str | None, *, as_json: bool = False) -> int:
    from enginelaunch import render  # noqa: PLC0415 - only needed here

    texts: dict[str, str] = {}
    if made.plan is not None:
        try:
            texts = getattr(render, target)(made.plan)
            if folder is not None:
                _write_files(texts, Path(folder), _FILE_MODES[target])
        except LaunchError as error:
            made = replace(made, plan=None, findings=(*made.findings, *error.report.findings))
    if made.plan is None:
        return _refuse(made, as_json, target=target, files=[])
    paths = {name: None if folder is None else str(Path(folder, name)) for name in texts}
    if as_json:
        files = [{"name": name, "path": paths[name], "text": text} for name, text in texts.items()]
        return _write_json(made.as_dict(target=target, files=files))
    if folder is not None:
        _write("".join(f"wrote {path}\n" for path in paths.values()))
    else:
        _write("\n".join(_titled(texts)), encoding="utf-8")
    _write_findings(made.findings)
    return FINE


def _titled(texts: dict[str, str]) -> list[str]:
    """The texts, each after a comment with its name when there are several."""
    if len(texts) == 1:
        return list(texts.values())
    return [f"# ===== {name} =====\n{text}" for name, text in texts.items()]


def _write_files(texts: dict[str, str], folder: Path, mode: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            # A new file beside the old one, which a shell may be reading at this moment.
            beside = folder / f".{name}.new"
            beside.unlink(missing_ok=True)
            beside.touch(mode=0o600)
            beside.write_text(text, encoding="utf-8")
            beside.chmod(mode)
            beside.replace(folder / name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LaunchError.of("unwritable-file", f"cannot write into {str(folder)!r}: {reason}") from None


def _list_examples(as_json: bool) -> int:
    known = [{"name": name, "says": examples.says(name)} for name in examples.names()]
    if as_json:
        return _write_json(known)
    width = max(len(entry["name"]) for entry in known)
    return _write("".join(f"{entry['name']:<{width}}  {entry['says']}\n" for entry in known))


def _show_example(name: str, as_json: bool) -> int:
    try:
        text = examples.text(name)
    except LaunchError as error:
        return _refuse(_Planned(findings=error.report.findings), as_json)
    if as_json:
        plain = name.removesuffix(".yaml")
        return _write_json({"name": plain, "says": examples.says(name), "text": text})
    return _write(text, encoding="utf-8")


def _show_schema() -> int:
    from enginelaunch.schema import deployment_schema  # noqa: PLC0415 - only needed here

    return _write_json(deployment_schema())


# --- writing ---


def _refuse(made: _Planned, as_json: bool, **nothing: Any) -> int:
    """Say why there is no plan, and give the exit code."""
    if as_json:
        _write_json(made.as_dict(**nothing))
    else:
        _write_findings(made.findings)
    about_files = any(finding.code in _UNUSABLE_FINDINGS for finding in made.findings)
    return UNUSABLE if about_files else ERRORS


def _write_json(data: Any) -> int:
    return _write(json.dumps(data, indent=2) + "\n")


def _write_findings(findings: Iterable[Finding]) -> int:
    from enginelaunch.render.page import findings_page  # noqa: PLC0415 - rich is part of an extra

    return _write_lines(lambda width: findings_page(findings, width), sys.stderr)


def _write_lines(lines: "Callable[[int], list[Line]]", stream: TextIO | None = None) -> int:
    """Write the lines for a width, in colour where the stream is a terminal, and none cut off."""
    from rich.console import Console  # noqa: PLC0415 - part of an extra

    stream = stream or sys.stdout
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        for line in lines(min(console.width, 100)):
            console.print(line, soft_wrap=True)
    return _write(capture.get(), stream)


def _write(text: str, stream: TextIO | None = None, encoding: str | None = None) -> int:
    """Write a text at once.

    Args:
        text: the text.
        stream: where to; standard output when None.
        encoding: for a text that is a file; otherwise the stream's own, with escapes for what it lacks.
    """
    stream = stream or sys.stdout
    if stream is None:  # it was closed before the start
        return FINE
    errors = "backslashreplace" if encoding is None else "surrogatepass"
    try:
        stream.flush()
        stream.buffer.write(text.encode(encoding or stream.encoding, errors))
        stream.buffer.flush()
    except OSError as error:
        _cannot_write(error)
    return FINE


def _cannot_write(error: OSError) -> NoReturn:
    if sys.stdout is not None:
        # What is left in its buffer would be written at the end, and fail again with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(_PIPE_CLOSED)
    print(f"enginelaunch: cannot write: {error.strerror}", file=sys.stderr)
    sys.exit(UNUSABLE)
