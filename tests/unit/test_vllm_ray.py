"""What runs on several nodes that form a Ray cluster."""

from __future__ import annotations

from typing import Any

import pytest
from plans import (
    commands,
    error,
    found,
    info,
    node,
    nodes,
    planned,
    refused,
    started,
    warning,
    words,
)

from enginelaunch import VLLM, Command
from enginelaunch.command import (
    EnvironmentSecret,
    Exits,
    HTTPReady,
    ListeningPort,
    SocketAddress,
    Stop,
    StopSignal,
    TCPReady,
    Wait,
)
from enginelaunch.engine import Endpoint

SIXTEEN = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}

RAY: dict[str, Any] = {"launch_mode": "ray"}

STOP = Stop(order=1, signals=(StopSignal("SIGTERM", 45.0), StopSignal("SIGKILL", 5.0)))

EXITS = Exits(
    meanings=(
        (0, "it ended; nothing computes on this node any more"),
        (1, "it was stopped, or lost or never found the head"),
        (2, "an argument is wrong"),
        (137, "it was killed, by SIGKILL or for lack of memory"),
    )
)

HEAD = (
    "ray start --block --head --port 6379 --node-ip-address 10.0.0.1 --include-dashboard=false --num-gpus {}"
)
JOIN = "ray start --block --address 10.0.0.1:6379 --node-ip-address {} --num-gpus {}"

NO_TOKEN = warning(
    "open-ray-cluster",
    "cluster_token",
    "without a token, whoever reaches the head's port can run programs on every node",
    "set cluster_token (Ray 2.52.0 or newer), or close the network",
)
NOT_BROUGHT = info(
    "ray-is-separate",
    "launch_mode",
    "vLLM 0.32.0 does not bring Ray with it: install it on every node",
)


def server_argv(sizes: str, data: str = "") -> tuple[str, ...]:
    return words(
        f"vllm serve m --host 0.0.0.0 --port 8000 {sizes} --distributed-executor-backend ray {data} "
        "--served-model-name m"
    )


