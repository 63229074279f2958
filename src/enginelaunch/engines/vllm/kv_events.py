"""KV events as arguments and environment of `vllm serve`, and where they can be subscribed to."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from enginelaunch.addresses import is_ipv6, is_only_this_machine
from enginelaunch.argv import canonical_json
from enginelaunch.command import OwnAddress, PlaceholderValues, Text, joined
from enginelaunch.engines.vllm.releases import at_least
from enginelaunch.findings import Finding
from enginelaunch.profile import KVEvents

FIRST_RELEASE = "0.9.0"
"""The first release that publishes KV events: vllm/distributed/kv_events.py."""

HASH_ALGORITHMS = (
    ("0.9.0", "builtin", ("builtin", "sha256")),
    ("0.10.0", "sha256_cbor_64bit", ("builtin", "sha256", "sha256_cbor_64bit")),
    ("0.10.2", "sha256_cbor", ("sha256", "sha256_cbor")),
    ("0.13.0", "sha256_cbor", ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")),
)
"""From which release on: the algorithm whose hashes are the same on all nodes, and all that it has.

From --prefix-caching-hash-algo of each release. Before 0.10.2 sha256 makes hashes that are larger
than the event format can carry, so that every batch is lost."""


class KVEventArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What KV events add to a command that holds a scheduler.

    Attributes:
        arguments: arguments.
        env: environment.
        findings: what is wrong, or should be known.
    """

    arguments: tuple[tuple[str, ...], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()


class KVEventEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the KV events of one data-parallel rank are.

    Attributes:
        data_parallel_rank: the global rank.
        endpoint: the address of the events; to connect to, or to bind when the engine connects.
        replay_endpoint: the address at which missed batches can be asked for; None without replay.
        topic: the topic to subscribe to.
        engine_connects: True when the engine connects and the subscriber has to bind.
    """

    data_parallel_rank: int
    endpoint: Text
    replay_endpoint: Text | None
    topic: str
    engine_connects: bool


def kv_event_arguments(kv_events: KVEvents | None, release: str) -> KVEventArguments:
    """The arguments and environment that switch KV events on."""
    if kv_events is None:
        return KVEventArguments()
    findings = [*_connect_findings(kv_events)]
    if not at_least(release, FIRST_RELEASE):
        findings.append(
            Finding(
                severity="error",
                code="no-kv-events",
                message=f"vLLM {release} publishes no KV events; {FIRST_RELEASE} is the first that does",
                where="profile.kv_events",
            )
        )
        return KVEventArguments(findings=tuple(findings))
    algorithm, algorithm_findings = _hash_algorithm(kv_events, release)
    return KVEventArguments(
        arguments=(
            ("--kv-events-config", canonical_json(_config(kv_events))),
            ("--prefix-caching-hash-algo", algorithm),
        ),
        env=(("PYTHONHASHSEED", kv_events.hash_seed),),
        findings=(*findings, *algorithm_findings),
    )


def _config(kv_events: KVEvents) -> dict[str, Any]:
    # vLLM binds only if the endpoint holds '*' or '::', and connects otherwise.
    host = "*" if kv_events.connect is None else kv_events.connect
    config: dict[str, Any] = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://{host}:{kv_events.port}",
    }
    if kv_events.replay_port is not None:
        # The replay socket always binds.
        config["replay_endpoint"] = f"tcp://*:{kv_events.replay_port}"
    if kv_events.topic:
        config["topic"] = kv_events.topic
    sizes = {
        "buffer_steps": kv_events.buffer_steps,
        "hwm": kv_events.high_water_mark,
        "max_queue_size": kv_events.max_queue_size,
    }
    return config | {name: size for name, size in sizes.items() if size is not None}


def _connect_findings(kv_events: KVEvents) -> list[Finding]:
    address = kv_events.connect
    if address is None:
        return []
    if is_ipv6(address):
        message = f"the engine cannot connect to {address}: vLLM binds an endpoint that holds '::'"
        hint = "give a host name or an IPv4 address, or leave connect out and let subscribers connect"
    elif is_only_this_machine(address) and address in ("0.0.0.0", "::"):
        message = f"{address} is an address to listen on, and the engine would connect to it"
        hint = "give the subscriber's address, or leave connect out to let the engine bind"
    else:
        return []
    return [
        Finding(
            severity="error",
            code="kv-events-connect",
            message=message,
            hint=hint,
            where="profile.kv_events.connect",
        )
    ]


def _hash_algorithm(kv_events: KVEvents, release: str) -> tuple[str, list[Finding]]:
    reproducible, known = next(
        (default, known) for since, default, known in reversed(HASH_ALGORITHMS) if at_least(release, since)
    )
    algorithm = kv_events.hash_algorithm or reproducible
    findings: list[Finding] = []
    where = "profile.kv_events.hash_algorithm"
    if algorithm not in known:
        findings.append(
            Finding(
                severity="error",
                code="hash-algorithm",
                message=f"vLLM {release} has no hash algorithm {algorithm!r}; it has {', '.join(known)}",
                where=where,
            )
        )
    elif algorithm == "sha256" and not at_least(release, "0.10.2"):
        findings.append(
            Finding(
                severity="error",
                code="hash-algorithm",
                message=f"with sha256 vLLM {release} loses every event: "
                "its hashes are larger than the event format can carry",
                hint=f"use {reproducible}",
                where=where,
            )
        )
    elif algorithm == "builtin":
        findings.append(
            Finding(
                severity="warning",
                code="hash-algorithm",
                message="builtin hashes are the same on all nodes only where Python is 3.12 or newer",
                hint="use vLLM 0.10.0 or newer, whose sha256_cbor_64bit does not depend on it",
                where=where,
            )
        )
    return algorithm, findings


EVENTS, REPLAY = "KV events", "KV event replay"


def built_ports(kv_events: KVEvents | None) -> list[tuple[str, int]]:
    """What a profile's KV events listen at: (name, base port)."""
    if kv_events is None:
        return []
    ports = [(EVENTS, kv_events.port)] if kv_events.connect is None else []
    if kv_events.replay_port is not None:
        ports.append((REPLAY, kv_events.replay_port))
    return ports


_TCP_PORT = re.compile(r"tcp://.*:([1-9][0-9]{0,4})")


def given_ports(config: Any) -> list[tuple[str, int]]:
    """What KV events that args configure listen at: (name, base port)."""
    if not isinstance(config, dict) or config.get("enable_kv_cache_events") is not True:
        return []
    endpoint = config.get("endpoint", "tcp://*:5557")
    binds = isinstance(endpoint, str) and ("*" in endpoint or "::" in endpoint)
    texts = [(EVENTS, endpoint if binds else None), (REPLAY, config.get("replay_endpoint"))]
    found = [(name, _TCP_PORT.fullmatch(text)) for name, text in texts if isinstance(text, str)]
    return [(name, int(match[1])) for name, match in found if match and int(match[1]) <= 65535]


def kv_event_endpoints(
    kv_events: KVEvents | None, first_rank: int | None, rank_count: int, values: PlaceholderValues
) -> tuple[KVEventEndpoint, ...]:
    """Where the events of these data-parallel ranks are.

    Args:
        kv_events: the profile's KV events.
        first_rank: the first global data-parallel rank of the node; None when it is not known.
        rank_count: how many ranks it holds.
        values: what is known of the node's addresses.
    """
    if kv_events is None or first_rank is None:
        return ()
    host = values.fill(OwnAddress(in_url=True))
    where: Text = host if kv_events.connect is None else kv_events.connect
    return tuple(
        KVEventEndpoint(
            data_parallel_rank=rank,
            endpoint=joined("tcp://", where, f":{kv_events.port + rank}"),
            replay_endpoint=None
            if kv_events.replay_port is None
            else joined("tcp://", host, f":{kv_events.replay_port + rank}"),
            topic=kv_events.topic,
            engine_connects=kv_events.connect is not None,
        )
        for rank in range(first_rank, first_rank + rank_count)
    )
