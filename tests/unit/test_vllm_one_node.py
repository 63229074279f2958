"""What runs when there is one node."""

from __future__ import annotations

from typing import Any

import pytest
from plans import commands, error, found, info, node, nodes, only_command, planned, refused, started, words

from enginelaunch import Command
from enginelaunch.command import (
    EnvironmentSecret,
    Exits,
    HTTPReady,
    ListeningPort,
    OwnAddress,
    SocketAddress,
    Stop,
    StopSignal,
    joined,
)
from enginelaunch.engine import Endpoint


def test_a_model_alone_is_a_whole_command() -> None:
    assert only_command() == Command(
        name="server",
        path="vllm",
        args=words("serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --served-model-name m"),
        clear_env=("VLLM_PORT", "VLLM_DP_"),
        role="serves",
        ready=HTTPReady(address=SocketAddress("127.0.0.1", 8000), path="/health", timeout=3600.0),
        ports=(ListeningPort(name="http", base=8000),),
        stop=Stop(
            signals=(StopSignal("SIGTERM", 30.0), StopSignal("SIGTERM", 15.0), StopSignal("SIGKILL", 5.0))
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
    )


@pytest.mark.parametrize(
    ("profile", "machine", "argv"),
    [
        (
            {"tensor_parallel_size": 8},
            node(0, 8),
            "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 8 --served-model-name m",
        ),
        (
            {"tensor_parallel_size": 4, "pipeline_parallel_size": 2},
            node(0, 8),
            "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 4 --pipeline-parallel-size 2 "
            "--served-model-name m",
        ),
        (
            {"tensor_parallel_size": 2, "data_parallel_size": 4, "enable_expert_parallel": True},
            node(0, 8),
            "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 2 --enable-expert-parallel "
            "--data-parallel-size 4 --served-model-name m",
        ),
        (
            {"tensor_parallel_size": 4, "prefill_context_parallel_size": 2},
            node(0, 8),
            "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 4 "
            "--prefill-context-parallel-size 2 --served-model-name m",
        ),
        (
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 4},
            node(0, 8),
            "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 8 "
            "--decode-context-parallel-size 4 --served-model-name m",
        ),
        (
            {"served_model_name": ["first", "second"]},
            node(0, 1, http_host="::", http_port=9000),
            "vllm serve m --host :: --port 9000 --tensor-parallel-size 1 --served-model-name first second",
        ),
        (
            {"served_model_name": "one"},
            node(0, 1, http_host="[fd00::5]"),
            "vllm serve m --host fd00::5 --port 8000 --tensor-parallel-size 1 --served-model-name one",
        ),
        (
            {"args": ["--max-model-len", "32768", "--enforce-eager"]},
            node(0, 1),
            "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --served-model-name m "
            "--max-model-len 32768 --enforce-eager",
        ),
    ],
)
def test_sizes_and_names_become_arguments(
    profile: dict[str, Any], machine: dict[str, Any], argv: str
) -> None:
    assert started(profile, [machine]) == [(0, "server", words(argv), {"VLLM_HOST_IP": "10.0.0.1"})]


