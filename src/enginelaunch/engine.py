"""The protocol behind which all engines stand, and the registry of engines by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from enginelaunch.addresses import host_in_url
from enginelaunch.command import (
    Command,
    LeaderAddress,
    OwnAddress,
    PlaceholderValues,
    Text,
    joined,
    text_as_data,
)
from enginelaunch.findings import LaunchError, Report
from enginelaunch.profile import Profile
from enginelaunch.shard import GPU, LaunchMode, ShardSpec

ENTRY_POINT_GROUP = "enginelaunch.engines"
"""Entry point group in which another package registers an engine: name = module:class."""

_BUILT_IN = {"vllm": "enginelaunch.engines.vllm:VLLM"}


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine's metrics are.

    Attributes:
        path: the path of the HTTP request.
        format: how they are written.
        needs_key: whether the request has to bring the API key.
    """

    path: str
    format: Literal["prometheus", "json"] = "prometheus"
    needs_key: bool = False


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests are served.

    Attributes:
        command: name of the command that serves them.
        host: the host as requests reach it, without brackets; a placeholder when a scheduler decides it.
        port: the port.
        scheme: http or https.
        data_parallel_ranks: the data-parallel ranks behind it, first and last; None when there is one
            replica.

    Example:
        >>> Endpoint(command="server", host="fd00::1", port=8000).url
        'http://[fd00::1]:8000'
    """

    command: str
    host: Text
    port: int
    scheme: Literal["http", "https"] = "http"
    data_parallel_ranks: tuple[int, int] | None = None

    @property
    def url(self) -> Text:
        """The address that requests begin with."""
        host: Text = host_in_url(self.host) if isinstance(self.host, str) else self.host
        if isinstance(host, (LeaderAddress, OwnAddress)):
            host = type(host)(in_url=True)
        return joined(f"{self.scheme}://", host, f":{self.port}")

    def fill(self, values: PlaceholderValues) -> Endpoint:
        """The same endpoint with its host filled in, when it is known."""
        return (
            self if isinstance(self.host, str) else msgspec.structs.replace(self, host=values.fill(self.host))
        )

    def as_dict(self) -> dict[str, Any]:
        """The endpoint as JSON data."""
        return {
            "command": self.command,
            "url": text_as_data(self.url),
            "host": text_as_data(self.host),
            "port": self.port,
            "data_parallel_ranks": list(self.data_parallel_ranks) if self.data_parallel_ranks else None,
        }


@runtime_checkable
class Engine(Protocol):
    """What orchestration code asks of an engine; all of it is pure.

    Attributes:
        name: the name under which deployment files know it.
        version: the version it builds for, as it was given; None for the newest known.
        release: the release by which it builds.
        health_path: path that answers 200 when the engine can take requests.
        metrics: where its metrics are.
    """

    name: str
    version: str | None
    health_path: str
    metrics: Metrics

    @property
    def release(self) -> str:
        """The release by which it builds."""
        ...

    def validate(self, profile: Profile, gpus: Iterable[GPU], model: Any = None) -> Report:
        """Say all that is known about whether this profile can work on these GPUs."""
        ...

    def review(self, shard: ShardSpec) -> Report:
        """Say what `commands` would do with a shard: refusals, overrides, notes."""
        ...

    def commands(self, shard: ShardSpec) -> list[Command]:
        """The commands to start on the shard's node, in their order.

        Raises:
            LaunchError: the shard cannot be launched as it is.
        """
        ...

    def endpoints(self, shard: ShardSpec) -> list[Endpoint]:
        """Where the shard's node serves requests; empty on a node that only computes."""
        ...

    def serves_http(self, shard: ShardSpec) -> bool:
        """Whether the shard's node serves requests."""
        ...

    def default_leader_port(self, launch_mode: LaunchMode) -> int:
        """The port at which nodes meet when none is given."""
        ...


def engine_names() -> tuple[str, ...]:
    """The names of all engines that can be had here, in order.

    Example:
        >>> "vllm" in engine_names()
        True
    """
    return tuple(sorted(set(_BUILT_IN) | set(_registered())))


def engine_class(name: str) -> Callable[..., Engine]:
    """The engine with this name, from this package or from one that registers it.

    Raises:
        LaunchError: there is none; the message says which there are.
    """
    target = _BUILT_IN.get(name) or _registered().get(name)
    if target is None:
        raise LaunchError.of(
            "unknown-engine",
            f"engine {name!r} is not known",
            hint=f"known are {', '.join(engine_names())}",
            where="engine",
        )
    from importlib.metadata import EntryPoint  # noqa: PLC0415 - imports of engines happen when asked for

    try:
        found: Callable[..., Engine] = EntryPoint(name, target, ENTRY_POINT_GROUP).load()
    except Exception as error:
        raise _broken(name, f"{target!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise _broken(name, f"{target!r} is no class")
    return found


def _broken(name: str, message: str) -> LaunchError:
    return LaunchError.of(
        "broken-engine",
        f"engine {name!r} is registered, but {message}",
        hint="install the package that registers it anew, or ask who made it",
        where="engine",
    )


def _registered() -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads the installed packages

    return {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
