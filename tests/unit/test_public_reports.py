"""What builders of launch commands got wrong in public, and what is right instead."""

from __future__ import annotations

import json
import shlex
from itertools import product
from typing import Any

import pytest
from plans import (
    commands,
    error,
    found,
    info,
    node,
    nodes,
    only_command,
    planned,
    refused,
    started,
    warning,
    words,
)
from pydantic import SecretStr, ValidationError

from enginelaunch import LaunchError
from enginelaunch.command import SocketAddress, TCPReady, Wait

MEETING = (
    "--distributed-executor-backend mp --nnodes 2 --node-rank {} --master-addr 10.0.0.1 --master-port 29501"
)
DATA = (
    "--data-parallel-size 2 --data-parallel-size-local 1 {}--data-parallel-address 10.0.0.1 "
    "--data-parallel-rpc-port 29550"
)
SERVER = "vllm serve m --host 0.0.0.0 --port 8000"


@pytest.mark.parametrize("version", ["0.10.0", "0.28.0", "0.29.0", "0.33.0"])
def test_internal_leader_has_no_start_rank_and_hybrid_nodes_all_have_one(version: str) -> None:
    profile = {"tensor_parallel_size": 2, "data_parallel_size": 2}
    assert [ran.argv for ran in started(profile, nodes(2, 2), version)] == [
        words(f"{SERVER} --tensor-parallel-size 2 {DATA.format('')} --served-model-name m"),
        words(
            f"vllm serve m --tensor-parallel-size 2 {DATA.format('--data-parallel-start-rank 1 ')} --headless"
        ),
    ]
    hybrid = {"tensor_parallel_size": 1, "data_parallel_size": 4, "data_parallel_mode": "hybrid"}
    assert [ran.argv for ran in started(hybrid, nodes(2, 2), version)] == [
        words(
            f"{SERVER} --tensor-parallel-size 1 --data-parallel-size 4 --data-parallel-size-local 2 "
            f"--data-parallel-start-rank {start} --data-parallel-hybrid-lb --data-parallel-address 10.0.0.1 "
            "--data-parallel-rpc-port 29550 --served-model-name m"
        )
        for start in (0, 2)
    ]


def test_headless_ranks_are_started_by_vllm_serve_and_never_by_the_module() -> None:
    shapes: list[tuple[dict[str, Any], tuple[int, ...]]] = [
        ({"tensor_parallel_size": 2}, (1, 1)),
        ({"data_parallel_size": 2}, (1, 1)),
        ({"tensor_parallel_size": 2, "data_parallel_size": 2}, (1, 1, 1, 1)),
    ]
    for profile, gpus in shapes:
        for ran in started(profile, nodes(*gpus)):
            assert ran.argv[:3] == ("vllm", "serve", "m")
            assert ("--headless" in ran.argv) == (ran.name == "worker")


def test_vllm_port_is_never_set_beside_a_master_port() -> None:
    assert [
        (ran.env, "--master-port" in ran.argv) for ran in started({"tensor_parallel_size": 2}, nodes(1, 1))
    ] == [
        ({"VLLM_HOST_IP": "10.0.0.1"}, True),
        ({"VLLM_HOST_IP": "10.0.0.2"}, True),
    ]
    assert refused({"tensor_parallel_size": 2, "env": {"VLLM_PORT": "20000"}}, nodes(1, 1)) == (
        error(
            "refused-variable",
            "profile.env.VLLM_PORT",
            "VLLM_PORT is a base for internal ports, and nodes that share one collide on it",
            "leave it out; the server's port is http_port",
        ),
    )


def test_vllm_port_is_not_the_port_of_the_server_and_not_inherited() -> None:
    assert only_command({}, [{"http_port": 9000}]).argv == words(
        "vllm serve m --host 0.0.0.0 --port 9000 --tensor-parallel-size 1 --served-model-name m"
    )
    assert "VLLM_PORT" in only_command().clear_env
    errors = refused({"env": {"VLLM_PORT": "9000"}}, [{"http_port": 9000}])
    assert [f.message for f in errors] == [
        "VLLM_PORT is a base for internal ports, and 9000 is the server's own port"
    ]
    errors = refused({"env": {"VLLM_PORT": "tcp://10.43.0.7:8000"}})
    assert [f.message for f in errors] == [
        "VLLM_PORT must be a number from 1 to 65535, not 'tcp://10.43.0.7:8000'"
    ]


