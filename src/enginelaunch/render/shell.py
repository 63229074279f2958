"""A plan as POSIX shell scripts, one a node.

A script is one shell function, called in its last line: a text that was cut off starts nothing, and
one that is pasted into a shell is run in a subshell, which leaves that shell as it was. The program
of a node with one command replaces the script (`exec`), so that signals and exit codes are its own.
Several commands run in the background, each in a subshell of its own, and the script watches them.

Commands are started in their order, and what a command has to wait for is said by its `waits_for`
alone: the `ready` of an earlier one is waited for when all have been started, since servers that
meet one another while starting are not ready before the last of them is there.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from enginelaunch.addresses import host_in_url
from enginelaunch.command import (
    Command,
    EnvironmentSecret,
    File,
    FileSecret,
    HTTPReady,
    Joined,
    LeaderAddress,
    LiteralSecret,
    NodeRank,
    OwnAddress,
    Placeholder,
    Ready,
    SecretReference,
    SocketAddress,
    StopSignal,
    Text,
    joined,
)
from enginelaunch.findings import LaunchError

if TYPE_CHECKING:
    from enginelaunch.deployment import NodePlan, Plan

WAIT_INTERVAL = 0.5
"""Seconds between two attempts to reach an address that a command waits for."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SCHEDULER_VARIABLES: dict[type[Placeholder], tuple[str, str]] = {
    LeaderAddress: ("LEADER_ADDR", "the address of node 0, without brackets"),
    OwnAddress: ("NODE_ADDR", "the address of this node, without brackets"),
    NodeRank: ("NODE_RANK", "the rank of this node"),
}
"""Which shell variable stands for a placeholder, and what it has to hold."""


def shell(plan: Plan) -> dict[str, str]:
    """One POSIX shell script for each node of a plan.

    A secret is read when the script runs; one that Python code handed in is never written, and the
    script asks for a variable of the same name instead.

    Args:
        plan: what runs where.

    Returns:
        The scripts by file name: `node-0.sh`, `node-1.sh`, and so on.

    Raises:
        LaunchError: a variable has a name that no shell can hold.

    Example:
        >>> from enginelaunch import Deployment, plan
        >>> deployment = Deployment(engine="vllm", version="0.32.0",
        ...                         profile={"model": "/models/llama"}, nodes=[{"gpus": 1}])
        >>> script = shell(plan(deployment))["node-0.sh"]
        >>> next(line.strip() for line in script.splitlines() if "exec" in line)[:31]
        'exec vllm serve /models/llama -'
    """
    return {f"{_label(node)}.sh": _script(plan, node) for node in plan.nodes}


# --- words: the one place where text is quoted ---


def quote(text: str) -> str:
    """The text as one shell word.

    Example:
        >>> print(quote("it's $HOME"), quote("plain"), quote("=eth0"))
        'it'"'"'s $HOME' plain '=eth0'
    """
    # zsh, into which someone may paste a script, takes a leading = for the path of a program.
    return f"'{text}'" if text.startswith("=") and shlex.quote(text) == text else shlex.quote(text)


def word(text: Text) -> str:
    """A text as one shell word; a placeholder is expanded when the script runs.

    Example:
        >>> word(joined("tcp://", LeaderAddress(in_url=True), ":6379"))
        'tcp://"$(in_url "$LEADER_ADDR")":6379'
        >>> word(NodeRank(times=8))
        '"$((NODE_RANK * 8 + 0))"'
    """
    if isinstance(text, str):
        return quote(text)
    if isinstance(text, Joined):
        return "".join(word(part) for part in text.parts)
    variable, _ = _SCHEDULER_VARIABLES[type(text)]
    if isinstance(text, NodeRank):
        if text == NodeRank():
            return f'"${variable}"'
        return f'"$(({variable} * {text.times} {"-" if text.plus < 0 else "+"} {abs(text.plus)}))"'
    return f'"$(in_url "${variable}")"' if text.in_url else f'"${variable}"'


def command_line(argv: Iterable[Text]) -> str:
    """An argument vector as one line that a shell splits into the same items.

    Example:
        >>> print(command_line(["vllm", "serve", "a model", "--rope-scaling", '{"factor":2.0}']))
        vllm serve 'a model' --rope-scaling '{"factor":2.0}'
    """
    return " ".join(word(item) for item in argv)


