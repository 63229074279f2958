"""What processes find in their environment: addresses, interfaces, visible GPUs, secrets."""

from __future__ import annotations

from typing import Any

import pytest
from plans import (
    commands,
    deployment,
    error,
    found,
    info,
    nodes,
    only_command,
    planned,
    refused,
    started,
    warning,
)
from pydantic import SecretStr, ValidationError

from enginelaunch.command import EnvironmentSecret, FileSecret, LiteralSecret

TWO = {"tensor_parallel_size": 2}

UUID = "GPU-2f1b4d3c-0a9b-4c5d-8e7f-001122334455"
OTHER_UUID = "GPU-2f1b4d3c-0a9b-4c5d-8e7f-001122334466"
MIG = "MIG-9c5d2f1b-0a9b-4c5d-8e7f-001122334455"
OLD_MIG = "MIG-GPU-2f1b4d3c-0a9b-4c5d-8e7f-001122334455/7/0"


@pytest.mark.parametrize(
    ("machine", "env"),
    [
        ({}, {}),
        ({"address": "10.0.0.1"}, {"VLLM_HOST_IP": "10.0.0.1"}),
        ({"address": "[fd00::1]", "http_host": "::"}, {"VLLM_HOST_IP": "fd00::1"}),
        ({"address": "node-0"}, {"VLLM_HOST_IP": "node-0"}),
        (
            {"interface": "bond0.100"},
            {
                "GLOO_SOCKET_IFNAME": "bond0.100",
                "TP_SOCKET_IFNAME": "bond0.100",
                "NCCL_SOCKET_IFNAME": "=bond0.100",
            },
        ),
        (
            {"interface": "eth0,eth1"},
            {
                "GLOO_SOCKET_IFNAME": "eth0,eth1",
                "TP_SOCKET_IFNAME": "eth0,eth1",
                "NCCL_SOCKET_IFNAME": "=eth0,eth1",
            },
        ),
    ],
)
def test_address_and_interface(machine: dict[str, Any], env: dict[str, str]) -> None:
    assert only_command({}, [machine]).env == env


def test_every_node_has_its_own_address_and_interface() -> None:
    machines = nodes(1, 1)
    machines[0]["interface"], machines[1]["interface"] = "eno1", "eth0"
    assert [ran.env for ran in started(TWO, machines)] == [
        {
            "VLLM_HOST_IP": "10.0.0.1",
            "GLOO_SOCKET_IFNAME": "eno1",
            "TP_SOCKET_IFNAME": "eno1",
            "NCCL_SOCKET_IFNAME": "=eno1",
        },
        {
            "VLLM_HOST_IP": "10.0.0.2",
            "GLOO_SOCKET_IFNAME": "eth0",
            "TP_SOCKET_IFNAME": "eth0",
            "NCCL_SOCKET_IFNAME": "=eth0",
        },
    ]