@pytest.mark.parametrize("launch_mode", ["mp", "ray"])
def test_nodes_do_not_share_one_host_address(launch_mode: str) -> None:
    ran = started({"tensor_parallel_size": 3}, nodes(1, 1, 1), launch_mode=launch_mode)
    own = [one.env["VLLM_HOST_IP"] for one in ran if "VLLM_HOST_IP" in one.env]
    assert own == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    errors = refused({"tensor_parallel_size": 2}, [node(0, 1), node(0, 1)], launch_mode=launch_mode)
    assert [(f.code, f.where) for f in errors] == [("same-address-twice", "nodes[1].address")]
    errors = refused({"tensor_parallel_size": 2, "env": {"VLLM_HOST_IP": "10.0.0.1"}}, nodes(1, 1))
    assert [(f.code, f.where) for f in errors] == [("refused-variable", "profile.env.VLLM_HOST_IP")]


def test_ray_start_is_told_the_same_address_as_vllm_in_its_own_environment() -> None:
    ran = started({"tensor_parallel_size": 2}, nodes(1, 1), launch_mode="ray")
    for rank, one in [(0, ran[0]), (1, ran[2])]:
        assert one.argv[one.argv.index("--node-ip-address") + 1] == f"10.0.0.{rank + 1}"
        assert one.env == {"VLLM_HOST_IP": f"10.0.0.{rank + 1}"}


@pytest.mark.parametrize("written", ["fdbd::1", "[fdbd::1]"])
def test_ipv6_is_bare_alone_and_bracketed_in_front_of_a_port(written: str) -> None:
    machines = [{"address": written, "gpus": 1, "http_host": "::"}, {"address": "fdbd::2", "gpus": 1}]
    mp = started({"tensor_parallel_size": 2, "data_parallel_size": 1}, machines)
    dp = started({"data_parallel_size": 2}, machines)
    ray = started({"tensor_parallel_size": 2}, machines, launch_mode="ray")
    assert [one.argv[one.argv.index("--master-addr") + 1] for one in mp] == ["fdbd::1", "fdbd::1"]
    assert [one.argv[one.argv.index("--data-parallel-address") + 1] for one in dp] == ["fdbd::1", "fdbd::1"]
    assert [one.env["VLLM_HOST_IP"] for one in mp] == ["fdbd::1", "fdbd::2"]
    assert ray[1].env["RAY_ADDRESS"] == "[fdbd::1]:6379"
    assert ray[2].argv[ray[2].argv.index("--address") + 1] == "[fdbd::1]:6379"
    (leader, _) = planned({"tensor_parallel_size": 2}, machines).nodes
    assert [endpoint.url for endpoint in leader.endpoints] == ["http://[fdbd::1]:8000"]


@pytest.mark.parametrize(
    "size", [["-dp", "4"], ["-dp=4"], ["--data-parallel-size=4"], ["--data_parallel_size", "4"]]
)
def test_a_size_in_args_is_seen_in_every_spelling(size: list[str]) -> None:
    tail = " ".join(size)
    flags = "--data-parallel-size-local 2 {}--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29550"
    assert [ran.argv for ran in started({"args": size}, nodes(2, 2))] == [
        words(f"{SERVER} --tensor-parallel-size 1 {flags.format('')} --served-model-name m {tail}"),
        words(
            "vllm serve m --tensor-parallel-size 1 "
            f"{flags.format('--data-parallel-start-rank 2 ')} --headless {tail}"
        ),
    ]


def test_what_args_replace_is_taken_out_with_all_of_its_values() -> None:
    adapters = [{"name": name, "path": f"/{name}", "rank": 8} for name in ("a", "b")]
    profile = {
        "lora": {"adapters": adapters},
        "args": ["-tp", "1", "--lora_modules", "c=/c", "--max-model-len", "-1"],
    }
    assert only_command(profile).argv == words(
        f"{SERVER} --enable-lora --max-lora-rank 8 --served-model-name m "
        "-tp 1 --lora_modules c=/c --max-model-len -1"
    )
    assert found(profile) == (
        info(
            "override",
            "profile.args[0]",
            "args replace --tensor-parallel-size 1 with -tp 1",
        ),
        info(
            "override",
            "profile.args[2]",
            "args replace --lora-modules a=/a b=/b with --lora_modules c=/c",
        ),
    )
    off = {"enable_expert_parallel": True, "args": ["--no-enable-expert-parallel"]}
    assert only_command(off).argv == words(
        f"{SERVER} --tensor-parallel-size 1 --served-model-name m --no-enable-expert-parallel"
    )
    errors = refused({"args": ["--max-model-len", "4096", "-1"]})
    assert [(f.code, f.where) for f in errors] == [("stray-value", "profile.args[2]")]


