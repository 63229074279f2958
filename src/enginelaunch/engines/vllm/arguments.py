"""The operator's own arguments: what they say, what they replace, and what they may not hold."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from enginelaunch.addresses import BadAddressError, bare_address
from enginelaunch.argv import Arguments, BadValueError, FlagTable, Problem, parse
from enginelaunch.engines.catalogue import Catalogue
from enginelaunch.engines.vllm.flag_table import serve_flags
from enginelaunch.engines.vllm.json_values import json_findings
from enginelaunch.engines.vllm.layout import Sizes
from enginelaunch.findings import Finding
from enginelaunch.profile import Profile, names_a_secret
from enginelaunch.spec import LARGEST_SIZE, NOT_SHOWN, shown

_OWN_TO_A_NODE = "it differs from node to node, and every node gets the same args"
_OF_THE_LAYOUT = "the nodes would disagree if it did not follow from the nodes and sizes"

REFUSED: dict[str, tuple[str, str]] = {
    "--nnodes": (_OF_THE_LAYOUT, "list the nodes"),
    "--node-rank": (_OWN_TO_A_NODE, "list the nodes in the order of their ranks"),
    "--master-addr": (_OF_THE_LAYOUT, "it is the address of the first node"),
    "--master-port": (_OF_THE_LAYOUT, "set ports.leader"),
    "--headless": (_OWN_TO_A_NODE, "it follows from the node's rank"),
    "--distributed-executor-backend": (_OF_THE_LAYOUT, "set launch_mode"),
    "--model": ("the model stands in front of all flags", "set profile.model"),
}
"""Flags that args may not hold: why, and what to do instead."""

_DATA_PARALLEL_HINTS = {
    "--data-parallel-address": "it is the address of the first node",
    "--data-parallel-rpc-port": "set ports.data_parallel_rpc",
    "--data-parallel-backend": "set launch_mode",
    "--data-parallel-hybrid-lb": "set profile.data_parallel_mode: hybrid",
    "--data-parallel-external-lb": "set profile.data_parallel_mode: external",
    "--data-parallel-multi-port-external-lb": "set profile.data_parallel_mode: external",
}

SIZE_FLAGS = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "prefill_context": "--prefill-context-parallel-size",
    "decode_context": "--decode-context-parallel-size",
}
"""The flag of each parallel size."""


class OperatorArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's arguments, read.

    Attributes:
        arguments: every use of a flag in them.
        names: the long names of the flags used.
        sizes: the parallel sizes that count.
        for_server: the items that a process which takes requests gets.
        for_headless: the items that a process which only computes gets.
        port: the server's port, when they set it.
        host: the address on which the server listens, when they set it.
        scheme: how the server is spoken to.
        answers_http: whether a server can be asked over HTTP at its port.
        findings: what is refused in them, and what should be known of them.
    """

    arguments: Arguments
    names: frozenset[str]
    sizes: Sizes
    for_server: tuple[str, ...]
    for_headless: tuple[str, ...]
    port: int | None
    host: str | None
    scheme: Literal["http", "https"]
    answers_http: bool
    findings: tuple[Finding, ...]

    def value(self, name: str, default: Any = None) -> Any:
        """What the parser makes of a flag, or the default when it is not used or not readable."""
        return _value(self.arguments, name, default)


def _value(arguments: Arguments, name: str, default: Any = None) -> Any:
    try:
        return arguments.value(name, default)
    except BadValueError:  # already among the problems
        return default


def read_operator_arguments(profile: Profile, table: FlagTable, release: str) -> OperatorArguments:
    """Read a profile's args by the flags of a release."""
    arguments = parse(profile.args, table)
    names = arguments.names()
    api_server = {o.flag.name for o in arguments.occurrences if o.flag.api_server}
    sizes, size_findings = _sizes(profile, arguments)
    hidden = _texts_with_secrets(arguments)
    return OperatorArguments(
        arguments=arguments,
        names=names,
        sizes=sizes,
        for_server=profile.args,
        for_headless=arguments.without(api_server | {"--served-model-name"}),
        port=_value(arguments, "--port"),
        host=_value(arguments, "--host"),
        scheme="http" if names.isdisjoint({"--ssl-keyfile", "--ssl-certfile"}) else "https",
        answers_http=names.isdisjoint({"--uds", "--grpc"}),
        findings=(
            *(_problem_finding(problem, release, hidden) for problem in arguments.problems),
            *json_findings(arguments, release),
            *_refusals(arguments),
            *_secrets_in_json(arguments),
            *size_findings,
            *_port_findings(arguments),
            *_api_server_findings(arguments),
            *_host_findings(arguments),
            *_notes(arguments),
        ),
    )