@pytest.mark.parametrize(
    ("http_host", "asked", "reached"),
    [
        ("0.0.0.0", "127.0.0.1", "10.0.0.1"),
        ("::", "::1", "10.0.0.1"),
        ("10.0.0.9", "10.0.0.9", "10.0.0.9"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost", "localhost"),
        ("[fd00::1]", "fd00::1", "fd00::1"),
    ],
)
def test_a_server_is_asked_where_it_listens(http_host: str, asked: str, reached: str) -> None:
    (planned_node,) = planned({}, [node(0, http_host=http_host)]).nodes
    ready = planned_node.commands[0].ready
    assert ready == HTTPReady(address=SocketAddress(asked, 8000), path="/health", timeout=3600.0)
    assert planned_node.endpoints == (Endpoint(command="server", host=reached, port=8000),)


def test_the_address_of_an_unnamed_node_stays_open() -> None:
    (planned_node,) = planned().nodes
    assert planned_node.address is None
    assert planned_node.endpoints == (Endpoint(command="server", host=OwnAddress(), port=8000),)
    assert planned_node.endpoints[0].url == joined("http://", OwnAddress(in_url=True), ":8000")


def test_a_model_with_every_kind_of_character_is_one_argument() -> None:
    model = '/models/it\'s "quoted" $HOME `x`\n\t%s naïve 模型 🦙'
    command = only_command({"model": model})
    assert command.argv == (
        *("vllm", "serve", model, "--host", "0.0.0.0", "--port", "8000"),
        *("--tensor-parallel-size", "1", "--served-model-name", model),
    )


def test_external_data_parallel_on_one_node_is_a_server_for_each_replica() -> None:
    argv = (
        "vllm serve m --host 0.0.0.0 --port {port} --tensor-parallel-size 2 --data-parallel-size 2 "
        "--data-parallel-rank {rank} --data-parallel-external-lb --data-parallel-address 10.0.0.1 "
        "--data-parallel-rpc-port 29550 --served-model-name m"
    )
    profile = {"tensor_parallel_size": 2, "data_parallel_size": 2, "data_parallel_mode": "external"}
    assert started(profile, nodes([4, 5, 6, 7])) == [
        (
            0,
            f"server-{rank}",
            words(argv.format(port=8000 + rank, rank=rank)),
            {"VLLM_HOST_IP": "10.0.0.1", "CUDA_VISIBLE_DEVICES": ids, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        )
        for rank, ids in enumerate(("4,5", "6,7"))
    ]
    (planned_node,) = planned(profile, nodes([4, 5, 6, 7])).nodes
    assert planned_node.endpoints == (
        Endpoint(command="server-0", host="10.0.0.1", port=8000, data_parallel_ranks=(0, 0)),
        Endpoint(command="server-1", host="10.0.0.1", port=8001, data_parallel_ranks=(1, 1)),
    )


def test_servers_of_one_node_share_counted_gpus_in_order() -> None:
    profile = {"data_parallel_size": 3, "data_parallel_mode": "external"}
    assert [dict(command.env) for command in commands(profile, [{"gpus": 3}])[0]] == [
        {"CUDA_VISIBLE_DEVICES": str(rank), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} for rank in range(3)
    ]


def test_hybrid_on_one_node_is_said_to_be_internal() -> None:
    plan = planned({"data_parallel_size": 2, "data_parallel_mode": "hybrid"}, [{"gpus": 2}])
    assert plan.nodes[0].commands[0].argv == words(
        "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --data-parallel-size 2 "
        "--data-parallel-size-local 2 --data-parallel-start-rank 0 --data-parallel-hybrid-lb "
        "--served-model-name m"
    )
    assert plan.findings == (
        info(
            "hybrid-is-another-mode",
            "profile.data_parallel_mode",
            "there is one node, so vLLM treats hybrid load balancing as internal",
            "data_parallel_mode: internal says the same",
        ),
    )


@pytest.mark.parametrize("mode", ["internal", "hybrid", "external"])
def test_one_replica_needs_no_data_parallel_flags_in_any_mode(mode: str) -> None:
    assert started({"data_parallel_mode": mode}) == started()


def test_keys_go_by_reference_to_the_server() -> None:
    command = only_command(
        {"env": {"HF_TOKEN": {"file": "/run/hf"}, "HF_HOME": "/cache"}}, api_key={"env": "SERVER_KEY"}
    )
    assert command.env == {"HF_HOME": "/cache"}
    assert command.secret_env == {
        "HF_TOKEN": command.secret_env["HF_TOKEN"],
        "VLLM_API_KEY": EnvironmentSecret("SERVER_KEY"),
    }
    assert command.secret_env["HF_TOKEN"].as_dict() == {"file": "/run/hf"}
    assert not any("KEY" in str(item) for item in command.argv)


@pytest.mark.parametrize(
    ("profile", "gpus", "message", "hint"),
    [
        (
            {"tensor_parallel_size": 4},
            8,
            "tensor_parallel_size 4: that makes 4 GPUs, but the nodes have 8",
            "use data_parallel_size 2, or tensor_parallel_size 8, or pipeline_parallel_size 2, "
            "or give 4 GPUs",
        ),
        (
            {"tensor_parallel_size": 3, "data_parallel_size": 2},
            8,
            "tensor_parallel_size 3 x data_parallel_size 2: that makes 6 GPUs, but the nodes have 8",
            "use tensor_parallel_size 4, or give 6 GPUs",
        ),
        (
            {"tensor_parallel_size": 8},
            0,
            "tensor_parallel_size 8: that makes 8 GPUs, but the nodes have 0",
            "give 8 GPUs",
        ),
        (
            {"tensor_parallel_size": 2, "prefill_context_parallel_size": 2},
            2,
            "tensor_parallel_size 2 x prefill_context_parallel_size 2: that makes 4 GPUs, "
            "but the nodes have 2",
            "use tensor_parallel_size 1, or give 4 GPUs",
        ),
        ({}, 2, "every size is 1: that makes 1 GPU, but the nodes have 2", None),
    ],
)
def test_sizes_that_are_not_the_gpus_are_refused_with_sizes_that_are(
    profile: dict[str, Any], gpus: int, message: str, hint: str | None
) -> None:
    if hint is None:
        hint = (
            "use data_parallel_size 2, or tensor_parallel_size 2, or pipeline_parallel_size 2, or give 1 GPU"
        )
    assert refused(profile, [{"gpus": gpus}]) == (error("impossible-layout", "profile", message, hint),)


def test_decode_context_parallel_divides_the_tensor_parallel_size() -> None:
    profile = {"tensor_parallel_size": 8, "decode_context_parallel_size": 3}
    assert refused(profile, [{"gpus": 8}]) == (
        error(
            "bad-value",
            "profile.decode_context_parallel_size",
            "decode_context_parallel_size 3 must divide tensor_parallel_size 8",
            "use one of 1, 2, 4, 8",
        ),
    )


@pytest.mark.parametrize(
    ("version", "decode", "message"),
    [
        ("0.25.1", 4, "decode_context_parallel_size 4 must divide tensor_parallel_size 2"),
        (
            "0.32.0",
            4,
            "decode_context_parallel_size 4 must be 1, prefill_context_parallel_size 8, "
            "or that times tensor_parallel_size 2",
        ),
        ("0.32.0", 8, None),
        ("0.32.0", 16, None),
    ],
)
def test_decode_context_spans_prefill_context_from_the_release_on_that_lets_it(
    version: str, decode: int, message: str | None
) -> None:
    profile = {
        "tensor_parallel_size": 2,
        "prefill_context_parallel_size": 8,
        "decode_context_parallel_size": decode,
    }
    if message is None:
        assert found(profile, nodes(16), version=version) == ()
    else:
        assert [finding.message for finding in refused(profile, nodes(16), version=version)] == [message]