def test_json_is_one_item_in_one_fixed_form() -> None:
    built = only_command({"kv_events": {"topic": "a b", "replay_port": 6000}}).argv
    assert built[built.index("--kv-events-config") + 1] == (
        '{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","publisher":"zmq",'
        '"replay_endpoint":"tcp://*:6000","topic":"a b"}'
    )
    given = '{"cudagraph_mode": "FULL_DECODE_ONLY"}'
    assert only_command({"args": ["--compilation-config", given]}).argv[-2:] == (
        "--compilation-config",
        given,
    )


@pytest.mark.parametrize(
    "text",
    ["it's", '"q"', "$HOME", "$(id)", "`id`", "a\nb", "a\\b", "%s", "{{x}}", "模型 🦙", "!1", "~", "*"],
)
def test_quoting_is_nobodys_business_until_it_is_written_out(text: str) -> None:
    topic = json.dumps({"a": text}, ensure_ascii=False)
    profile = {"model": f"/m/{text}", "served_model_name": text, "args": ["--hf-overrides", topic]}
    argv = only_command(profile).argv
    assert argv == (
        *("vllm", "serve", f"/m/{text}", "--host", "0.0.0.0", "--port", "8000"),
        *("--tensor-parallel-size", "1", "--served-model-name", text, "--hf-overrides", topic),
    )
    assert tuple(shlex.split(shlex.join(str(item) for item in argv))) == argv


def test_the_largest_adapter_decides_the_rank_unless_the_operator_does() -> None:
    adapters = [{"name": str(rank), "path": f"/{rank}", "rank": rank} for rank in (8, 64, 33)]
    head = f"{SERVER} --tensor-parallel-size 1 --enable-lora"
    modules = "--lora-modules 8=/8 64=/64 33=/33"
    assert only_command({"lora": {"adapters": adapters}}).argv == words(
        f"{head} --max-lora-rank 64 --served-model-name m {modules}"
    )
    own = {"lora": {"adapters": adapters}, "args": ["--max-lora-rank", "128"]}
    assert only_command(own).argv == words(f"{head} --served-model-name m {modules} --max-lora-rank 128")


def test_adapters_are_lora_modules_and_nothing_follows_them_that_they_could_swallow() -> None:
    profile = {
        "lora": {"adapters": [{"name": "a", "path": "/a", "rank": 8}]},
        "args": ["--enforce-eager"],
    }
    assert only_command(profile).argv == words(
        f"{SERVER} --tensor-parallel-size 1 --enable-lora --max-lora-rank 8 --served-model-name m "
        "--lora-modules a=/a --enforce-eager"
    )
    assert [f.code for f in refused({"args": ["--lora-path", "/a"]})] == ["unknown-flag"]


def test_the_model_stands_directly_after_serve_and_nowhere_else() -> None:
    for launch_mode in ("mp", "ray"):
        for ran in started({"tensor_parallel_size": 2}, nodes(1, 1), launch_mode=launch_mode):
            if ran.argv[0] == "vllm":
                assert ran.argv[1:3] == ("serve", "m")
                assert "--model" not in ran.argv
    assert refused({"args": ["--model", "other"]}) == (
        error(
            "refused-argument",
            "profile.args[0]",
            "--model cannot stand in args: the model stands in front of all flags",
            "set profile.model",
        ),
    )


@pytest.mark.parametrize(
    ("args", "version", "named"),
    [
        (["--disable-log-requests"], "0.32.0", ("0.8.5 to 0.16.0", "--enable-log-requests")),
        (["--rope-scaling", '{"rope_type":"yarn"}'], "0.13.0", ("0.8.5 to 0.11.0", "--hf-overrides")),
        (["--cuda-graph-sizes", "8"], "0.16.0", ("0.9.0 to 0.12.0", "--cudagraph-capture-sizes")),
    ],
    ids=["log requests", "rope scaling", "cuda graph sizes"],
)
def test_a_removed_flag_is_named_with_its_releases_and_what_to_use_instead(
    args: list[str], version: str, named: tuple[str, ...]
) -> None:
    (finding,) = refused({"args": args}, version=version)
    assert (finding.code, finding.where) == ("unknown-flag", "profile.args[0]")
    assert finding.message.startswith(f"{args[0]} is not a flag of this release")
    assert [text for text in named if text not in finding.hint] == []