@pytest.mark.parametrize(
    ("platform", "version", "gpus", "env"),
    [
        ("cuda", "0.8.5", [0, 1], {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ("cuda", "0.32.0", ["7", 3], {"CUDA_VISIBLE_DEVICES": "7,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ("cuda", "0.24.0", [UUID, OTHER_UUID], {"CUDA_VISIBLE_DEVICES": f"{UUID},{OTHER_UUID}"}),
        (
            "cuda",
            "0.32.0",
            [UUID, 1],
            {"CUDA_VISIBLE_DEVICES": f"{UUID},1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        ),
        ("rocm", "0.8.5", [0, 1], {"HIP_VISIBLE_DEVICES": "0,1"}),
        ("rocm", "0.33.0", [2, 3], {"HIP_VISIBLE_DEVICES": "2,3"}),
        ("xpu", "0.10.0", [0, 1], {"ONEAPI_DEVICE_SELECTOR": "level_zero:0,1"}),
        ("xpu", "0.10.1", [0, 1], {"ZE_AFFINITY_MASK": "0,1"}),
        ("xpu", "0.33.0", [4, 5], {"ZE_AFFINITY_MASK": "4,5"}),
    ],
)
def test_gpu_ids_set_the_platforms_own_variable(
    platform: str, version: str, gpus: list[Any], env: dict[str, str]
) -> None:
    assert only_command(TWO, [{"gpus": gpus}], version, platform=platform).env == env


@pytest.mark.parametrize(
    "gpus",
    [2, "2 x H100", "2 \N{MULTIPLICATION SIGN} NVIDIA H100 80GB", [{"name": "H100"}, {"name": "H100"}]],
)
@pytest.mark.parametrize("platform", ["cuda", "rocm", "xpu"])
def test_a_count_of_gpus_sets_no_variable(gpus: Any, platform: str) -> None:
    assert only_command(TWO, [{"gpus": gpus}], platform=platform).env == {}


def test_processors_have_no_visible_gpus() -> None:
    assert only_command(TWO, platform="cpu").env == {}


def test_gpus_of_the_cpu_platform_are_refused() -> None:
    assert refused(TWO, [{"gpus": 2}], platform="cpu") == (
        error("gpu-id", "nodes[0].gpus", "platform cpu has no GPUs, but 2 are given", "leave gpus out"),
    )


@pytest.mark.parametrize("version", ["0.8.5", "0.23.0"])
@pytest.mark.parametrize("gpu", [UUID, MIG, OLD_MIG, "GPU-2f1b4d3c"])
def test_older_releases_take_indices_only(version: str, gpu: str) -> None:
    assert refused({}, [{"gpus": [gpu]}], version) == (
        error(
            "gpu-id",
            "nodes[0].gpus",
            f"GPU {gpu!r}: vLLM {version} takes indices only",
            "give indices, or use 0.24.0 or newer, which takes full UUIDs",
        ),
    )


@pytest.mark.parametrize("gpu", ["GPU-2f1b4d3c", UUID[:-1], "cuda:0", "0.1", "H100"])
def test_newer_releases_find_gpus_by_index_or_full_uuid(gpu: str) -> None:
    assert refused({}, [{"gpus": [gpu]}], "0.24.0") == (
        error(
            "gpu-id",
            "nodes[0].gpus",
            f"GPU {gpu!r} is no index and no full UUID, and vLLM finds no GPU by anything else",
            "give an index, or GPU- and the whole UUID as `nvidia-smi -L` shows it",
        ),
    )


@pytest.mark.parametrize("gpu", [MIG, OLD_MIG])
def test_a_mig_slice_is_taken_with_a_warning(gpu: str) -> None:
    assert only_command({}, [{"gpus": [gpu]}]).env == {"CUDA_VISIBLE_DEVICES": gpu}
    assert found({}, [{"gpus": [gpu]}]) == (
        warning(
            "gpu-id",
            "nodes[0].gpus",
            f"GPU {gpu!r}: vLLM looks at the parent GPU for capability, name and memory",
            "set --max-num-batched-tokens and --max-num-seqs in args",
        ),
    )


def test_a_replica_over_several_mig_slices_is_refused() -> None:
    # CUDA shows one MIG device to a process.
    assert refused(TWO, [{"gpus": [MIG, OLD_MIG]}]) == (
        error(
            "gpu-id",
            "nodes[0].gpus",
            "a replica over 2 GPUs cannot use MIG slices: CUDA shows one of them to a process",
            "use whole GPUs, or sizes of 1 and one slice",
        ),
    )


@pytest.mark.parametrize("platform", ["rocm", "xpu"])
@pytest.mark.parametrize("gpu", [UUID, "0.1", MIG])
def test_other_platforms_take_indices_only(platform: str, gpu: str) -> None:
    assert refused({}, [{"gpus": [gpu]}], platform=platform) == (
        error(
            "gpu-id",
            "nodes[0].gpus",
            f"GPU {gpu!r}: vLLM takes indices on {platform}",
            "give it as 0, 1, …",
        ),
    )


def test_a_bad_gpu_is_named_on_its_node() -> None:
    errors = refused(TWO, nodes([0], ["cuda:0"]))
    assert [f.where for f in errors] == ["nodes[1].gpus"]


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ([0, "0"], "GPU '0' is there twice"),
        ([0, -1], "an index is 0 or more, not -1"),
        (["0,1"], "an id is one index, UUID or MIG id, not '0,1'"),
        ([""], "an id is one index, UUID or MIG id, not ''"),
        ([True], "an id is an index, a UUID or a MIG id, not True"),
        ([1.5], "an id is an index, a UUID or a MIG id, not 1.5"),
        ([0, {"name": "H100"}], "give every GPU of a node an id, or none"),
        (-1, "the number of GPUs must be from 0 to 1024, not -1"),
        ("eight", "give a count, a list of ids, or a count and a model like '8 x H100', not 'eight'"),
        (2.0, "give a count, a list of ids, or a count and a model like '8 x H100', not 2.0"),
        (True, "give a count, a list of ids, or a count and a model like '8 x H100', not True"),
    ],
)
def test_bad_gpus_are_explained(gpus: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        deployment({}, [{"gpus": gpus}])
    assert [entry["msg"] for entry in caught.value.errors()] == [message]


@pytest.mark.parametrize("machines", [nodes(1, 1), nodes(2)], ids=["several nodes", "one node"])
@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("VLLM_HOST_IP", "it is each node's own address"),
        ("HOST_IP", "it is each node's own address"),
        ("VLLM_DP_RANK", "it differs from rank to rank"),
        ("VLLM_DP_RANK_LOCAL", "it differs from rank to rank"),
        ("VLLM_DP_SIZE", "it follows from data_parallel_size"),
        ("VLLM_DP_MASTER_IP", "it follows from the nodes"),
        ("VLLM_DP_MASTER_PORT", "it follows from the nodes"),
        ("RANK", "it differs from rank to rank"),
        ("LOCAL_RANK", "it differs from rank to rank"),
        ("NODE_RANK", "it differs from node to node"),
        ("RAY_ADDRESS", "it is the address of the first node"),
        ("RAY_AUTH_MODE", "set cluster_token"),
    ],
)
def test_variables_that_make_nodes_disagree_are_refused(machines: Any, variable: str, why: str) -> None:
    assert refused({**TWO, "env": {variable: "1"}}, machines) == (
        error(
            "refused-variable",
            f"profile.env.{variable}",
            f"{variable} cannot stand in env, which is the same on every node: {why}",
            "leave it out",
        ),
    )


def test_a_refused_variable_is_refused_as_a_reference_too() -> None:
    errors = refused({"env": {"RAY_AUTH_TOKEN": {"env": "TOKEN"}, "VLLM_HOST_IP": {"file": "/ip"}}})
    assert [f.where for f in errors] == ["profile.env.RAY_AUTH_TOKEN", "profile.env.VLLM_HOST_IP"]


@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"])
def test_servers_of_one_node_would_share_gpus_that_the_profile_makes_visible(variable: str) -> None:
    platform = {"CUDA": "cuda", "HIP": "rocm", "ZE": "xpu"}[variable.partition("_")[0]]
    profile = {"data_parallel_size": 2, "data_parallel_mode": "external", "env": {variable: "0,1"}}
    assert refused(profile, nodes(2), platform=platform) == (
        error(
            "refused-variable",
            f"profile.env.{variable}",
            f"{variable} in env gives 2 servers of one node the same GPUs",
            "leave it out, and list the ids in nodes[].gpus",
        ),
    )


def test_the_profile_environment_has_the_last_word() -> None:
    env = {
        "NCCL_SOCKET_IFNAME": "ib0,ib1",
        "CUDA_VISIBLE_DEVICES": "3,4",
        "EMPTY": "",
        "QUOTED": "a 'b' $c\n",
    }
    machines = [{"address": "10.0.0.1", "gpus": [0, 1], "interface": "eth0"}]
    assert only_command({**TWO, "env": env}, machines).env == {
        "VLLM_HOST_IP": "10.0.0.1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **env,
    }


def test_vllm_port_is_taken_on_one_node() -> None:
    command = only_command({"env": {"VLLM_PORT": "20000"}})
    assert command.env == {"VLLM_PORT": "20000"}
    assert command.clear_env == ("VLLM_PORT", "VLLM_DP_")


@pytest.mark.parametrize(
    ("machines", "port", "args", "message"),
    [
        (
            nodes(1, 1),
            "20000",
            [],
            "VLLM_PORT is a base for internal ports, and nodes that share one collide on it",
        ),
        (nodes(2), "8000", [], "VLLM_PORT is a base for internal ports, and 8000 is the server's own port"),
        (
            nodes(2),
            "9000",
            ["--port", "9000"],
            "VLLM_PORT is a base for internal ports, and 9000 is the server's own port",
        ),
        (
            nodes(2),
            "tcp://10.0.0.9:80",
            [],
            "VLLM_PORT must be a number from 1 to 65535, not 'tcp://10.0.0.9:80'",
        ),
        (nodes(2), "", [], "VLLM_PORT must be a number from 1 to 65535, not ''"),
        (nodes(2), "-1", [], "VLLM_PORT must be a number from 1 to 65535, not '-1'"),
    ],
)
def test_vllm_port_that_would_break_the_engine_is_refused(
    machines: Any, port: str, args: list[str], message: str
) -> None:
    profile = {**TWO, "env": {"VLLM_PORT": port}, "args": args}
    assert refused(profile, machines) == (
        error(
            "refused-variable",
            "profile.env.VLLM_PORT",
            message,
            "leave it out; the server's port is http_port",
        ),
    )


def test_vllm_port_is_not_that_of_a_further_server_of_the_node() -> None:
    profile = {"data_parallel_size": 2, "data_parallel_mode": "external", "env": {"VLLM_PORT": "8001"}}
    assert refused(profile, nodes(2)) == (
        error(
            "refused-variable",
            "profile.env.VLLM_PORT",
            "VLLM_PORT is a base for internal ports, and 8001 is the server's own port",
            "leave it out; the server's port is http_port",
        ),
    )


@pytest.mark.parametrize("launch_mode", ["mp", "ray"])
def test_what_a_service_or_an_older_process_left_behind_is_not_inherited(launch_mode: str) -> None:
    for machine in commands(TWO, nodes(1, 1), launch_mode=launch_mode):
        for command in machine:
            assert command.clear_env[:2] == ("VLLM_PORT", "VLLM_DP_")


def test_secrets_are_references_on_every_rank_and_the_key_on_servers_alone() -> None:
    profile = {**TWO, "env": {"HF_TOKEN": {"env": "MY_HF"}, "WANDB_API_KEY": {"file": "/run/wandb"}}}
    given = {"HF_TOKEN": EnvironmentSecret("MY_HF"), "WANDB_API_KEY": FileSecret("/run/wandb")}
    (server,), (worker,) = commands(profile, nodes(1, 1), api_key={"file": "/run/key"})
    assert server.secret_env == {**given, "VLLM_API_KEY": FileSecret("/run/key")}
    assert worker.secret_env == given


def test_a_secret_that_code_hands_in_is_shown_nowhere() -> None:
    plan = planned(
        {**TWO, "env": {"HF_TOKEN": SecretStr("hunter2")}},
        nodes(1, 1),
        launch_mode="ray",
        api_key=SecretStr("hunter2"),
        cluster_token=SecretStr("hunter2"),
    )
    assert plan.nodes[0].commands[1].secret_env["VLLM_API_KEY"] == LiteralSecret("hunter2")
    assert "hunter2" not in repr(plan)
    assert "hunter2" not in str(plan.as_dict())
    assert "hunter2" not in repr(plan.nodes[0].shard.model_dump())
    assert "hunter2" not in plan.nodes[0].shard.model_dump_json()


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"api_key": "hunter2"}, "api_key"),
        ({"api_key": {"value": "hunter2"}}, "api_key"),
        ({"api_key": ["hunter2"]}, "api_key"),
        ({"cluster_token": "hunter2"}, "cluster_token"),
        ({"profile": {"model": "m", "env": {"HF_TOKEN": "hunter2"}}}, "profile.env"),
        ({"profile": {"model": "m", "env": {"DB_PASSWORD": "hunter2"}}}, "profile.env"),
        ({"profile": {"model": "m", "args": ["--api-key", "hunter2"]}}, "profile.args"),
        ({"profile": {"model": "m", "args": ["--api_key=hunter2"]}}, "profile.args"),
        ({"profile": {"model": "m", "args": ["--hf-token", "hunter2"]}}, "profile.args"),
    ],
)
def test_a_literal_secret_is_refused_and_not_repeated(keys: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        deployment(**{"profile": {"model": "m"}, **keys})
    assert [".".join(map(str, entry["loc"])) for entry in caught.value.errors()] == [where]
    assert "{env: NAME}" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.errors())


