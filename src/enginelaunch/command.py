"""A command to start, and its parts: placeholders, secret references, readiness, stopping.

Everything here is plain data. A text that a scheduler decides later stands as a placeholder, and a
secret stands as a reference to where it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import msgspec

from enginelaunch.addresses import bare_address, host_in_url

# --- text that may not be known yet ---


class LeaderAddress(msgspec.Struct, frozen=True):
    """The address of the node with rank 0.

    Attributes:
        in_url: True where a port follows, so that an IPv6 address gets its brackets.
    """

    in_url: bool = False


class OwnAddress(msgspec.Struct, frozen=True):
    """The address of the node on which the command runs.

    Attributes:
        in_url: True where a port follows, so that an IPv6 address gets its brackets.
    """

    in_url: bool = False


class NodeRank(msgspec.Struct, frozen=True):
    """The rank of the node on which the command runs, times `times`, plus `plus`.

    Example:
        >>> NodeRank(times=8, plus=0).at(2)
        16
    """

    times: int = 1
    plus: int = 0

    def at(self, node_rank: int) -> int:
        """The number on the node with this rank."""
        return self.times * node_rank + self.plus


Placeholder = LeaderAddress | OwnAddress | NodeRank


class Joined(msgspec.Struct, frozen=True):
    """Text with placeholders in it.

    Attributes:
        parts: plain text and placeholders, in order.
    """

    parts: tuple[str | Placeholder, ...]


Text = str | LeaderAddress | OwnAddress | NodeRank | Joined
"""An argv item, an environment value or a host: plain text, a placeholder, or both joined."""


def joined(*parts: Text | int) -> Text:
    """The parts as one text; plain text when no part is a placeholder.

    Example:
        >>> joined("http://", "10.0.0.1", ":", 8000)
        'http://10.0.0.1:8000'
        >>> joined(LeaderAddress(in_url=True), ":", 6379)
        Joined(parts=(LeaderAddress(in_url=True), ':6379'))
    """
    flat: list[str | Placeholder] = []
    for part in parts:
        for piece in part.parts if isinstance(part, Joined) else (part,):
            text = str(piece) if isinstance(piece, (str, int)) else piece
            if isinstance(text, str) and flat and isinstance(flat[-1], str):
                flat[-1] += text
            elif text != "":
                flat.append(text)
    if not flat:
        return ""
    return flat[0] if len(flat) == 1 else Joined(tuple(flat))


_VALUE_NAMES: dict[type, str] = {
    LeaderAddress: "leader_addr",
    OwnAddress: "node_addr",
    NodeRank: "node_rank",
}


class PlaceholderValues(msgspec.Struct, frozen=True, kw_only=True):
    """What the placeholders stand for on one node.

    Attributes:
        leader_addr: the leader's address; kept without brackets.
        node_addr: this node's address; kept without brackets.
        node_rank: this node's rank, from 0.

    Raises:
        ValueError: an address or a rank is none.
    """

    leader_addr: str | None = None
    node_addr: str | None = None
    node_rank: int | None = None

    def __post_init__(self) -> None:
        """Take the brackets off."""
        leader, own = self.leader_addr, self.node_addr
        if leader is not None:
            msgspec.structs.force_setattr(self, "leader_addr", bare_address(leader))
        if own is not None:
            msgspec.structs.force_setattr(self, "node_addr", bare_address(own))
        rank = self.node_rank
        if rank is not None and (type(rank) is not int or rank < 0):
            raise ValueError(f"node_rank must be a whole number from 0 on, not {rank!r}")

    def fill(self, text: Text) -> Text:
        """The text with every placeholder replaced whose value is known."""
        if isinstance(text, str):
            return text
        if isinstance(text, Joined):
            return joined(*(self.fill(part) for part in text.parts))
        if isinstance(text, NodeRank):
            return text if self.node_rank is None else str(text.at(self.node_rank))
        address = self.leader_addr if isinstance(text, LeaderAddress) else self.node_addr
        if address is None:
            return text
        return host_in_url(address) if text.in_url else address

    def text(self, text: Text) -> str:
        """The text with every placeholder replaced.

        Raises:
            ValueError: the value of a placeholder is not known.
        """
        filled = self.fill(text)
        if isinstance(filled, str):
            return filled
        first = (
            filled
            if not isinstance(filled, Joined)
            else next(p for p in filled.parts if not isinstance(p, str))
        )
        raise ValueError(f"{_VALUE_NAMES[type(first)]} is needed: the command depends on it")


# --- secrets ---


class EnvironmentSecret(msgspec.Struct, frozen=True):
    """A secret that an environment variable holds where the command is started.

    Attributes:
        env: the variable's name.
    """

    env: str

    def as_dict(self) -> dict[str, str]:
        """The reference as JSON data."""
        return {"env": self.env}


class FileSecret(msgspec.Struct, frozen=True):
    """A secret that a file holds where the command is started; one trailing newline is no part of it.

    Attributes:
        file: the file's path.
    """

    file: str

    def as_dict(self) -> dict[str, str]:
        """The reference as JSON data."""
        return {"file": self.file}


class LiteralSecret:
    """A secret that Python code handed in; it prints as stars, and no serializer knows its parts.

    Example:
        >>> LiteralSecret("s3cret")
        LiteralSecret('**********')
    """

    __slots__ = ("_value",)

    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """The secret itself, for the process that needs it."""
        return self._value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a secret does not change: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a secret does not change: {name}")

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, LiteralSecret) else NotImplemented

    def __hash__(self) -> int:
        return hash((LiteralSecret, self._value))

    def __reduce__(self) -> tuple[type[LiteralSecret], tuple[str]]:
        return LiteralSecret, (self._value,)

    def __repr__(self) -> str:
        """Stars."""
        return "LiteralSecret('**********')"

    def as_dict(self) -> dict[str, str]:
        """Stars, as JSON data."""
        return {"literal": "**********"}


SecretReference = EnvironmentSecret | FileSecret | LiteralSecret
"""Where a secret is kept."""


# --- the parts of a command ---

Role = Literal["serves", "worker", "service"]
"""`serves`: takes requests. `worker`: computes for one that does. `service`: something beside them."""


class SocketAddress(msgspec.Struct, frozen=True):
    """A TCP address: a host as text or a placeholder, without brackets, and a port."""

    host: Text
    port: int


class HTTPReady(msgspec.Struct, frozen=True, kw_only=True):
    """Ready when this HTTP request gives this status.

    Attributes:
        address: where to ask.
        path: the path of the request.
        scheme: http or https; the certificate is not checked, since the server's name is not asked for.
        status: the HTTP status that means ready.
        timeout: seconds after which starting has failed.
        interval: seconds between two requests.
    """

    address: SocketAddress
    path: str
    scheme: Literal["http", "https"] = "http"
    status: int = 200
    timeout: float
    interval: float = 1.0


class TCPReady(msgspec.Struct, frozen=True, kw_only=True):
    """Ready when this address has accepted one connection.

    Attributes:
        address: where to connect.
        timeout: seconds after which starting has failed.
        interval: seconds between two attempts.
    """

    address: SocketAddress
    timeout: float
    interval: float = 0.5


Ready = HTTPReady | TCPReady


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """An address that has to accept a connection before the command starts.

    Attributes:
        address: where to connect.
        timeout: seconds after which waiting has failed.
    """

    address: SocketAddress
    timeout: float


class ListeningPort(msgspec.Struct, frozen=True, kw_only=True):
    """Ports on which a command listens.

    Attributes:
        name: what they are for.
        base: the first port.
        span: how many, from the first one on.
    """

    name: str
    base: int
    span: int = 1

    @property
    def last(self) -> int:
        """The last port."""
        return self.base + self.span - 1


class StopSignal(msgspec.Struct, frozen=True):
    """A signal to send, and how many seconds to wait for the process to end before the next one."""

    name: str
    grace: float


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is stopped.

    Attributes:
        order: commands with a lower number are stopped first.
        signals: what to send, one after the other, until the process has ended.
    """

    order: int = 0
    signals: tuple[StopSignal, ...]