def test_no_key_or_token_is_readable_in_a_list_of_processes_or_in_a_log() -> None:
    secret = SecretStr("hunter2")
    plan = planned(
        {"tensor_parallel_size": 2, "env": {"HF_TOKEN": secret}},
        nodes(1, 1),
        launch_mode="ray",
        api_key=secret,
        cluster_token=secret,
    )
    ran = [command for machine in plan.nodes for command in machine.commands]
    assert [sorted(command.secret_env) for command in ran] == [
        ["HF_TOKEN", "RAY_AUTH_TOKEN"],
        ["HF_TOKEN", "RAY_AUTH_TOKEN", "VLLM_API_KEY"],
        ["HF_TOKEN", "RAY_AUTH_TOKEN"],
    ]
    assert "hunter2" not in f"{plan!r} {plan.as_dict()} {[command.argv for command in ran]}"
    for args in (
        ["--api-key", "hunter2"],
        ["--api-key=hunter2"],
        ["--hf-token", "hunter2"],
        ["--api-ke", "hunter2"],
    ):
        with pytest.raises((ValidationError, LaunchError)) as caught:
            planned({"args": args})
        assert "hunter2" not in str(caught.value)


def test_publishers_of_ranks_do_not_collide_and_are_where_they_are_said_to_be() -> None:
    profile = {"data_parallel_size": 4, "kv_events": {"port": 5557, "replay_port": 6557}}
    assert [
        [
            (port.name, port.base, port.last)
            for command in machine
            for port in command.ports
            if "KV" in port.name
        ]
        for machine in commands(profile, nodes(2, 2))
    ] == [
        [("KV events", 5557, 5558), ("KV event replay", 6557, 6558)],
        [("KV events", 5559, 5560), ("KV event replay", 6559, 6560)],
    ]
    near = {"data_parallel_size": 4, "kv_events": {"port": 5557, "replay_port": 5558}}
    assert [(f.code, f.where) for f in refused(near, nodes(2, 2))] == [
        ("port-collision", "nodes[0]"),
        ("port-collision", "nodes[1]"),
    ]
    with pytest.raises(ValidationError, match="greater than or equal to 1, not 0"):
        planned({"kv_events": {"port": 0}})


def test_block_hashes_are_the_same_on_all_replicas_when_events_are_on() -> None:
    profile = {"data_parallel_size": 2, "kv_events": {}}
    ran = started(profile, nodes(1, 1))
    assert [(one.argv[-2:], one.env["PYTHONHASHSEED"]) for one in ran] == [
        (("--prefix-caching-hash-algo", "sha256_cbor"), "0")
    ] * 2
    assert ["PYTHONHASHSEED" in one.env for one in started({"data_parallel_size": 2}, nodes(1, 1))] == [
        False,
        False,
    ]


@pytest.mark.parametrize("unset", [{}, {"enable_expert_parallel": False}])
def test_a_switch_that_is_not_set_is_not_written(unset: dict[str, Any]) -> None:
    argv = only_command(unset).argv
    assert argv == words(f"{SERVER} --tensor-parallel-size 1 --served-model-name m")
    assert only_command({"enable_expert_parallel": True}).argv == words(
        f"{SERVER} --tensor-parallel-size 1 --enable-expert-parallel --served-model-name m"
    )


def test_a_config_file_leaves_the_positional_in_place_and_is_said_not_to_be_read() -> None:
    profile = {"args": ["--config", "f.yaml"]}
    assert only_command(profile).argv == words(
        f"{SERVER} --tensor-parallel-size 1 --served-model-name m --config f.yaml"
    )
    assert found(profile) == (
        warning(
            "config-file-not-read",
            "profile.args[0]",
            "--config f.yaml: what the file sets is not known here, so nothing is checked against it",
            "put its contents into args; what stands on the command line wins over the file",
        ),
    )