def _comment(text: str) -> str:
    """Text for a comment: whatever could end the line is left out."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


# --- functions that a script defines where it needs them ---

_CLEAR_ENV = r"""
# Drops every variable whose name begins with $1. The first name is there for when there is none.
clear_env() {
    unset -v enginelaunch_none $(env | sed -n "s/^\($1[A-Za-z0-9_]*\)=.*/\1/p")
}
""".strip().splitlines()

_IN_URL = """
# An address as it stands in front of a port: IPv6 in brackets.
in_url() {
    case $1 in
        *:*) printf '[%s]' "$1" ;;
        *) printf '%s' "$1" ;;
    esac
}
""".strip().splitlines()

_SECRET_FROM = r"""
# The secret in file $1, less one newline at its end. A dot follows it, since $(...) drops all newlines.
secret_from() (
    text=$(cat -- "$1" && printf .) || fail "cannot read the secret file $1"
    newline=$(printf '\n.')
    text=${text%.}
    text=${text%"${newline%.}"}
    [ -n "$text" ] || fail "the secret file $1 is empty"
    printf '%s.' "$text"
)
""".strip().splitlines()

_WRITE_FILE = """
# Writes file $1 with mode $2 and content $3. Nobody else can read it before it has its mode.
write_file() {
    rm -f -- "$1" || fail "cannot replace $1"
    (umask 077 && printf '%s' "$3" >"$1") || fail "cannot write $1"
    chmod "$2" "$1"
}
""".strip().splitlines()

_ASK = """
import http.client, os, socket, sys, time
from urllib.parse import urlsplit

script, who, url, expected, seconds, interval, *alive = sys.argv[1:]
to, shell, end = urlsplit(url), os.getppid(), time.monotonic() + float(seconds)

def ask():
    if expected == "connection":
        socket.create_connection((to.hostname, to.port), 5).close()
        return
    kind, options = http.client.HTTPConnection, {}
    if to.scheme == "https":
        import ssl
        kind, options = http.client.HTTPSConnection, {"context": ssl._create_unverified_context()}
    connection = kind(to.hostname, to.port, timeout=5, **options)
    connection.request("GET", to.path)
    status = connection.getresponse().status
    connection.close()
    if str(status) != expected:
        raise OSError("HTTP status %s, not %s" % (status, expected))

print("%s: %s waits for %s, up to %s s" % (script, who, url, seconds), file=sys.stderr)
while True:
    try:
        ask()
        sys.exit()
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error
    for name, process in zip(alive[::2], alive[1::2]):
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            sys.exit("%s: %s has ended while %s waited for %s" % (script, name, who, url))
    if time.monotonic() >= end:
        sys.exit("%s: %s waited %s s for %s in vain: %s" % (script, who, seconds, url, reason))
    if os.getppid() != shell:
        sys.exit(1)
    time.sleep(float(interval))
"""
"""Asks an address until it answers as expected, a process has ended or the time is over."""


def _wait_for(label: str) -> list[str]:
    return [
        "# Waits until an address gives what is expected: a connection, or an HTTP status.",
        "# $1 who waits, $2 URL, $3 what is expected, $4 seconds, $5 interval; then names and processes",
        "# that must not end meanwhile. python3 asks, because it does so alike on all systems, with IPv6",
        "# and TLS, where nc and curl are missing or differ.",
        "wait_for() {",
        f"""    python3 -I -c {quote(_ASK)} {label} "$@" &""",
        """    wait "$!\"""",
        "}",
    ]


def _fail(label: str) -> list[str]:
    return [
        "fail() {",
        f"""    printf '%s\\n' "{label}: $*" >&2""",
        "    exit 1",
        "}",
    ]


_WATCH = """
# Whether one of the processes runs.
running() {
    for pid in "$@"; do
        if kill -0 "$pid" 2>/dev/null; then return 0; fi
    done
    return 1
}

# Sends signal $1 to the processes $3 and further, and gives them $2 seconds to end.
stop_processes() {
    signal=$1 seconds=$2
    shift 2
    for pid in "$@"; do kill -s "$signal" "$pid" 2>/dev/null || :; done
    while [ "$seconds" -gt 0 ] && running "$@"; do
        sleep 1
        seconds=$((seconds - 1))
    done
}

# Ends the script when command $1, which is process $2, has ended.
must_run() {
    if running "$2"; then return 0; fi
    code=0
    wait "$2" || code=$?
    fail "$1 has ended with exit code $code"
}
""".strip().splitlines()