class Exits(msgspec.Struct, frozen=True, kw_only=True):
    """What an exit means.

    Attributes:
        success: exit codes that are no failure when the command was asked to stop; empty where any exit
            is a failure.
        meanings: (exit code, meaning) of those that are known.
    """

    success: tuple[int, ...] = ()
    meanings: tuple[tuple[int, str], ...] = ()


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file to write before the command starts.

    Attributes:
        path: where.
        content: plain text, or a reference where the file holds a secret.
        mode: its permissions.
    """

    path: str
    content: Text | SecretReference
    mode: int = 0o600


class FrozenDict(dict[str, Any]):
    """A dict that does not change, and that pickles, copies and compares like any other.

    Example:
        >>> FrozenDict({"a": "1"})["b"] = "2"
        Traceback (most recent call last):
        TypeError: this dict does not change; make a new one from it
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_keywords: object) -> NoReturn:
        raise TypeError("this dict does not change; make a new one from it")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        """A hash over the items, whatever their order."""
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        """Pickle by building anew, since items cannot be set one by one."""
        return FrozenDict, (dict(self),)


_EMPTY = FrozenDict()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One process to start on one node.

    Attributes:
        name: unique among the commands of a node.
        path: the program, as a path or a bare name that is looked up when the command is started.
        args: its arguments.
        env: environment variables to set.
        secret_env: environment variables to set from a secret.
        clear_env: prefixes of variables to drop from what is inherited, before `env` is set.
        files: files to write before it starts.
        role: what it is there for.
        waits_for: addresses that have to accept a connection before it starts.
        ready: how it is known to be ready; None when it cannot be asked.
        ports: where it listens.
        stop: how it is stopped.
        exits: what its exit means.

    Example:
        >>> command = Command(name="server", path="vllm", args=("serve", "m", "--node-rank", NodeRank()),
        ...                   role="worker", stop=Stop(signals=(StopSignal("SIGTERM", 30.0),)))
        >>> command.resolve(node_rank=1).argv
        ('vllm', 'serve', 'm', '--node-rank', '1')
    """

    name: str
    path: str
    args: tuple[Text, ...] = ()
    env: Mapping[str, Text] = _EMPTY
    secret_env: Mapping[str, SecretReference] = _EMPTY
    clear_env: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    role: Role
    waits_for: tuple[Wait, ...] = ()
    ready: Ready | None = None
    ports: tuple[ListeningPort, ...] = ()
    stop: Stop
    exits: Exits = Exits()

    def __post_init__(self) -> None:
        """Keep what is set from changing."""
        if type(self.env) is not FrozenDict:
            msgspec.structs.force_setattr(self, "env", FrozenDict(self.env))
        if type(self.secret_env) is not FrozenDict:
            msgspec.structs.force_setattr(self, "secret_env", FrozenDict(self.secret_env))

    @property
    def argv(self) -> tuple[Text, ...]:
        """The program and its arguments."""
        return (self.path, *self.args)

    @property
    def is_resolved(self) -> bool:
        """Whether no placeholder is left in it."""
        return self == self._with(lambda text: text if isinstance(text, str) else "")

    def resolve(
        self,
        *,
        leader_addr: str | None = None,
        node_addr: str | None = None,
        node_rank: int | None = None,
    ) -> Command:
        """The same command with every placeholder replaced by plain text.

        Args:
            leader_addr: the leader's address.
            node_addr: the address of the node on which it will run.
            node_rank: the rank of that node, from 0.

        Raises:
            ValueError: a placeholder's value was not given, or an address is none.
        """
        values = PlaceholderValues(leader_addr=leader_addr, node_addr=node_addr, node_rank=node_rank)
        return self._with(values.text)

    def fill(self, values: PlaceholderValues) -> Command:
        """The same command with those placeholders replaced whose value is known."""
        return self._with(values.fill)

    def _with(self, text: Callable[[Text], Text]) -> Command:
        # Spelled out because this is where commands for thousands of nodes are made.
        return Command(
            name=self.name,
            path=self.path,
            args=tuple([item if type(item) is str else text(item) for item in self.args]),
            env=FrozenDict(
                {name: value if type(value) is str else text(value) for name, value in self.env.items()}
            ),
            secret_env=self.secret_env,
            clear_env=self.clear_env,
            files=self.files and tuple(_file_with(file, text) for file in self.files),
            role=self.role,
            waits_for=self.waits_for
            and tuple(Wait(address=_at(w.address, text), timeout=w.timeout) for w in self.waits_for),
            ready=self.ready and _ready_with(self.ready, text),
            ports=self.ports,
            stop=self.stop,
            exits=self.exits,
        )

    def as_dict(self) -> dict[str, Any]:
        """The command as JSON data; a placeholder is an object, a secret its reference."""
        return {
            "name": self.name,
            "role": self.role,
            "argv": [text_as_data(item) for item in self.argv],
            "env": {name: text_as_data(self.env[name]) for name in sorted(self.env)},
            "secret_env": {name: self.secret_env[name].as_dict() for name in sorted(self.secret_env)},
            "clear_env": list(self.clear_env),
            "files": [_file_as_dict(f) for f in self.files],
            "waits_for": [{**_address_as_dict(w.address), "timeout": w.timeout} for w in self.waits_for],
            "ready": _ready_as_dict(self.ready),
            "ports": [{"name": p.name, "base": p.base, "span": p.span} for p in self.ports],
            "stop": {
                "order": self.stop.order,
                "signals": [{"name": s.name, "grace": s.grace} for s in self.stop.signals],
            },
            "exits": {
                "success": list(self.exits.success),
                "meanings": {str(code): meaning for code, meaning in self.exits.meanings},
            },
        }


def _at(address: SocketAddress, text: Callable[[Text], Text]) -> SocketAddress:
    return address if type(address.host) is str else SocketAddress(text(address.host), address.port)


def _ready_with(ready: Ready, text: Callable[[Text], Text]) -> Ready:
    address = _at(ready.address, text)
    return ready if address is ready.address else msgspec.structs.replace(ready, address=address)


def _file_with(file: File, text: Callable[[Text], Text]) -> File:
    return (
        file
        if isinstance(file.content, SecretReference)
        else msgspec.structs.replace(file, content=text(file.content))
    )


def text_as_data(text: Text) -> Any:
    """A text as JSON data: plain text as it is, a placeholder as an object, a joined text as a list.

    Example:
        >>> text_as_data(NodeRank(times=2))
        {'placeholder': 'node_rank', 'times': 2, 'plus': 0}
    """
    if isinstance(text, str):
        return text
    if isinstance(text, Joined):
        return {"joined": [text_as_data(part) for part in text.parts]}
    return {"placeholder": _VALUE_NAMES[type(text)]} | {
        f.name: getattr(text, f.name) for f in msgspec.structs.fields(text)
    }


def _address_as_dict(address: SocketAddress) -> dict[str, Any]:
    return {"host": text_as_data(address.host), "port": address.port}


def _ready_as_dict(ready: Ready | None) -> dict[str, Any] | None:
    if ready is None:
        return None
    common = {**_address_as_dict(ready.address), "timeout": ready.timeout, "interval": ready.interval}
    if isinstance(ready, HTTPReady):
        return {"kind": "http", "scheme": ready.scheme, "path": ready.path, "status": ready.status, **common}
    return {"kind": "tcp", **common}


def _file_as_dict(file: File) -> dict[str, Any]:
    secret = isinstance(file.content, SecretReference)
    content = (
        file.content.as_dict() if isinstance(file.content, SecretReference) else text_as_data(file.content)
    )
    return {"path": file.path, "secret" if secret else "content": content, "mode": f"{file.mode:04o}"}