def _problem_finding(problem: Problem, release: str, hidden: frozenset[str]) -> Finding:
    message = problem.message
    for text in hidden:
        message = message.replace(repr(text), NOT_SHOWN)
    hint = ""
    if problem.kind == "unknown_flag":
        hint = _known_elsewhere(problem.item.partition("=")[0], release)
    return Finding(
        severity="warning" if problem.kind == "value_before_its_place" else "error",
        code=problem.kind.replace("_", "-"),
        message=message,
        hint=hint,
        where=f"profile.args[{problem.index}]",
    )


def _texts_with_secrets(arguments: Arguments) -> frozenset[str]:
    """Items, and values glued to a flag, that no message may repeat."""
    if not arguments.problems:
        return frozenset()
    named = {use.start for use in arguments.occurrences if names_a_secret(use.flag.name)}
    named |= {problem.index for problem in arguments.problems if names_a_secret(problem.flag or "")}
    hidden: set[str] = set()
    after_secret_flag = False
    for index, item in enumerate(arguments.items):
        is_flag = item.startswith("--") and item != "--"
        after_secret_flag = index in named if is_flag else after_secret_flag or index in named
        value = item.partition("=")[2] if is_flag else item
        hidden |= {text for text in (item, value) if shown(text) == NOT_SHOWN}
        if after_secret_flag and value:
            hidden.add(value)
    return frozenset(hidden - {"", "--"})


def _known_elsewhere(spelling: str, release: str) -> str:
    catalogue = Catalogue.load("vllm")
    name = spelling.partition(".")[0]
    if name.startswith("--"):
        name = name.replace("_", "-")
    removed = catalogue.removed(name)
    first, last = catalogue.first_release(name), catalogue.last_release(name)
    if "." in spelling and name in serve_flags(release):
        return "keys after a dot are read from 0.9.0 on, and lists joined with '+' from 0.9.2 on: give JSON"
    if removed is not None:
        last = removed.last_release
    if first is None:
        return f"release {release} does not have it, nor does any other that is known"
    return f"releases {first} to {last} have it" + (f"; instead: {removed.replacement}" if removed else "")


def is_refused(flag: str) -> bool:
    """Whether args may not hold the flag with this long name."""
    return flag in REFUSED or _places_replicas(flag)


def _places_replicas(flag: str) -> bool:
    return flag.startswith("--data-parallel-") and flag != "--data-parallel-size"


def _refusals(arguments: Arguments) -> list[Finding]:
    findings: list[Finding] = []
    for use in arguments.occurrences:
        name = use.flag.name
        refusal = REFUSED.get(name)
        if _places_replicas(name):
            refusal = (_OF_THE_LAYOUT, _DATA_PARALLEL_HINTS.get(name, "it follows from the nodes and sizes"))
        if refusal:
            why, hint = refusal
            findings.append(
                Finding(
                    severity="error",
                    code="refused-argument",
                    message=f"{name} cannot stand in args: {why}",
                    hint=hint,
                    where=f"profile.args[{use.start}]",
                )
            )
        elif use.values and use.flag.value == "string" and names_a_secret(name.lstrip("-")):
            findings.append(
                Finding(
                    severity="error",
                    code="secret-in-arguments",
                    message=f"{name} would show a secret to everyone who can list processes",
                    hint="use api_key for the server's key, and profile.env with {env: NAME} for others",
                    where=f"profile.args[{use.start}]",
                )
            )
    return findings


def _secrets_in_json(arguments: Arguments) -> list[Finding]:
    uses = {
        o.flag.name: o for o in arguments.occurrences if o.flag.value in ("config", "json", "json_or_string")
    }
    return [
        Finding(
            severity="error",
            code="secret-in-arguments",
            message=f"{name}: {key} would show a secret to everyone who can list processes",
            hint="leave it out, and let the engine read it from profile.env with {env: NAME}",
            where=f"profile.args[{use.start}]",
        )
        for name, use in uses.items()
        for key in _secret_keys(_value(arguments, name))
    ]