# --- a script ---


def _label(node: NodePlan) -> str:
    return f"node-{node.node_rank}"


def _script(plan: Plan, node: NodePlan) -> str:
    for command in node.commands:
        _refuse_names(command)
    function = f"node_{node.node_rank}"
    # A line that goes on in quotes must not be moved, so that only its first line is.
    body = [f"    {line}" if line else "" for line in (*_beginning(node), *_steps(node))]
    lines = [
        *_header(plan, node),
        "",
        f"{function}() {{",
        *body,
        "}",
        "",
        "# A shell in which someone types is left as it is.",
        "case $- in",
        f"    *i*) ({function}) ;;",
        f"    *) {function} ;;",
        "esac",
    ]
    return "\n".join(lines) + "\n"


def _header(plan: Plan, node: NodePlan) -> list[str]:
    where = f" ({node.address})" if node.address else ""
    names = ", ".join(command.name for command in node.commands) or "nothing"
    says = f"{plan.engine} {plan.version}, node {node.node_rank} of {len(plan.nodes)}{where}: starts {names}."
    lines = [
        "#!/bin/sh",
        f"# {_comment(says)}",
        f"# Run it on that node: sh {_label(node)}.sh, or paste it there into sh or bash.",
    ]
    needed = list(_demands(node))
    if needed:
        lines.append(f"# It needs these variables: {', '.join(needed)}.")
    if _node_rank(node):
        lines.append(f"# NODE_RANK is {node.node_rank} where it is not set.")
    return lines


def _beginning(node: NodePlan) -> list[str]:
    lines = ["set -eu"]
    for function in _functions(node):
        lines += ["", *function]
    required = _requirements(node)
    return [*lines, "", "# Nothing is started without these.", *required] if required else lines


def _requirements(node: NodePlan) -> list[str]:
    lines = [
        f': "${{{variable}:?set {variable} to {meaning}}}"' for variable, meaning in _demands(node).items()
    ]
    lines += _node_rank(node)
    lines += [f"secret_from {quote(path)} >/dev/null" for path in _secret_files(node)]
    if _has_waits(node):
        lines.append(
            'command -v python3 >/dev/null || fail "python3 is needed for waiting, and is not on PATH"'
        )
    return lines


def _functions(node: NodePlan) -> Iterator[list[str]]:
    commands = node.commands
    has_files = any(command.files for command in commands)
    if has_files or len(commands) > 1 or _has_waits(node) or _secret_files(node) or _node_rank(node):
        yield _fail(_label(node))
    if any(command.clear_env for command in commands):
        yield _CLEAR_ENV
    if any(getattr(found, "in_url", False) for text in _texts(node) for found in _placeholders(text)):
        yield _IN_URL
    if _secret_files(node):
        yield _SECRET_FROM
    if has_files:
        yield _WRITE_FILE
    if _has_waits(node):
        yield _wait_for(_label(node))
    if len(commands) > 1:
        yield _WATCH


def _has_waits(node: NodePlan) -> bool:
    return any(c.waits_for for c in node.commands) or any(c.ready for c in node.commands[:-1])


def _steps(node: NodePlan) -> list[str]:
    if len(node.commands) == 1:
        (command,) = node.commands
        return ["", f"# --- {_comment(command.name)} ---", *_waits(command, ()), *_start(command)]
    return _several(node.commands) if node.commands else []


def _several(commands: tuple[Command, ...]) -> list[str]:
    lines = [
        "",
        "# When the script ends, so do the commands that it has started.",
        *(f"pid_{number}=''" for number in range(1, len(commands) + 1)),
        "stop_all() {",
        "    trap - EXIT HUP INT TERM",
        *_stops(commands),
        "}",
        "trap stop_all EXIT",
        "trap 'exit 129' HUP",
        "trap 'exit 130' INT",
        "trap 'exit 143' TERM",
    ]
    processes = [(command.name, f"pid_{number}") for number, command in enumerate(commands, start=1)]
    for number, command in enumerate(commands):
        lines += ["", f"# --- {_comment(command.name)} ---"]
        lines += [
            *_waits(command, processes[:number]),
            "(",
            *(f"    {line}" for line in _start(command)),
            ") &",
            f"pid_{number + 1}=$!",
        ]
    ready = [_readiness(c, c.ready, processes) for c in commands[:-1] if c.ready is not None]
    last_name, last_process = processes[-1]
    return [
        *lines,
        *(["", "# All but the last have to become ready, where they can be asked."] if ready else []),
        *ready,
        "",
        f"# The script ends when a command does; {_comment(last_name)} gives it its exit code.",
        "while :; do",
        *(f'    must_run {quote(name)} "${process}"' for name, process in processes[:-1]),
        f'    if ! running "${last_process}"; then',
        f'        wait "${last_process}"',
        "        exit",
        "    fi",
        "    sleep 1",
        "done",
    ]


