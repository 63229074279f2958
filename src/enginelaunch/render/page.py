"""A plan as a page for a person: what runs on each node, and what should be known about it.

Nothing is cut off: an argument vector stands there whole, a flag and its values on one line, quoted
as a shell would want it. Text of the deployment is shown as it is, except for characters that would
steer the terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text as Line

from enginelaunch.addresses import host_and_port
from enginelaunch.command import (
    Command,
    EnvironmentSecret,
    File,
    FileSecret,
    HTTPReady,
    Joined,
    LeaderAddress,
    ListeningPort,
    NodeRank,
    Ready,
    SecretReference,
    SocketAddress,
    Stop,
    Text,
    Wait,
)
from enginelaunch.render.shell import quote

if TYPE_CHECKING:
    from enginelaunch.deployment import NodePlan, Plan
    from enginelaunch.engine import Endpoint
    from enginelaunch.findings import Finding

_LABEL_WIDTH = 11
_SEVERITY_WIDTH = 9
_SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_NUMBER = re.compile(r"-\.?\d")


def page(plan: Plan, width: int) -> list[Line]:
    """The lines of a page about a plan.

    Args:
        plan: what runs where.
        width: how many columns sentences may take; arguments and addresses take what they need.
    """
    count = len(plan.nodes)
    lines = [Line.assemble((visible(f"{plan.engine} {plan.version}"), "bold"), f" on {_nodes(count)}")]
    for node in plan.nodes:
        lines += [Line(), *_node(node)]
    if plan.findings:
        lines += [Line(), *findings_page(plan.findings, width)]
    return lines


def findings_page(findings: Iterable[Finding], width: int) -> list[Line]:
    """The lines of a page about findings.

    Args:
        findings: what was found.
        width: how many columns a line may take.
    """
    return [line for finding in findings for line in _finding(finding, width)]


def visible(text: str) -> str:
    r"""The text with every character that would steer a terminal written as an escape.

    Example:
        >>> visible("a [red]model\x1b[31m")
        'a [red]model\\x1b[31m'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _node(node: NodePlan) -> Iterator[Line]:
    address = visible(node.address) if node.address else "address not known yet"
    yield Line.assemble((f"node {node.node_rank}", "bold"), f"  {address}")
    for endpoint in node.endpoints:
        yield Line(f"  requests to {_endpoint(endpoint)}")
    for command in node.commands:
        yield Line()
        yield from _command(command)


def _endpoint(endpoint: Endpoint) -> str:
    ranks = endpoint.data_parallel_ranks
    behind = f" (data-parallel ranks {ranks[0]} to {ranks[1]})" if ranks and ranks[0] < ranks[1] else ""
    behind = f" (data-parallel rank {ranks[0]})" if ranks and ranks[0] == ranks[1] else behind
    return f"{_shown(endpoint.url)}{behind}"


def _command(command: Command) -> Iterator[Line]:
    yield Line.assemble("  ", (visible(command.name), "bold"), f"  role: {command.role}")
    yield from _entry("waits for", [_wait(wait) for wait in command.waits_for])
    yield from _entry("writes", [_file(file) for file in command.files])
    yield from _entry("unsets", [", ".join(f"{visible(prefix)}*" for prefix in command.clear_env)])
    yield from _entry("env", [f"{name}={_quoted(command.env[name])}" for name in sorted(command.env)])
    secrets = command.secret_env
    yield from _entry("secrets", [f"{name} from {_secret(secrets[name])}" for name in sorted(secrets)])
    yield from _entry("runs", _argv_lines(command.argv), style="bold")
    yield from _entry("ready", [_ready(command.ready)])
    yield from _entry("listens", [_port(port) for port in command.ports])
    yield from _entry("stops by", [_stop(command.stop)])


def _entry(label: str, values: Iterable[str], style: str = "") -> Iterator[Line]:
    """Values one below the other, with the label in front of the first; nothing without values."""
    for number, value in enumerate(value for value in values if value):
        shown_label = f"    {label if number == 0 else '':<{_LABEL_WIDTH}}"
        yield Line.assemble((shown_label, "dim"), (value, style))


# --- texts ---


def _shown(text: Text) -> str:
    """A text for reading; a placeholder stands in angle brackets."""
    if isinstance(text, str):
        return visible(text)
    if isinstance(text, Joined):
        return "".join(_shown(part) for part in text.parts)
    if isinstance(text, NodeRank):
        times = f" x {text.times}" if text.times != 1 else ""
        plus = f" {'-' if text.plus < 0 else '+'} {abs(text.plus)}" if text.plus else ""
        return f"<node rank{times}{plus}>"
    return "<leader address>" if isinstance(text, LeaderAddress) else "<own address>"


def _quoted(text: Text) -> str:
    """A text as a shell would want it, with placeholders in angle brackets."""
    return visible(quote(text)) if isinstance(text, str) else _shown(text)


def _argv_lines(argv: Iterable[Text]) -> list[str]:
    """The program with what comes before the first flag, then each flag with its values."""
    lines: list[str] = []
    for item in argv:
        is_flag = isinstance(item, str) and item.startswith("-") and not _NUMBER.match(item)
        if is_flag or not lines:
            lines.append(f"  {_quoted(item)}" if lines else _quoted(item))
        else:
            lines[-1] += f" {_quoted(item)}"
    return lines


def _address(address: SocketAddress) -> str:
    if isinstance(address.host, str):
        return visible(host_and_port(address.host, address.port))
    return f"{_shown(address.host)}:{address.port}"


def _wait(wait: Wait) -> str:
    return f"{_address(wait.address)} to accept a connection, up to {wait.timeout:g} s"


def _ready(ready: Ready | None) -> str:
    if ready is None:
        return ""
    if isinstance(ready, HTTPReady):
        url = f"{ready.scheme}://{_address(ready.address)}{visible(ready.path)}"
        return f"when {url} answers {ready.status}, within {ready.timeout:g} s"
    return f"when {_address(ready.address)} accepts a connection, within {ready.timeout:g} s"


def _port(port: ListeningPort) -> str:
    return f"{port.base if port.span == 1 else f'{port.base} to {port.last}'} ({visible(port.name)})"


def _stop(stop: Stop) -> str:
    graces = ["", *(f"after {signal.grace:g} s " for signal in stop.signals)]
    return ", ".join(f"{grace}{signal.name}" for grace, signal in zip(graces, stop.signals, strict=False))


def _secret(secret: SecretReference) -> str:
    if isinstance(secret, EnvironmentSecret):
        return f"the variable {visible(secret.env)}"
    if isinstance(secret, FileSecret):
        return f"the file {_quoted(secret.file)}"
    return "the program that made the plan"


def _file(file: File) -> str:
    content = file.content
    holds = f"holding {_secret(content)}" if isinstance(content, SecretReference) else _quoted(content)
    return f"{_quoted(file.path)} ({file.mode:04o}): {holds}"


# --- findings ---


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    # Some messages begin with the file that they are about.
    named = finding.where and not finding.message.startswith(finding.where)
    where = f"{finding.where}: " if named else ""
    indent = " " * _SEVERITY_WIDTH
    room = width - _SEVERITY_WIDTH
    first, *others = _wrapped(f"{where}{finding.message} [{finding.code}]", room)
    yield Line.assemble((f"{finding.severity:<{_SEVERITY_WIDTH}}", _SEVERITY_STYLES[finding.severity]), first)
    yield from (Line(f"{indent}{line}") for line in others)
    if finding.hint:
        yield from (Line(f"{indent}{line}", style="italic") for line in _wrapped(finding.hint, room))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(visible(text), max(width, 20), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]