@pytest.mark.parametrize("args", [["--api-k", "hunter2"], ["--api-ke=hunter2"], ["--hf-tok", "hunter2"]])
def test_a_literal_secret_behind_an_abbreviation_is_refused_and_not_repeated(args: list[str]) -> None:
    (finding,) = refused({"args": args})
    name = "--api-key" if args[0].startswith("--api") else "--hf-token"
    assert finding == error(
        "secret-in-arguments",
        "profile.args[0]",
        f"{name} would show a secret to everyone who can list processes",
        "use api_key for the server's key, and profile.env with {env: NAME} for others",
    )


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"A": 1}, 'A must be text, not the number 1; write "1"'),
        ({"A": True}, "A must be text in quotes, as the program will see it, not True"),
        ({"A": None}, "A must be text in quotes, as the program will see it, not None"),
        ({"A": ["x"]}, "A must be text or a reference to a secret, not ['x']"),
        ({"A=B": "x"}, "must be the name of an environment variable, not 'A=B'"),
        ({"": "x"}, "must be the name of an environment variable, not ''"),
    ],
)
def test_bad_variables_are_explained(env: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        deployment({"env": env})
    assert [entry["msg"] for entry in caught.value.errors()] == [message]


def test_a_nul_byte_in_a_variable_is_an_error() -> None:
    with pytest.raises(ValidationError, match="must not hold a NUL byte"):
        deployment({"env": {"A": "x\0y"}})


def test_findings_of_a_node_are_said_once_and_of_the_profile_once() -> None:
    profile = {**TWO, "args": ["--served-model-name", "x"]}
    assert found(profile, nodes(1, 1)) == (
        info(
            "override",
            "profile.args[0]",
            "args replace --served-model-name m with --served-model-name x",
        ),
    )


def test_what_the_profile_environment_replaces_is_said() -> None:
    profile = {
        "kv_events": {"hash_seed": "5"},
        "env": {"PYTHONHASHSEED": "7", "CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    }
    assert [(finding.severity, finding.where, finding.message) for finding in found(profile, nodes([0]))] == [
        ("warning", "profile.env.PYTHONHASHSEED", "env replaces PYTHONHASHSEED=5 with 7"),
        ("warning", "profile.env.CUDA_VISIBLE_DEVICES", "env replaces CUDA_VISIBLE_DEVICES=0 with 1"),
    ]


def test_what_is_for_a_ray_cluster_alone_is_said_to_have_no_effect_without_one() -> None:
    keys: dict[str, Any] = {"cluster_token": {"env": "T"}, "ports": {"ray": {"node_manager": 6380}}}
    assert [(finding.severity, finding.where) for finding in found({}, nodes(1), **keys)] == [
        ("warning", "cluster_token"),
        ("info", "ports.ray"),
    ]


def test_a_key_that_is_given_twice_is_refused() -> None:
    profile = {"env": {"VLLM_API_KEY": {"env": "ONE"}}}
    (finding,) = refused(profile, nodes(1), api_key={"env": "OTHER"})
    assert (finding.code, finding.where) == ("refused-variable", "profile.env.VLLM_API_KEY")


def test_a_secret_variable_takes_the_place_of_a_built_one() -> None:
    profile = {"kv_events": {}, "env": {"PYTHONHASHSEED": {"env": "SEED"}}}
    command = only_command(profile)
    assert "PYTHONHASHSEED" not in command.env
    assert dict(command.secret_env) == {"PYTHONHASHSEED": EnvironmentSecret("SEED")}


def test_the_servers_key_in_the_profile_environment_reaches_servers_alone() -> None:
    profile = {"tensor_parallel_size": 16, "env": {"VLLM_API_KEY": {"env": "KEY"}}}
    plan = planned(profile, nodes(8, 8))
    assert [list(node.commands[0].secret_env) for node in plan.nodes] == [["VLLM_API_KEY"], []]