def test_served_names_are_written_on_every_serving_rank_and_on_no_other() -> None:
    local = {"model": "/models/llama-3", "tensor_parallel_size": 2}
    (server,), (worker,) = commands(local, nodes(1, 1))
    assert server.argv[-2:] == ("--served-model-name", "/models/llama-3")
    assert "--served-model-name" not in worker.argv
    external = {"data_parallel_size": 2, "data_parallel_mode": "external", "served_model_name": ["a", "b"]}
    assert [ran.argv[-3:] for ran in started(external, nodes(1, 1))] == [
        ("--served-model-name", "a", "b")
    ] * 2


@pytest.mark.parametrize("args", [["--enforce-eager"], ["--config-format", "hf"], ["--port", "9000"]])
def test_no_flag_in_args_is_taken_for_one_of_the_builders_own(args: list[str]) -> None:
    assert only_command({"args": args}).argv[-len(args) :] == tuple(args)


def test_no_shape_combines_what_vllm_refuses_to_combine() -> None:
    gpus: tuple[tuple[int, ...], ...] = ((8,), (8, 8), (4, 4, 4, 4), (2,) * 8)
    modes = ("internal", "hybrid", "external")
    built = 0
    for launch_mode, mode, machines, tensor, data in product(
        ("mp", "ray"), modes, gpus, (1, 8, 16), (1, 2, 16)
    ):
        profile = {"tensor_parallel_size": tensor, "data_parallel_size": data, "data_parallel_mode": mode}
        try:
            plan = planned(profile, nodes(*machines), launch_mode=launch_mode)
        except LaunchError:
            continue
        built += 1
        for command in (command for machine in plan.nodes for command in machine.commands):
            flags = {item for item in command.args if isinstance(item, str) and item.startswith("--")}
            spans, headless = "--nnodes" in flags, "--headless" in flags
            assert not {"--data-parallel-hybrid-lb", "--data-parallel-external-lb"} <= flags
            assert not (headless and "--data-parallel-hybrid-lb" in flags)
            assert not (spans and "--data-parallel-backend" in flags)
            assert not (spans and "ray" in command.args)
            assert not (headless and "--api-server-count" in flags)
            assert tensor * data % len(machines) == 0 or not spans
            if "--data-parallel-hybrid-lb" in flags:
                assert "--data-parallel-size-local" in flags
    assert built > 10


def test_the_executor_is_named_when_the_world_is_larger_than_the_node() -> None:
    for launch_mode, backend in (("mp", "mp"), ("ray", "ray")):
        ran = started({"tensor_parallel_size": 2}, nodes(1, 1), launch_mode=launch_mode)
        named = [
            one.argv[one.argv.index("--distributed-executor-backend") + 1]
            for one in ran
            if one.argv[0] == "vllm"
        ]
        assert set(named) == {backend}


def test_whoever_needs_the_ray_head_waits_for_its_own_port_and_not_for_the_model() -> None:
    (head, server), (join,) = commands({"tensor_parallel_size": 2}, nodes(1, 1), launch_mode="ray")
    wait = Wait(address=SocketAddress("10.0.0.1", 6379), timeout=600.0)
    assert head.ready == TCPReady(address=SocketAddress("10.0.0.1", 6379), timeout=600.0)
    assert (head.waits_for, server.waits_for, join.waits_for) == ((), (wait,), (wait,))


def test_visible_gpus_stand_with_ray_start_and_not_with_the_server() -> None:
    ran = started({"tensor_parallel_size": 4}, nodes([5, 6], [5, 6]), launch_mode="ray")
    visible = {"CUDA_VISIBLE_DEVICES": "5,6", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [one.env for one in ran] == [
        {"VLLM_HOST_IP": "10.0.0.1", **visible},
        {"RAY_ADDRESS": "10.0.0.1:6379"},
        {"VLLM_HOST_IP": "10.0.0.2", **visible},
    ]
    assert [one.argv[-2:] for one in (ran[0], ran[2])] == [("--num-gpus", "2")] * 2


def test_an_interface_is_exact_for_nccl_and_plain_for_the_others() -> None:
    ran = started({"tensor_parallel_size": 2}, nodes(1, 1, interface="eth0"))
    names = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    assert [[one.env[name] for name in names] for one in ran] == [["eth0", "eth0", "=eth0"]] * 2