def test_the_leader_is_a_head_and_then_the_server_and_a_worker_joins() -> None:
    cleared = ("VLLM_PORT", "VLLM_DP_")
    head = Wait(address=SocketAddress("10.0.0.1", 6379), timeout=600.0)
    interface = {"GLOO_SOCKET_IFNAME": "ib0", "TP_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "=ib0"}
    visible = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    token = {"RAY_AUTH_TOKEN": EnvironmentSecret("TOKEN")}
    machines = nodes(list(range(8)), list(range(8)), interface="ib0")
    assert commands(SIXTEEN, machines, api_key={"env": "KEY"}, cluster_token={"env": "TOKEN"}, **RAY) == [
        [
            Command(
                name="ray-head",
                path="ray",
                args=words(HEAD.format(8))[1:],
                env={"VLLM_HOST_IP": "10.0.0.1", **interface, **visible, "RAY_AUTH_MODE": "token"},
                secret_env=token,
                clear_env=(*cleared, "RAY_ADDRESS"),
                role="worker",
                ready=TCPReady(address=SocketAddress("10.0.0.1", 6379), timeout=600.0),
                ports=(
                    ListeningPort(name="Ray head", base=6379),
                    ListeningPort(name="Ray client server", base=10001),
                ),
                stop=STOP,
                exits=EXITS,
            ),
            Command(
                name="server",
                path="vllm",
                args=server_argv("--tensor-parallel-size 8 --pipeline-parallel-size 2")[1:],
                env={"RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_MODE": "token"},
                secret_env={**token, "VLLM_API_KEY": EnvironmentSecret("KEY")},
                clear_env=cleared,
                role="serves",
                waits_for=(head,),
                ready=HTTPReady(address=SocketAddress("127.0.0.1", 8000), path="/health", timeout=3600.0),
                ports=(ListeningPort(name="http", base=8000),),
                stop=Stop(
                    signals=(
                        StopSignal("SIGTERM", 30.0),
                        StopSignal("SIGTERM", 15.0),
                        StopSignal("SIGKILL", 5.0),
                    )
                ),
                exits=Exits(
                    success=(0, 143),
                    meanings=(
                        (0, "it was stopped as asked"),
                        (1, "it failed while starting or running; its last lines say why"),
                        (2, "an argument is wrong"),
                        (137, "it was killed, by SIGKILL or for lack of memory"),
                        (143, "it was stopped while it was still importing"),
                    ),
                ),
            ),
        ],
        [
            Command(
                name="ray-join",
                path="ray",
                args=words(JOIN.format("10.0.0.2", 8))[1:],
                env={"VLLM_HOST_IP": "10.0.0.2", **interface, **visible, "RAY_AUTH_MODE": "token"},
                secret_env=token,
                clear_env=(*cleared, "RAY_ADDRESS"),
                role="worker",
                waits_for=(head,),
                stop=STOP,
                exits=EXITS,
            )
        ],
    ]


def test_only_the_leader_takes_requests() -> None:
    assert [machine.endpoints for machine in planned(SIXTEEN, nodes(8, 8), **RAY).nodes] == [
        (Endpoint(command="server", host="10.0.0.1", port=8000),),
        (),
    ]


def test_one_node_by_ray_is_a_head_and_a_server() -> None:
    assert started({"tensor_parallel_size": 2}, nodes(2), **RAY) == [
        (0, "ray-head", words(HEAD.format(2)), {"VLLM_HOST_IP": "10.0.0.1"}),
        (0, "server", server_argv("--tensor-parallel-size 2"), {"RAY_ADDRESS": "10.0.0.1:6379"}),
    ]


def test_ray_counts_gpus_itself_where_they_are_not_stated() -> None:
    assert [ran.argv for ran in started({"tensor_parallel_size": 2}, nodes(None, None), **RAY)] == [
        words(HEAD.removesuffix(" --num-gpus {}")),
        server_argv("--tensor-parallel-size 2"),
        words(JOIN.removesuffix(" --num-gpus {}").format("10.0.0.2")),
    ]


def test_one_replica_may_be_on_nodes_with_different_numbers_of_gpus() -> None:
    assert [ran.argv for ran in started({"tensor_parallel_size": 6}, nodes(4, 2), **RAY)] == [
        words(HEAD.format(4)),
        server_argv("--tensor-parallel-size 6"),
        words(JOIN.format("10.0.0.2", 2)),
    ]


def test_an_ipv6_head_is_bare_as_its_own_address_and_bracketed_with_its_port() -> None:
    machines = [{"address": "[fd00::1]", "gpus": 1, "http_host": "::"}, {"address": "fd00::2", "gpus": 1}]
    head, server, join = started({"tensor_parallel_size": 2}, machines, **RAY)
    assert head.argv == words(
        "ray start --block --head --port 6379 --node-ip-address fd00::1 --include-dashboard=false "
        "--num-gpus 1"
    )
    assert join.argv == words(
        "ray start --block --address [fd00::1]:6379 --node-ip-address fd00::2 --num-gpus 1"
    )
    assert (head.env, server.env, join.env) == (
        {"VLLM_HOST_IP": "fd00::1"},
        {"RAY_ADDRESS": "[fd00::1]:6379"},
        {"VLLM_HOST_IP": "fd00::2"},
    )


@pytest.mark.parametrize(("platform", "variable"), [("cuda", "CUDA"), ("rocm", "HIP")], ids=["cuda", "rocm"])
def test_what_differs_between_nodes_stands_with_ray_start_and_not_with_the_server(
    platform: str, variable: str
) -> None:
    machines = [node(0, [5, 6], interface="eno1"), node(1, [0, 1], interface="eth0")]
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if platform == "cuda" else {}

    def own(rank: int, ids: str, interface: str) -> dict[str, str]:
        return {
            "VLLM_HOST_IP": f"10.0.0.{rank + 1}",
            "GLOO_SOCKET_IFNAME": interface,
            "TP_SOCKET_IFNAME": interface,
            "NCCL_SOCKET_IFNAME": f"={interface}",
            f"{variable}_VISIBLE_DEVICES": ids,
            **order,
        }

    ran = started({"tensor_parallel_size": 4}, machines, platform=platform, **RAY)
    assert [one.env for one in ran] == [
        own(0, "5,6", "eno1"),
        {"RAY_ADDRESS": "10.0.0.1:6379"},
        own(1, "0,1", "eth0"),
    ]


def test_the_profile_environment_is_the_last_word_for_all_three() -> None:
    profile = {**SIXTEEN, "env": {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ib", "HF_TOKEN": {"env": "T"}}}
    machines = nodes(8, 8, interface="eth0")
    planned_nodes = commands(profile, machines, **RAY)
    own = {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}
    given = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ib"}
    assert [(dict(c.env), dict(c.secret_env)) for machine in planned_nodes for c in machine] == [
        ({"VLLM_HOST_IP": "10.0.0.1", **own, **given}, {"HF_TOKEN": EnvironmentSecret("T")}),
        ({"RAY_ADDRESS": "10.0.0.1:6379", **given}, {"HF_TOKEN": EnvironmentSecret("T")}),
        ({"VLLM_HOST_IP": "10.0.0.2", **own, **given}, {"HF_TOKEN": EnvironmentSecret("T")}),
    ]


def test_visible_gpus_in_the_profile_environment_do_not_reach_the_server() -> None:
    profile = {**SIXTEEN, "env": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}}
    _, server, _ = started(profile, nodes(8, 8), **RAY)
    assert server.env == {"RAY_ADDRESS": "10.0.0.1:6379"}


def test_every_port_can_be_pinned() -> None:
    ray = {
        "node_manager": 6380,
        "object_manager": 6381,
        "min_worker": 10100,
        "max_worker": 10199,
        "client_server": 10002,
        "metrics_export": 6382,
        "autoscaler_metrics": 6383,
        "dashboard_agent_grpc": 6384,
        "dashboard_agent_listen": 6385,
        "runtime_env_agent": 6386,
    }
    pinned = (
        "--node-manager-port 6380 --object-manager-port 6381 --min-worker-port 10100 "
        "--max-worker-port 10199 --metrics-export-port 6382 --dashboard-agent-grpc-port 6384 "
        "--dashboard-agent-listen-port 6385 --runtime-env-agent-port 6386"
    )
    keys = {"ports": {"leader": 6390, "ray": ray}, **RAY}
    head, server, join = started({"tensor_parallel_size": 2}, nodes(1, 1), **keys)
    assert head.argv == words(
        "ray start --block --head --port 6390 --node-ip-address 10.0.0.1 --include-dashboard=false "
        f"--num-gpus 1 {pinned} --ray-client-server-port 10002"
    )
    assert head.env == {"VLLM_HOST_IP": "10.0.0.1", "AUTOSCALER_METRIC_PORT": "6383"}
    assert server.env == {"RAY_ADDRESS": "10.0.0.1:6390"}
    assert join.argv == words(
        f"ray start --block --address 10.0.0.1:6390 --node-ip-address 10.0.0.2 --num-gpus 1 {pinned}"
    )
    shared = (
        ListeningPort(name="Ray workers", base=10100, span=100),
        ListeningPort(name="Ray node manager", base=6380),
        ListeningPort(name="Ray object manager", base=6381),
        ListeningPort(name="Ray metrics export", base=6382),
        ListeningPort(name="Ray dashboard agent grpc", base=6384),
        ListeningPort(name="Ray dashboard agent listen", base=6385),
        ListeningPort(name="Ray runtime env agent", base=6386),
    )
    ports = [
        [c.ports for c in machine] for machine in commands({"tensor_parallel_size": 2}, nodes(1, 1), **keys)
    ]
    assert ports == [
        [
            (
                ListeningPort(name="Ray head", base=6390),
                ListeningPort(name="Ray client server", base=10002),
                ListeningPort(name="Ray autoscaler metrics", base=6383),
                *shared,
            ),
            (ListeningPort(name="http", base=8000),),
        ],
        [shared],
    ]


DATA = "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29550"


@pytest.mark.parametrize(
    ("profile", "gpus", "sizes", "data", "env"),
    [
        (
            {"tensor_parallel_size": 8, "data_parallel_size": 2},
            (8, 8),
            "--tensor-parallel-size 8",
            f"--data-parallel-size 2 --data-parallel-size-local 1 {DATA} --data-parallel-backend ray",
            {},
        ),
        (
            {"tensor_parallel_size": 2, "data_parallel_size": 3},
            (4, 2),
            "--tensor-parallel-size 2",
            f"--data-parallel-size 3 --data-parallel-size-local 2 {DATA} --data-parallel-backend ray",
            {"VLLM_RAY_DP_PACK_STRATEGY": "fill"},
        ),
        (
            {"tensor_parallel_size": 4, "data_parallel_size": 2},
            (2, 2, 2, 2),
            "--tensor-parallel-size 4",
            f"--data-parallel-size 2 {DATA} --data-parallel-backend ray",
            {"VLLM_RAY_DP_PACK_STRATEGY": "span"},
        ),
    ],
    ids=["whole replicas", "uneven", "replicas that span nodes"],
)
def test_ray_places_the_replicas(
    profile: dict[str, Any], gpus: tuple[int, ...], sizes: str, data: str, env: dict[str, str]
) -> None:
    head, server, *joins = started(profile, nodes(*gpus), **RAY)
    assert head.argv == words(HEAD.format(gpus[0]))
    assert (server.argv, server.env) == (server_argv(sizes, data), {"RAY_ADDRESS": "10.0.0.1:6379", **env})
    assert [one.argv for one in joins] == [
        words(JOIN.format(f"10.0.0.{rank + 1}", count)) for rank, count in enumerate(gpus) if rank
    ]


def test_replicas_span_nodes_from_the_first_release_that_can() -> None:
    profile = {"tensor_parallel_size": 4, "data_parallel_size": 2}
    assert refused(profile, nodes(2, 2, 2, 2), "0.11.0", **RAY) == (
        error(
            "impossible-layout",
            "profile",
            "with Ray, vLLM 0.11.0 keeps each replica on one node; "
            "0.11.1 is the first that lets one span nodes",
            "use sizes whose replica fits into a node",
        ),
    )


@pytest.mark.parametrize("mode", ["hybrid", "external"])
def test_ray_has_one_server(mode: str) -> None:
    assert refused({"data_parallel_size": 2, "data_parallel_mode": mode}, nodes(1, 1), **RAY) == (
        error(
            "impossible-layout",
            "profile",
            f"launch_mode ray starts one server, so {mode} load balancing cannot be had",
            "use launch_mode: mp, or data_parallel_mode: internal",
        ),
    )


@pytest.mark.parametrize("gpus", [(3, 3), (1, 3)])
def test_replicas_that_neither_fit_nor_fill_are_refused(gpus: tuple[int, ...]) -> None:
    size = sum(gpus) // 2
    profile = {"tensor_parallel_size": 2, "data_parallel_size": size}
    assert refused(profile, nodes(*gpus), **RAY) == (
        error(
            "impossible-layout",
            "profile",
            "replicas of 2 GPUs neither fit into nodes with "
            f"{', '.join(map(str, sorted(set(gpus))))} GPUs nor fill them",
            "use a tensor_parallel_size x pipeline_parallel_size that divides a node's GPUs, "
            "or a multiple of them with as many GPUs on each node",
        ),
    )


def test_events_of_replicas_that_ray_places_have_no_known_address() -> None:
    assert refused({"data_parallel_size": 2, "kv_events": {}}, nodes(1, 1), **RAY) == (
        error(
            "kv-events-anywhere",
            "profile.kv_events",
            "Ray decides on which node a data-parallel rank runs, "
            "so subscribers cannot know where its events are",
            "set kv_events.connect to the subscriber's address, or use launch_mode: mp",
        ),
    )


def test_replay_of_replicas_that_ray_places_has_no_known_address_either() -> None:
    profile = {"data_parallel_size": 2, "kv_events": {"connect": "10.9.9.9", "replay_port": 6000}}
    assert refused(profile, nodes(1, 1), **RAY) == (
        error(
            "kv-events-anywhere",
            "profile.kv_events",
            "Ray decides on which node a data-parallel rank runs, "
            "so subscribers cannot know where its events are",
            "leave replay_port out, or use launch_mode: mp",
        ),
    )


def test_events_of_one_replica_are_those_of_the_leader() -> None:
    _, server, join = started({**SIXTEEN, "kv_events": {}}, nodes(8, 8), **RAY)
    assert server.argv[-4:] == (
        "--kv-events-config",
        '{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","publisher":"zmq"}',
        "--prefix-caching-hash-algo",
        "sha256_cbor",
    )
    assert server.env == {"RAY_ADDRESS": "10.0.0.1:6379", "PYTHONHASHSEED": "0"}
    assert join.env == {"VLLM_HOST_IP": "10.0.0.2", "PYTHONHASHSEED": "0"}


def test_an_open_cluster_is_a_warning() -> None:
    assert found(SIXTEEN, nodes(8, 8), **RAY) == (NO_TOKEN, NOT_BROUGHT)


@pytest.mark.parametrize(("version", "findings"), [("0.17.1", (NO_TOKEN,)), ("0.18.0", None)])
def test_a_release_that_does_not_bring_ray_says_so(version: str, findings: Any) -> None:
    if findings is None:
        said = info(
            "ray-is-separate",
            "launch_mode",
            f"vLLM {version} does not bring Ray with it: install it on every node",
        )
        findings = (NO_TOKEN, said)
    assert found(SIXTEEN, nodes(8, 8), version, **RAY) == findings


@pytest.mark.parametrize(
    ("ray_version", "findings"),
    [
        (
            None,
            (
                info(
                    "ray-version-unknown",
                    "cluster_token",
                    "token authentication needs Ray 2.52.0 or newer, and the release is not known; "
                    "an older one ignores the token",
                    "compare with what `ray --version` says on the nodes",
                ),
                NOT_BROUGHT,
            ),
        ),
        ("2.52.0", (NOT_BROUGHT,)),
        ("2.60.0", (NOT_BROUGHT,)),
    ],
)
def test_a_token_goes_to_every_process_of_a_release_that_has_tokens(
    ray_version: str | None, findings: Any
) -> None:
    engine = VLLM("0.32.0", ray_version=ray_version)
    plan = planned(SIXTEEN, nodes(8, 8), engine=engine, cluster_token={"file": "/run/token"}, **RAY)
    assert plan.findings == findings
    assert [
        (command.env["RAY_AUTH_MODE"], command.secret_env["RAY_AUTH_TOKEN"].as_dict())
        for machine in plan.nodes
        for command in machine.commands
    ] == [("token", {"file": "/run/token"})] * 3


def test_a_token_needs_a_release_of_ray_that_has_tokens() -> None:
    engine = VLLM("0.32.0", ray_version="2.51.1")
    assert refused(SIXTEEN, nodes(8, 8), engine=engine, cluster_token={"env": "T"}, **RAY) == (
        error(
            "no-ray-tokens",
            "cluster_token",
            "Ray 2.51.1 has no token authentication and would run without any",
            "use Ray 2.52.0 or newer",
        ),
    )


def test_the_cpu_platform_has_no_ray() -> None:
    assert refused({"tensor_parallel_size": 2}, nodes(None, None), platform="cpu", **RAY) == (
        error("ray-on-cpu", "launch_mode", "vLLM refuses Ray on platform cpu", "use launch_mode: mp"),
    )


@pytest.mark.parametrize("version", ["0.21.0", "0.33.0"])
def test_one_replica_by_ray_is_the_same_on_every_release_whose_executor_asks_ray_for_addresses(
    version: str,
) -> None:
    assert started(SIXTEEN, nodes(8, 8), version, **RAY) == started(SIXTEEN, nodes(8, 8), **RAY)


@pytest.mark.parametrize("version", ["0.8.5", "0.11.0", "0.20.2"])
def test_the_server_of_an_older_release_has_the_address_that_its_executor_compares(version: str) -> None:
    head, server, join = started(SIXTEEN, nodes(8, 8), **RAY)
    with_address = server._replace(env={**server.env, "VLLM_HOST_IP": "10.0.0.1"})
    assert started(SIXTEEN, nodes(8, 8), version, **RAY) == [head, with_address, join]