def _stops(commands: tuple[Command, ...]) -> list[str]:
    """Commands with a lower stop order first; those that are stopped alike, together."""
    numbered = sorted(enumerate(commands, start=1), key=lambda entry: entry[1].stop.order)
    lines: list[str] = []
    for stop, group in groupby(numbered, key=lambda entry: entry[1].stop):
        processes = " ".join(f"$pid_{number}" for number, _ in group)
        lines += [
            f"    stop_processes {quote(_signal(signal))} {math.ceil(signal.grace)} {processes}"
            for signal in stop.signals
        ]
    return lines


def _signal(signal: StopSignal) -> str:
    return signal.name.removeprefix("SIG")


# --- a command ---


def _start(command: Command) -> list[str]:
    kept, exported = _secret_exports(command)
    return [
        *(line for file in command.files for line in _file(file)),
        *kept,
        *(f"clear_env {prefix}" for prefix in command.clear_env),
        *exported,
        *(f"export {name}={word(command.env[name])}" for name in sorted(command.env)),
        f"exec {command_line(command.argv)}",
    ]


def _waits(command: Command, processes: Iterable[tuple[str, str]]) -> list[str]:
    return [
        _wait_call(
            command.name,
            _url("tcp", wait.address),
            expected="connection",
            seconds=wait.timeout,
            interval=WAIT_INTERVAL,
            processes=processes,
        )
        for wait in command.waits_for
    ]


def _readiness(command: Command, ready: Ready, processes: Iterable[tuple[str, str]]) -> str:
    scheme, path, expected = "tcp", "", "connection"
    if isinstance(ready, HTTPReady):
        scheme, path, expected = ready.scheme, ready.path, str(ready.status)
    return _wait_call(
        f"readiness of {command.name}",
        joined(_url(scheme, ready.address), path),
        expected=expected,
        seconds=ready.timeout,
        interval=ready.interval,
        processes=processes,
    )


def _wait_call(
    who: str,
    url: Text,
    *,
    expected: str,
    seconds: float,
    interval: float,
    processes: Iterable[tuple[str, str]],
) -> str:
    alive = "".join(f' {quote(name)} "${variable}"' for name, variable in processes)
    return f"wait_for {quote(who)} {word(url)} {expected} {seconds:g} {interval:g}{alive}"


def _url(scheme: str, address: SocketAddress) -> Text:
    return joined(f"{scheme}://", _in_url(address.host), f":{address.port}")


def _in_url(host: Text) -> Text:
    if isinstance(host, str):
        return host_in_url(host)
    return type(host)(in_url=True) if isinstance(host, (LeaderAddress, OwnAddress)) else host


def _file(file: File) -> list[str]:
    write = f"write_file {quote(file.path)} {file.mode:04o}"
    content = file.content
    if isinstance(content, FileSecret):
        return [
            "(",
            f"    text=$(secret_from {quote(content.file)})",
            f'    {write} "${{text%.}}"',
            ")",
        ]
    if isinstance(content, EnvironmentSecret):
        return [f'{write} "${{{content.env}:?}}"']
    if isinstance(content, LiteralSecret):
        return [f'{write} "${{{_file_variable(file)}:?}}"']
    return [f"{write} {word(content)}"]


# --- secrets ---


def _source(target: str, secret: EnvironmentSecret | LiteralSecret) -> str:
    """The variable that holds a secret when the script runs."""
    return secret.env if isinstance(secret, EnvironmentSecret) else target


def _file_variable(file: File) -> str:
    """The variable that holds the content of a file, when Python code handed it in."""
    return "SECRET_" + re.sub(r"[^A-Za-z0-9]+", "_", PurePosixPath(file.path).name).strip("_").upper()


