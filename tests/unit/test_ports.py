"""The port plan: what each command listens on, and what would collide on one host."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from plans import commands, deployment, error, nodes, refused, started
from pydantic import ValidationError

from enginelaunch.command import ListeningPort

HINT = "set http_port, ports or the ports of kv_events so that they differ"

NESTED: dict[str, Any] = {
    "tensor_parallel_size": 2,
    "data_parallel_size": 2,
    "kv_events": {"port": 5557, "replay_port": 6557},
}
"""A leader of this listens for everything that there is without Ray."""


def collision(one: str, other: str, rank: int = 0) -> Any:
    return error("port-collision", f"nodes[{rank}]", f"{one} and {other} collide", HINT)


def listening(*args: Any, **keys: Any) -> list[list[tuple[str, int, int]]]:
    return [
        [(port.name, port.base, port.last) for command in machine for port in command.ports]
        for machine in commands(*args, **keys)
    ]


def test_a_leader_listens_for_all_and_a_follower_for_its_own() -> None:
    assert listening(NESTED, nodes(1, 1, 1, 1)) == [
        [
            ("http", 8000, 8000),
            ("master", 29501, 29501),
            ("data parallel RPC", 29550, 29550),
            ("KV events", 5557, 5557),
            ("KV event replay", 6557, 6557),
        ],
        [],
        [("KV events", 5558, 5558), ("KV event replay", 6558, 6558)],
        [],
    ]


def test_servers_of_one_node_listen_on_following_ports() -> None:
    profile = {"data_parallel_size": 4, "data_parallel_mode": "external", "kv_events": {}}
    assert listening(profile, nodes(2, 2, http_port=9000)) == [
        [
            ("http", 9000, 9000),
            ("data parallel RPC", 29550, 29550),
            ("KV events", 5557, 5557),
            ("http", 9001, 9001),
            ("KV events", 5558, 5558),
        ],
        [("http", 9000, 9000), ("KV events", 5559, 5559), ("http", 9001, 9001), ("KV events", 5560, 5560)],
    ]


def test_internal_replicas_of_one_node_need_no_port_to_report_to() -> None:
    assert listening({"data_parallel_size": 4}, nodes(4)) == [[("http", 8000, 8000)]]


WITHOUT_RAY = {
    "http": "http",
    "master": "master",
    "rpc": "data parallel RPC",
    "events": "KV events",
    "replay": "KV event replay",
}


@pytest.mark.parametrize("pair", list(combinations(WITHOUT_RAY, 2)), ids=" and ".join)
def test_each_pair_of_one_process_collides(pair: tuple[str, str]) -> None:
    at = {"http": 8000, "master": 29501, "rpc": 29550, "events": 5557, "replay": 6557}
    for key in pair:
        at[key] = 30000
    profile = {**NESTED, "kv_events": {"port": at["events"], "replay_port": at["replay"]}}
    machines = nodes(1, 1, 1, 1, http_port=at["http"])
    ports = {"leader": at["master"], "data_parallel_rpc": at["rpc"]}
    if pair == ("events", "replay"):
        with pytest.raises(ValidationError, match="port and replay_port must differ, both are 30000"):
            deployment(profile, machines, ports=ports)
        return
    one, other = (WITHOUT_RAY[key] for key in pair)
    assert refused(profile, machines, ports=ports) == (
        collision(f"{one} (30000) of server", f"{other} (30000) of server"),
    )


RAY_ON_THE_HEAD = {
    "leader": "Ray head",
    "client_server": "Ray client server",
    "autoscaler_metrics": "Ray autoscaler metrics",
}

RAY_ON_EVERY_NODE = {
    "node_manager": "Ray node manager",
    "object_manager": "Ray object manager",
    "metrics_export": "Ray metrics export",
    "dashboard_agent_grpc": "Ray dashboard agent grpc",
    "dashboard_agent_listen": "Ray dashboard agent listen",
    "runtime_env_agent": "Ray runtime env agent",
}


def ray_ports(**chosen: int) -> dict[str, Any]:
    at = {name: 6400 + index for index, name in enumerate({**RAY_ON_THE_HEAD, **RAY_ON_EVERY_NODE})}
    at |= {"min_worker": 10100, "max_worker": 10199, **chosen}
    return {"leader": at.pop("leader"), "ray": at}


@pytest.mark.parametrize(
    "pair", list(combinations({**RAY_ON_THE_HEAD, **RAY_ON_EVERY_NODE}, 2)), ids=" and ".join
)
def test_each_pair_of_ray_collides_on_every_node_that_has_it(pair: tuple[str, str]) -> None:
    ports = ray_ports(**dict.fromkeys(pair, 6500))
    errors = refused({"tensor_parallel_size": 2}, nodes(1, 1), ports=ports, launch_mode="ray")
    names = {**RAY_ON_THE_HEAD, **RAY_ON_EVERY_NODE}
    ranks = (0,) if set(pair) & set(RAY_ON_THE_HEAD) else (0, 1)
    assert {(f.code, f.where) for f in errors} == {("port-collision", f"nodes[{rank}]") for rank in ranks}
    assert all(names[key] in f.message for f in errors for key in pair)


@pytest.mark.parametrize("name", [*RAY_ON_THE_HEAD, *RAY_ON_EVERY_NODE])
@pytest.mark.parametrize("port", [10100, 10150, 10199])
def test_a_port_within_the_range_of_rays_workers_collides(name: str, port: int) -> None:
    errors = refused(
        {"tensor_parallel_size": 2}, nodes(1, 1), ports=ray_ports(**{name: port}), launch_mode="ray"
    )
    assert {f.code for f in errors} == {"port-collision"}
    assert all("Ray workers (10100 to 10199)" in f.message for f in errors)


@pytest.mark.parametrize("port", [10099, 10200])
def test_a_port_beside_the_range_of_rays_workers_does_not_collide(port: int) -> None:
    assert started(
        {"tensor_parallel_size": 2}, nodes(1, 1), ports=ray_ports(node_manager=port), launch_mode="ray"
    )


@pytest.mark.parametrize(
    ("port", "taken", "command"),
    [
        (6379, "Ray head (6379)", "ray-head"),
        (10001, "Ray client server (10001)", "ray-head"),
    ],
)
def test_the_server_does_not_take_a_default_port_of_ray(port: int, taken: str, command: str) -> None:
    machines = nodes(1, 1, http_port=port)
    assert refused({"tensor_parallel_size": 2}, machines, launch_mode="ray") == (
        collision(f"{taken} of {command}", f"http ({port}) of server"),
    )


def test_the_server_does_not_take_a_pinned_port_of_ray() -> None:
    machines = nodes(1, 1, http_port=10123)
    assert refused({"tensor_parallel_size": 2}, machines, ports=ray_ports(), launch_mode="ray") == (
        collision("Ray workers (10100 to 10199) of ray-head", "http (10123) of server"),
    )


def test_data_parallel_ranks_report_beside_ray() -> None:
    keys: dict[str, Any] = {"launch_mode": "ray", "ports": {"data_parallel_rpc": 6379}}
    assert refused({"data_parallel_size": 2}, nodes(1, 1), **keys) == (
        collision("Ray head (6379) of ray-head", "data parallel RPC (6379) of server"),
    )


@pytest.mark.parametrize(
    ("events", "errors"),
    [
        (
            {"port": 5557, "replay_port": 5560},
            (collision("KV events (5557 to 5560) of server", "KV event replay (5560 to 5563) of server"),),
        ),
        (
            {"port": 7997},
            (collision("http (8000) of server", "KV events (7997 to 8000) of server"),),
        ),
    ],
)
def test_spans_of_ranks_collide_at_their_ends(events: dict[str, int], errors: tuple[Any, ...]) -> None:
    assert refused({"data_parallel_size": 4, "kv_events": events}, nodes(4)) == errors


@pytest.mark.parametrize("events", [{"port": 5557, "replay_port": 5561}, {"port": 7996}, {"port": 8001}])
def test_spans_of_ranks_may_touch(events: dict[str, int]) -> None:
    assert started({"data_parallel_size": 4, "kv_events": events}, nodes(4))


def test_ports_of_different_nodes_do_not_collide() -> None:
    # Rank 1 replays at 5558, and rank 0 on the other node does not publish there.
    profile = {"data_parallel_size": 2, "kv_events": {"port": 5557, "replay_port": 5558}}
    assert listening(profile, nodes(1, 1)) == [
        [
            ("http", 8000, 8000),
            ("data parallel RPC", 29550, 29550),
            ("KV events", 5557, 5557),
            ("KV event replay", 5558, 5558),
        ],
        [("KV events", 5558, 5558), ("KV event replay", 5559, 5559)],
    ]


def test_events_of_one_server_collide_with_replays_of_another_on_one_node() -> None:
    profile = {
        "data_parallel_size": 2,
        "data_parallel_mode": "external",
        "kv_events": {"port": 5557, "replay_port": 5558},
    }
    assert refused(profile, nodes(2)) == (
        collision("KV event replay (5558) of server-0", "KV events (5558) of server-1"),
    )


@pytest.mark.parametrize(
    ("profile", "machines", "message"),
    [
        (
            {"data_parallel_size": 2, "data_parallel_mode": "external"},
            nodes(2, http_port=65535),
            "http (65536) of server-1 goes above 65535",
        ),
        (
            {"data_parallel_size": 4, "kv_events": {"port": 65533}},
            nodes(4),
            "KV events (65533 to 65536) of server goes above 65535",
        ),
    ],
)
def test_no_port_goes_above_the_last_one(profile: dict[str, Any], machines: Any, message: str) -> None:
    assert refused(profile, machines) == (
        error("port-collision", "nodes[0]", message, "use a lower base port"),
    )


def test_a_follower_goes_above_the_last_port_on_its_own_node() -> None:
    profile = {"data_parallel_size": 4, "kv_events": {"port": 65533}}
    assert refused(profile, nodes(2, 2)) == (
        error(
            "port-collision",
            "nodes[1]",
            "KV events (65535 to 65536) of worker goes above 65535",
            "use a lower base port",
        ),
    )


def test_a_port_in_args_is_planned_like_any_other() -> None:
    profile = {"kv_events": {"port": 9000}, "args": ["--port", "9000"]}
    assert refused(profile) == (collision("http (9000) of server", "KV events (9000) of server"),)


@pytest.mark.parametrize("port", [0, -1, 65536, "8000", 8000.5, True, None])
@pytest.mark.parametrize("field", ["http_port", "leader", "data_parallel_rpc", "node_manager"])
def test_a_port_is_a_whole_number_from_1_to_65535(field: str, port: Any) -> None:
    if port is None and field != "http_port":
        assert deployment(ports={"ray": {field: None}} if field == "node_manager" else {field: None})
        return
    machines = [{"http_port": port}] if field == "http_port" else [{}]
    ports = {"ray": {field: port}} if field == "node_manager" else {field: port}
    keys: dict[str, Any] = {} if field == "http_port" else {"ports": ports}
    with pytest.raises(ValidationError, match=f"{field}\n.*, not "):
        deployment({}, machines, **keys)


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ({"min_worker": 10000}, "give min_worker and max_worker together"),
        ({"max_worker": 10000}, "give min_worker and max_worker together"),
        ({"min_worker": 10001, "max_worker": 10000}, "min_worker 10001 is above max_worker 10000"),
    ],
)
def test_rays_workers_have_a_whole_range(workers: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        deployment(ports={"ray": workers})


def test_a_range_of_one_port_is_a_range() -> None:
    ports = {"ray": {"min_worker": 10000, "max_worker": 10000}}
    (head, _), (join,) = commands({"tensor_parallel_size": 2}, nodes(1, 1), ports=ports, launch_mode="ray")
    assert ListeningPort(name="Ray workers", base=10000, span=1) in head.ports
    assert join.ports == (ListeningPort(name="Ray workers", base=10000, span=1),)
