"""KV events: on ranks that have a scheduler, at ports that follow from the global rank."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plans import (
    commands,
    deployment,
    error,
    nodes,
    planned,
    refused,
    started,
    warning,
    words,
)
from pydantic import ValidationError

from enginelaunch import VLLM
from enginelaunch.command import ListeningPort
from enginelaunch.engines.vllm.kv_events import KVEventEndpoint

CONFIG = '{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","publisher":"zmq"}'
EVENTS = f"--kv-events-config {CONFIG} --prefix-caching-hash-algo sha256_cbor"


def endpoints(profile: dict[str, Any], machines: Any, **keys: Any) -> list[list[KVEventEndpoint]]:
    engine = VLLM("0.32.0")
    return [
        engine.kv_event_endpoints(machine.shard)
        for machine in planned(profile, machines, engine=engine, **keys).nodes
    ]


def events_ports(profile: dict[str, Any], machines: Any) -> list[list[tuple[ListeningPort, ...]]]:
    return [
        [tuple(port for port in command.ports if port.name.startswith("KV")) for command in machine]
        for machine in commands(profile, machines)
    ]


def at(rank: int, host: str, port: int = 5557, replay: int | None = None, topic: str = "") -> KVEventEndpoint:
    return KVEventEndpoint(
        data_parallel_rank=rank,
        endpoint=f"tcp://{host}:{port + rank}",
        replay_endpoint=None if replay is None else f"tcp://{host}:{replay + rank}",
        topic=topic,
        engine_connects=False,
    )


def test_a_server_publishes_with_hashes_that_can_be_made_again() -> None:
    assert started({"kv_events": {}}) == [
        (
            0,
            "server",
            words(
                "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --served-model-name m "
                + EVENTS
            ),
            {"PYTHONHASHSEED": "0"},
        )
    ]
    assert events_ports({"kv_events": {}}, nodes(1)) == [[(ListeningPort(name="KV events", base=5557),)]]
    assert endpoints({"kv_events": {}}, nodes(1)) == [[at(0, "10.0.0.1")]]


@pytest.mark.parametrize(
    ("events", "config"),
    [
        ({"port": 6000}, {"endpoint": "tcp://*:6000"}),
        ({"replay_port": 6000}, {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:6000"}),
        ({"topic": "kv@10.0.0.1@模型"}, {"endpoint": "tcp://*:5557", "topic": "kv@10.0.0.1@模型"}),
        ({"topic": ""}, {"endpoint": "tcp://*:5557"}),
        (
            {"buffer_steps": 1, "high_water_mark": 2, "max_queue_size": 3},
            {"endpoint": "tcp://*:5557", "buffer_steps": 1, "hwm": 2, "max_queue_size": 3},
        ),
        ({"connect": "10.9.9.9"}, {"endpoint": "tcp://10.9.9.9:5557"}),
        ({"connect": "127.0.0.1"}, {"endpoint": "tcp://127.0.0.1:5557"}),
        (
            {"connect": "router", "replay_port": 6000},
            {"endpoint": "tcp://router:5557", "replay_endpoint": "tcp://*:6000"},
        ),
    ],
)
def test_the_config_says_what_was_asked_for_and_no_more(
    events: dict[str, Any], config: dict[str, Any]
) -> None:
    ((command,),) = commands({"kv_events": events})
    text = str(command.argv[command.argv.index("--kv-events-config") + 1])
    assert json.loads(text) == {"enable_kv_cache_events": True, "publisher": "zmq", **config}
    assert " " not in text


def test_every_rank_publishes_at_its_own_port_of_its_own_node() -> None:
    profile = {"data_parallel_size": 5, "kv_events": {"port": 5700, "replay_port": 5800, "topic": "kv"}}
    machines = nodes(3, 2)
    assert events_ports(profile, machines) == [
        [
            (
                ListeningPort(name="KV events", base=5700, span=3),
                ListeningPort(name="KV event replay", base=5800, span=3),
            )
        ],
        [
            (
                ListeningPort(name="KV events", base=5703, span=2),
                ListeningPort(name="KV event replay", base=5803, span=2),
            )
        ],
    ]
    assert endpoints(profile, machines) == [
        [at(rank, "10.0.0.1", 5700, 5800, "kv") for rank in (0, 1, 2)],
        [at(rank, "10.0.0.2", 5700, 5800, "kv") for rank in (3, 4)],
    ]
    configs = {
        str(command.argv[command.argv.index("--kv-events-config") + 1])
        for machine in commands(profile, machines)
        for command in machine
    }
    assert [json.loads(config)["endpoint"] for config in configs] == ["tcp://*:5700"]


def test_a_rank_without_a_scheduler_publishes_nothing() -> None:
    profile = {"tensor_parallel_size": 2, "kv_events": {}}
    assert started(profile, nodes(1, 1))[1] == (
        1,
        "worker",
        words(
            "vllm serve m --tensor-parallel-size 2 --distributed-executor-backend mp --nnodes 2 "
            "--node-rank 1 --master-addr 10.0.0.1 --master-port 29501 --headless"
        ),
        {"VLLM_HOST_IP": "10.0.0.2"},
    )
    assert endpoints(profile, nodes(1, 1)) == [[at(0, "10.0.0.1")], []]


@pytest.mark.parametrize("mode", ["internal", "external"])
def test_the_first_node_of_each_replica_that_spans_nodes_publishes(mode: str) -> None:
    profile = {
        "tensor_parallel_size": 2,
        "data_parallel_size": 2,
        "data_parallel_mode": mode,
        "kv_events": {"replay_port": 6557},
    }
    machines = nodes(1, 1, 1, 1)
    assert ["--kv-events-config" in ran.argv for ran in started(profile, machines)] == [
        True,
        False,
        True,
        False,
    ]
    assert [ran.env.get("PYTHONHASHSEED") for ran in started(profile, machines)] == ["0", None, "0", None]
    assert endpoints(profile, machines) == [
        [at(0, "10.0.0.1", replay=6557)],
        [],
        [at(1, "10.0.0.3", replay=6557)],
        [],
    ]


def test_servers_of_one_node_publish_at_following_ports() -> None:
    profile = {"data_parallel_size": 4, "data_parallel_mode": "external", "kv_events": {}}
    assert events_ports(profile, nodes(2, 2)) == [
        [(ListeningPort(name="KV events", base=5557),), (ListeningPort(name="KV events", base=5558),)],
        [(ListeningPort(name="KV events", base=5559),), (ListeningPort(name="KV events", base=5560),)],
    ]


def test_an_ipv6_node_is_bracketed_in_its_endpoint() -> None:
    machine = {"address": "fd00::1", "gpus": 1, "http_host": "::"}
    assert endpoints({"kv_events": {}}, [machine]) == [[at(0, "[fd00::1]")]]


def test_an_engine_that_connects_needs_no_port_and_says_where_to_bind() -> None:
    profile = {"data_parallel_size": 2, "kv_events": {"connect": "router"}}
    assert events_ports(profile, nodes(1, 1)) == [[()], [()]]
    assert endpoints(profile, nodes(1, 1)) == [
        [
            KVEventEndpoint(
                data_parallel_rank=rank,
                endpoint=f"tcp://router:{5557 + rank}",
                replay_endpoint=None,
                topic="",
                engine_connects=True,
            )
        ]
        for rank in (0, 1)
    ]


def test_replicas_that_ray_places_connect_each_at_its_own_port() -> None:
    profile = {"data_parallel_size": 4, "kv_events": {"connect": "router"}}
    (leader, follower) = endpoints(profile, nodes(2, 2), launch_mode="ray")
    assert [found.endpoint for found in leader] == [f"tcp://router:{5557 + rank}" for rank in range(4)]
    assert follower == []


@pytest.mark.parametrize("address", ["fd00::9", "[fd00::9]", "::"])
def test_an_engine_does_not_connect_to_an_ipv6_literal(address: str) -> None:
    assert refused({"kv_events": {"connect": address}}) == (
        error(
            "kv-events-connect",
            "profile.kv_events.connect",
            f"the engine cannot connect to {address.strip('[]')}: vLLM binds an endpoint that holds '::'",
            "give a host name or an IPv4 address, or leave connect out and let subscribers connect",
        ),
    )


def test_an_engine_does_not_connect_to_an_address_for_listening() -> None:
    assert refused({"kv_events": {"connect": "0.0.0.0"}}) == (
        error(
            "kv-events-connect",
            "profile.kv_events.connect",
            "0.0.0.0 is an address to listen on, and the engine would connect to it",
            "give the subscriber's address, or leave connect out to let the engine bind",
        ),
    )


@pytest.mark.parametrize(
    ("version", "algorithm"),
    [
        ("0.9.0", "builtin"),
        ("0.9.2", "builtin"),
        ("0.10.0", "sha256_cbor_64bit"),
        ("0.10.1.1", "sha256_cbor_64bit"),
        ("0.10.2", "sha256_cbor"),
        ("0.33.0", "sha256_cbor"),
    ],
)
def test_hashes_are_the_same_on_all_nodes_of_the_release(version: str, algorithm: str) -> None:
    ran = started({"data_parallel_size": 2, "kv_events": {"hash_seed": "42"}}, nodes(1, 1), version)
    assert [one.argv[-2:] for one in ran] == [("--prefix-caching-hash-algo", algorithm)] * 2
    assert [one.env["PYTHONHASHSEED"] for one in ran] == ["42", "42"]


def test_builtin_hashes_depend_on_the_python_of_each_node() -> None:
    assert planned({"kv_events": {}}, version="0.9.2").findings == (
        warning(
            "hash-algorithm",
            "profile.kv_events.hash_algorithm",
            "builtin hashes are the same on all nodes only where Python is 3.12 or newer",
            "use vLLM 0.10.0 or newer, whose sha256_cbor_64bit does not depend on it",
        ),
    )


@pytest.mark.parametrize(
    ("version", "algorithm"),
    [("0.32.0", "sha256"), ("0.13.0", "xxhash_cbor"), ("0.10.2", "sha256"), ("0.10.0", "builtin")],
)
def test_an_algorithm_that_the_release_has_is_taken(version: str, algorithm: str) -> None:
    (one,) = started({"kv_events": {"hash_algorithm": algorithm}}, version=version)
    assert one.argv[-2:] == ("--prefix-caching-hash-algo", algorithm)


@pytest.mark.parametrize(
    ("version", "algorithm", "message", "hint"),
    [
        (
            "0.32.0",
            "builtin",
            "vLLM 0.32.0 has no hash algorithm 'builtin'; it has sha256, sha256_cbor, xxhash, xxhash_cbor",
            "",
        ),
        ("0.12.0", "xxhash", "vLLM 0.12.0 has no hash algorithm 'xxhash'; it has sha256, sha256_cbor", ""),
        (
            "0.9.2",
            "sha256_cbor",
            "vLLM 0.9.2 has no hash algorithm 'sha256_cbor'; it has builtin, sha256",
            "",
        ),
        (
            "0.10.1.1",
            "sha256",
            "with sha256 vLLM 0.10.1.1 loses every event: "
            "its hashes are larger than the event format can carry",
            "use sha256_cbor_64bit",
        ),
    ],
)
def test_an_algorithm_that_would_lose_events_is_refused(
    version: str, algorithm: str, message: str, hint: str
) -> None:
    assert refused({"kv_events": {"hash_algorithm": algorithm}}, version=version) == (
        error("hash-algorithm", "profile.kv_events.hash_algorithm", message, hint),
    )


def test_the_first_release_with_events_is_named() -> None:
    assert refused({"kv_events": {}}, version="0.8.5") == (
        error(
            "no-kv-events",
            "profile.kv_events",
            "vLLM 0.8.5 publishes no KV events; 0.9.0 is the first that does",
        ),
    )


@pytest.mark.parametrize(
    "args",
    [
        ["--no-enable-prefix-caching"],
        ["--no_enable_prefix_caching"],
        ["--enable-prefix-caching", "--no-enable-prefix-caching"],
    ],
)
def test_events_need_prefix_caching(args: list[str]) -> None:
    assert refused({"kv_events": {}, "args": args}) == (
        error(
            "kv-events-without-prefix-caching",
            "profile.args",
            "prefix caching is switched off in args, and without it there are no KV events",
            "leave --no-enable-prefix-caching out, or leave kv_events out",
        ),
    )


def test_prefix_caching_that_is_switched_on_again_is_on() -> None:
    args = ["--no-enable-prefix-caching", "--enable-prefix-caching"]
    (one,) = started({"kv_events": {}, "args": args})
    assert one.argv[-2:] == tuple(args)


def test_a_random_seed_would_give_each_node_other_hashes() -> None:
    profile = {"data_parallel_size": 2, "kv_events": {}, "env": {"PYTHONHASHSEED": "random"}}
    assert refused(profile, nodes(1, 1)) == (
        error(
            "refused-variable",
            "profile.env.PYTHONHASHSEED",
            "PYTHONHASHSEED 'random' gives each process other block hashes",
            "set kv_events.hash_seed to a number",
        ),
    )


def test_a_seed_in_the_profile_environment_is_the_last_word() -> None:
    profile = {"data_parallel_size": 2, "kv_events": {}, "env": {"PYTHONHASHSEED": "7"}}
    assert [ran.env["PYTHONHASHSEED"] for ran in started(profile, nodes(1, 1))] == ["7", "7"]


ON = '"enable_kv_cache_events":true'


@pytest.mark.parametrize(
    ("args", "ports"),
    [
        (["--kv-events-config", f"{{{ON}}}"], [("KV events", 5557)]),
        (["--kv-events-config", f'{{{ON},"endpoint":"tcp://*:6000"}}'], [("KV events", 6000)]),
        (
            [
                "--kv-events-config",
                f'{{{ON},"endpoint":"tcp://router:6000","replay_endpoint":"tcp://*:6001"}}',
            ],
            [("KV event replay", 6001)],
        ),
        (["--kv-events-config", '{"endpoint":"tcp://*:6000"}'], []),
        (["--kv-events-config.endpoint", "tcp://*:1"], []),
    ],
)
def test_events_that_args_configure_have_their_ports_planned_and_no_endpoints(
    args: list[str], ports: list[tuple[str, int]]
) -> None:
    profile = {"kv_events": {}, "args": args}
    assert events_ports(profile, nodes(1)) == [
        [tuple(ListeningPort(name=name, base=base) for name, base in ports)]
    ]
    assert endpoints(profile, nodes(1)) == [[]]


def test_ports_of_events_in_args_collide_like_any_other() -> None:
    args = ["--kv-events-config", f'{{{ON},"endpoint":"tcp://*:8000"}}']
    (finding,) = refused({"args": args}, nodes(1))
    assert (finding.code, finding.message) == (
        "port-collision",
        "http (8000) of server and KV events (8000) of server collide",
    )


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ({"port": 5557, "replay_port": 5557}, "port and replay_port must differ, both are 5557"),
        ({"port": 0}, "greater than or equal to 1, not 0"),
        ({"port": 65536}, "less than or equal to 65535, not 65536"),
        (
            {"hash_seed": "random"},
            "hash_seed must be a whole number from 0 to 4294967295 as text, not 'random'",
        ),
        ({"hash_seed": "4294967296"}, "hash_seed must be a whole number from 0"),
        ({"hash_seed": ""}, "hash_seed must be a whole number from 0"),
        ({"hash_seed": "٣"}, "hash_seed must be a whole number from 0"),
        ({"connect": "tcp://10.0.0.1:5557"}, "is no IPv6 address; give the address alone"),
        ({"topics": "kv"}, "unknown key 'topics'; did you mean 'topic'"),
    ],
)
def test_bad_events_are_explained(events: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        deployment({"kv_events": events})