_SECRET_KEY = re.compile(
    r"(.*_)?(api_?key|access_key(_id)?|secret(_key)?|private_key|password|passwd|passphrase|credentials?"
    r"|(auth|access|api|hf|bearer|session|refresh)_token)|token",
    re.IGNORECASE,
)
"""A key in JSON whose text is a secret; eos_token and its like are none."""


def _secret_keys(value: Any) -> list[str]:
    found: list[str] = []
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, list):
            left += inner
        elif isinstance(inner, dict):
            left += inner.values()
            found += [
                key
                for key, text in inner.items()
                if text and isinstance(text, str) and _SECRET_KEY.fullmatch(key)
            ]
    return found


def _sizes(profile: Profile, arguments: Arguments) -> tuple[Sizes, list[Finding]]:
    stated = {
        "tensor": profile.tensor_parallel_size,
        "pipeline": profile.pipeline_parallel_size,
        "data": profile.data_parallel_size,
        "prefill_context": profile.prefill_context_parallel_size,
        "decode_context": profile.decode_context_parallel_size,
    }
    findings: list[Finding] = []
    for size, name in SIZE_FLAGS.items():
        if name not in arguments:
            continue
        given = _value(arguments, name)
        if given is None:
            continue
        if 1 <= given <= LARGEST_SIZE:
            stated[size] = given
        else:
            findings.append(_out_of_range(arguments, name, given, LARGEST_SIZE))
    return Sizes(**stated), findings


def _port_findings(arguments: Arguments) -> list[Finding]:
    port = _value(arguments, "--port")
    if port is None or 1 <= port <= 65535:
        return []
    return [_out_of_range(arguments, "--port", port, 65535)]


def _out_of_range(arguments: Arguments, name: str, given: int, most: int) -> Finding:
    return Finding(
        severity="error",
        code="bad-value",
        message=f"{name} must be from 1 to {most}, not {given}",
        where=f"profile.args[{arguments.of(name)[-1].start}]",
    )


def _api_server_findings(arguments: Arguments) -> list[Finding]:
    # `vllm serve` runs without a server when the count is below 1, as with --headless.
    count = _value(arguments, "--api-server-count")
    if count is None or count >= 1:
        return []
    return [
        Finding(
            severity="error",
            code="refused-argument",
            message=f"--api-server-count {count} makes every node headless: {_OWN_TO_A_NODE}",
            hint="give 1 or more, or leave it out",
            where=f"profile.args[{arguments.of('--api-server-count')[-1].start}]",
        )
    ]


def _host_findings(arguments: Arguments) -> list[Finding]:
    host = _value(arguments, "--host")
    if not host:
        return []
    try:
        bare = bare_address(host)
    except BadAddressError as error:
        message = f"--host: {error}"
    else:
        if bare == host:
            return []
        message = f"--host takes an IPv6 address without brackets, not {host!r}"
    return [
        Finding(
            severity="error",
            code="bad-value",
            message=message,
            hint="give the address or name alone on which the server listens",
            where=f"profile.args[{arguments.of('--host')[-1].start}]",
        )
    ]


def _notes(arguments: Arguments) -> list[Finding]:
    findings: list[Finding] = []
    for use in arguments.of("--config"):
        findings.append(
            Finding(
                severity="warning",
                code="config-file-not-read",
                message=f"{use.flag.name} {use.values[0]}: what the file sets is not known here, "
                "so nothing is checked against it",
                hint="put its contents into args; what stands on the command line wins over the file",
                where=f"profile.args[{use.start}]",
            )
        )
    for name in ("--uds", "--grpc"):
        for use in arguments.of(name):
            findings.append(
                Finding(
                    severity="warning",
                    code="no-http-port",
                    message=f"with {name} the server does not answer at http_port, "
                    "so it cannot be asked whether it is ready",
                    where=f"profile.args[{use.start}]",
                )
            )
    uses = [(o.flag.name, o.start) for o in arguments.occurrences if not o.flag.append and not o.key_path]
    repeated = {name for name, _ in uses if sum(other == name for other, _ in uses) > 1}
    findings.extend(
        Finding(
            severity="warning",
            code="repeated-argument",
            message=f"{name} is given more than once; the last one counts",
            where=f"profile.args[{max(start for other, start in uses if other == name)}]",
        )
        for name in sorted(repeated)
    )
    return findings