def _secret_exports(command: Command) -> tuple[list[str], list[str]]:
    """Lines that put aside what would be lost, and lines that set the variables."""
    kept: list[str] = []
    exported: list[str] = []
    for number, name in enumerate(sorted(command.secret_env), start=1):
        secret = command.secret_env[name]
        if isinstance(secret, FileSecret):
            exported += [f"{name}=$(secret_from {quote(secret.file)})", f'export {name}="${{{name}%.}}"']
            continue
        source = _source(name, secret)
        others = set(command.secret_env) - {name}
        if source in others or source.startswith(command.clear_env):
            kept.append(f'secret_{number}="${{{source}:?}}"')
            exported.append(f'export {name}="$secret_{number}"')
        else:
            exported.append(f'export {name}="${{{source}:?}}"')
    return kept, exported


def _secret_files(node: NodePlan) -> list[str]:
    secrets = [secret for command in node.commands for secret in command.secret_env.values()]
    contents = [file.content for command in node.commands for file in command.files]
    return list(dict.fromkeys(s.file for s in (*secrets, *contents) if isinstance(s, FileSecret)))


# --- what a script has to be given ---


def _texts(node: NodePlan) -> Iterator[Text]:
    """All texts of a node's script."""
    for number, command in enumerate(node.commands, start=1):
        yield from _own_texts(command)
        yield from (_url("tcp", wait.address) for wait in command.waits_for)
        if command.ready is not None and number < len(node.commands):
            yield _url("tcp", command.ready.address)


def _own_texts(command: Command) -> Iterator[Text]:
    """The texts of a command that are expanded where its own variables are set."""
    yield from command.argv
    yield from command.env.values()
    yield from (f.content for f in command.files if not isinstance(f.content, SecretReference))


def _placeholders(text: Text) -> Iterator[Placeholder]:
    for part in text.parts if isinstance(text, Joined) else (text,):
        if not isinstance(part, str):
            yield part


def _demands(node: NodePlan) -> dict[str, str]:
    """The variables that must be set where the script runs, and what each has to hold."""
    used = {type(found) for text in _texts(node) for found in _placeholders(text)}
    demands = {
        variable: meaning
        for kind, (variable, meaning) in _SCHEDULER_VARIABLES.items()
        if kind in used and kind is not NodeRank
    }
    for command in node.commands:
        for name in sorted(command.secret_env):
            secret = command.secret_env[name]
            if not isinstance(secret, FileSecret):
                demands.setdefault(_source(name, secret), f"the secret for {name}")
        for file in command.files:
            if isinstance(file.content, (EnvironmentSecret, LiteralSecret)):
                demands.setdefault(_source(_file_variable(file), file.content), "the secret for a file")
    return demands


def _node_rank(node: NodePlan) -> list[str]:
    if not any(isinstance(found, NodeRank) for text in _texts(node) for found in _placeholders(text)):
        return []
    return [
        f"NODE_RANK=${{NODE_RANK:-{node.node_rank}}}",
        'case $NODE_RANK in *[!0-9]* | 0?*) fail "NODE_RANK is no whole number: $NODE_RANK" ;; esac',
    ]


def _refuse_names(command: Command) -> None:
    """Refuse variables that a shell cannot hold, or that the script itself needs.

    Raises:
        LaunchError: there is one.
    """
    secrets = [*command.secret_env.values(), *(file.content for file in command.files)]
    sources = [secret.env for secret in secrets if isinstance(secret, EnvironmentSecret)]
    for name in (*command.env, *command.secret_env, *sources, *command.clear_env):
        if not _VARIABLE.fullmatch(name):
            raise _unwritable(
                f"{name!r} of {command.name} is no name that a shell can give to a variable",
                "use letters, digits and underscores, the first no digit",
            )
    changed = {*command.env, *command.secret_env}
    for kind in {type(found) for text in _own_texts(command) for found in _placeholders(text)}:
        name, meaning = _SCHEDULER_VARIABLES[kind]
        if name in changed or name.startswith(command.clear_env):
            raise _unwritable(
                f"{command.name} sets or drops {name}, in which the script holds {meaning}",
                "leave it out of env, or give every node its address",
            )


def _unwritable(message: str, hint: str) -> LaunchError:
    return LaunchError.of("unwritable-in-shell", message, hint=hint, where="profile.env")
