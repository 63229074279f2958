"""The operator's own arguments: they win, they are said to, and some are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plans import (
    commands,
    deployment,
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
from pydantic import ValidationError

from enginelaunch.command import HTTPReady, ListeningPort, SocketAddress
from enginelaunch.engine import Endpoint

BUILT = {
    "host": "--host 0.0.0.0",
    "port": "--port 8000",
    "tensor": "--tensor-parallel-size 1",
    "name": "--served-model-name m",
}


def argv_with(args: list[str], *without: str) -> tuple[str, ...]:
    """The command of the model alone, without what args replace, and with args last."""
    built = " ".join(text for key, text in BUILT.items() if key not in without)
    return (*words(f"vllm serve m {built}"), *args)


def override(built: str, args: list[str], place: int = 0) -> Any:
    return info("override", f"profile.args[{place}]", f"args replace {built} with {' '.join(args)}")


@pytest.mark.parametrize(
    ("args", "replaced"),
    [
        (["--port", "9000"], "port"),
        (["--port=9000"], "port"),
        (["--por", "9000"], "port"),
        (["--host", "::"], "host"),
        (["--served-model-name", "a", "b", "c"], "name"),
        (["--served_model_name", "a"], "name"),
        (["--served-model-name=a"], "name"),
        (["--served-model-n", "a"], "name"),
        (["-tp", "1"], "tensor"),
        (["-tp=1"], "tensor"),
        (["--tensor-parallel-size", "1"], "tensor"),
        (["--tensor_parallel_size", "1"], "tensor"),
        (["--tensor_parallel-size=1"], "tensor"),
        (["--tensor-parallel-s=1"], "tensor"),
    ],
)
def test_args_replace_what_is_built_in_every_spelling(args: list[str], replaced: str) -> None:
    assert only_command({"args": args}).argv == argv_with(args, replaced)
    assert found({"args": args}) == (override(BUILT[replaced], args),)


def test_several_overrides_are_several_findings() -> None:
    args = ["--port", "9000", "-tp", "1", "--enforce-eager", "--served-model-name", "x", "y"]
    assert only_command({"args": args}).argv == argv_with(args, "port", "tensor", "name")
    assert found({"args": args}) == (
        override(BUILT["port"], args[:2]),
        override(BUILT["tensor"], args[2:4], 2),
        override(BUILT["name"], args[5:], 5),
    )


def test_a_switch_is_replaced_by_its_opposite() -> None:
    profile = {"enable_expert_parallel": True, "tensor_parallel_size": 2}
    args = ["--no-enable-expert-parallel"]
    assert only_command({**profile, "args": args}).argv == words(
        "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 2 --served-model-name m "
        "--no-enable-expert-parallel"
    )
    assert found({**profile, "args": args}) == (override("--enable-expert-parallel", args),)


@pytest.mark.parametrize("args", [["-ep"], ["--enable_expert_parallel"], ["--disable-expert-parallel"]])
def test_a_switch_is_replaced_by_its_other_spellings(args: list[str]) -> None:
    profile = {"enable_expert_parallel": True, "args": args}
    assert only_command(profile, version="0.33.0").argv == argv_with(args)


def test_dotted_keys_replace_the_whole_json_value_and_warn() -> None:
    config = '{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","publisher":"zmq"}'
    args = ["--kv-events-config.enable_kv_cache_events", "true", "--kv-events-config.topic", "t"]
    profile = {"kv_events": {}, "args": args}
    assert only_command(profile).argv == argv_with(["--prefix-caching-hash-algo", "sha256_cbor", *args])
    assert found(profile) == (
        warning(
            "override",
            "profile.args[2]",
            f"args replace --kv-events-config {config} with {' '.join(args)}, "
            "which leaves out endpoint, publisher",
            "args replace the whole JSON value: give all of its keys",
        ),
    )


def test_json_that_keeps_all_keys_is_an_override_and_no_warning() -> None:
    config = '{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","publisher":"zmq"}'
    given = '{"enable_kv_cache_events":true,"endpoint":"tcp://*:6000","publisher":"zmq"}'
    assert found({"kv_events": {}, "args": ["--kv-events-config", given]}) == (
        info(
            "override",
            "profile.args[0]",
            f"args replace --kv-events-config {config} with --kv-events-config {given}",
        ),
    )


def test_an_override_of_a_size_names_what_the_profile_states() -> None:
    profile = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "args": ["-tp", "4", "-pp=4"]}
    assert [finding.message for finding in found(profile, nodes(16))] == [
        "args replace --tensor-parallel-size 8 with -tp 4",
        "args replace --pipeline-parallel-size 2 with -pp=4",
    ]


@pytest.mark.parametrize(
    "args",
    [
        ["--kv-transfer-config", '{"kv_connector":"X","kv_connector_extra_config":{"api_key":"s3cret"}}'],
        ["--hf-overrides", '{"list":[{"token":"s3cret"}]}'],
        ["--hf-overrides.auth", '{"token":"s3cret"}'],
    ],
)
def test_a_secret_in_json_is_refused_and_not_repeated(args: list[str]) -> None:
    (finding,) = refused({"args": args})
    assert (finding.code, finding.where) == ("secret-in-arguments", "profile.args[0]")
    assert "s3cret" not in str(finding)


def test_a_refused_argument_is_no_override_besides() -> None:
    (finding,) = refused({"tensor_parallel_size": 16, "args": ["--node-rank", "0"]}, nodes(8, 8))
    assert finding.code == "refused-argument"


def test_json_in_args_is_one_item_with_its_spaces() -> None:
    config = '{"cudagraph_mode": "FULL_DECODE_ONLY", "custom_ops": ["+rms norm", "$x", "it\'s"]}'
    args = ["--compilation-config", config]
    command = only_command({"args": args})
    assert command.argv == argv_with(args)
    assert json.loads(str(command.argv[-1]))["custom_ops"] == ["+rms norm", "$x", "it's"]


def test_multi_value_flags_are_replaced_with_all_of_their_values() -> None:
    adapters = [{"name": "a", "path": "/a", "rank": 8}, {"name": "b", "path": "/b", "rank": 8}]
    args = ["--lora-modules", "c=/c", '{"name": "d", "path": "/d"}']
    profile = {"lora": {"adapters": adapters}, "args": args}
    assert only_command(profile).argv == (
        *words("vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --enable-lora"),
        *words("--max-lora-rank 8 --served-model-name m"),
        *args,
    )
    assert found(profile) == (override("--lora-modules a=/a b=/b", args),)


@pytest.mark.parametrize(
    "args",
    [
        ["--max-model-len", "4k", "--gpu-memory-utilization=0.85"],
        ["--max-model-len", "-1"],
        ["--max-model-len", "auto"],
        ["--limit-mm-per-prompt", '{"image": 2}'],
        ["--chat-template", "{% if a %} 'x' $y `z` \"q\"\n{% endif %}"],
        ["--override-generation-config", '{"temperature": 0.5}'],
        ["-O3"],
        ["-O", "2"],
        ["-cc.mode", "3", "-cc.custom_ops+", "+rms_norm,-silu"],
        ["--middleware", "a.B", "--middleware", "c.D"],
        ["--tokenizer", "/模型/naïve 🦙"],
        ["--allowed-origins", '["*"]'],
        ["--seed", "-1"],
    ],
)
def test_args_stand_last_as_they_were_written(args: list[str]) -> None:
    assert only_command({"args": args}).argv == argv_with(args)
    assert found({"args": args}) == ()


@pytest.mark.parametrize(
    ("args", "gpus", "sizes"),
    [
        (["-tp=4"], 4, "--served-model-name m -tp=4"),
        (["-tp", "2", "-pp", "2"], 4, "--served-model-name m -tp 2 -pp 2"),
        (
            ["--tensor-parallel-size", "8", "-tp", "4"],
            4,
            "--served-model-name m --tensor-parallel-size 8 -tp 4",
        ),
        (["-dp=4"], 4, "--tensor-parallel-size 1 --served-model-name m -dp=4"),
        (["-pcp", "2"], 2, "--tensor-parallel-size 1 --served-model-name m -pcp 2"),
        (["-tp", "4", "-dcp", "2"], 4, "--served-model-name m -tp 4 -dcp 2"),
    ],
)
def test_sizes_in_args_are_the_sizes_of_the_layout(args: list[str], gpus: int, sizes: str) -> None:
    assert only_command({"args": args}, [{"gpus": gpus}]).argv == words(
        f"vllm serve m --host 0.0.0.0 --port 8000 {sizes}"
    )


def test_sizes_in_args_decide_what_runs_on_which_node() -> None:
    profile = {"tensor_parallel_size": 8, "args": ["-tp", "16", "-dp=2"]}
    meeting = (
        "--distributed-executor-backend mp --nnodes 4 --node-rank {} "
        "--master-addr 10.0.0.1 --master-port 29501"
    )
    data = "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29550"
    assert [ran.argv for ran in started(profile, nodes(8, 8, 8, 8))] == [
        words(
            f"vllm serve m --host 0.0.0.0 --port 8000 {meeting.format(0)} {data} "
            "--served-model-name m -tp 16 -dp=2"
        ),
        *(words(f"vllm serve m {meeting.format(rank)} {data} --headless -tp 16 -dp=2") for rank in (1, 2, 3)),
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-tp", "8"], "tensor_parallel_size 8: that makes 8 GPUs, but the nodes have 4"),
        (
            ["-dp=8"],
            "tensor_parallel_size 4 x data_parallel_size 8: that makes 32 GPUs, but the nodes have 4",
        ),
    ],
)
def test_sizes_in_args_that_do_not_fit_are_refused(args: list[str], message: str) -> None:
    errors = refused({"tensor_parallel_size": 4, "args": args}, [{"gpus": 4}])
    assert [(f.code, f.where, f.message) for f in errors] == [("impossible-layout", "profile", message)]


def test_a_decode_context_size_in_args_has_to_divide_too() -> None:
    errors = refused({"tensor_parallel_size": 4, "args": ["-dcp", "3"]}, [{"gpus": 4}])
    assert [(f.code, f.message) for f in errors] == [
        ("bad-value", "decode_context_parallel_size 3 must divide tensor_parallel_size 4")
    ]


@pytest.mark.parametrize("flag", ["-tp", "-pp", "-dp", "-pcp", "-dcp"])
@pytest.mark.parametrize("size", ["0", "-2"])
def test_a_size_in_args_is_one_or_more(flag: str, size: str) -> None:
    name = {
        "-tp": "tensor",
        "-pp": "pipeline",
        "-dp": "data",
        "-pcp": "prefill-context",
        "-dcp": "decode-context",
    }
    assert refused({"args": [f"{flag}={size}"]}) == (
        error(
            "bad-value",
            "profile.args[0]",
            f"--{name[flag]}-parallel-size must be from 1 to 65536, not {size}",
        ),
    )


OWN = "it differs from node to node, and every node gets the same args"
LAYOUT = "the nodes would disagree if it did not follow from the nodes and sizes"


@pytest.mark.parametrize(
    ("name", "why", "hint", "spellings"),
    [
        (
            "--nnodes",
            LAYOUT,
            "list the nodes",
            [["--nnodes", "2"], ["--nnodes=2"], ["--nnod", "2"], ["-n", "2"], ["-n2"], ["-n=2"]],
        ),
        (
            "--node-rank",
            OWN,
            "list the nodes in the order of their ranks",
            [["--node-rank", "1"], ["--node_rank=1"], ["--node-r", "1"], ["-r", "1"], ["-r1"]],
        ),
        (
            "--master-addr",
            LAYOUT,
            "it is the address of the first node",
            [["--master-addr", "x"], ["--master_addr=x"], ["--master-a", "x"]],
        ),
        (
            "--master-port",
            LAYOUT,
            "set ports.leader",
            [["--master-port", "1"], ["--master_port=1"], ["--master-p", "1"]],
        ),
        ("--headless", OWN, "it follows from the node's rank", [["--headless"], ["--headl"]]),
        (
            "--distributed-executor-backend",
            LAYOUT,
            "set launch_mode",
            [
                ["--distributed-executor-backend", "ray"],
                ["--distributed_executor_backend=mp"],
                ["--distributed-e", "ray"],
            ],
        ),
        (
            "--data-parallel-size-local",
            LAYOUT,
            "it follows from the nodes and sizes",
            [
                ["--data-parallel-size-local", "1"],
                ["--data_parallel_size_local=1"],
                ["-dpl", "1"],
                ["-dpl=1"],
            ],
        ),
        (
            "--data-parallel-start-rank",
            LAYOUT,
            "it follows from the nodes and sizes",
            [["--data-parallel-start-rank", "0"], ["-dpr", "0"], ["--data-parallel-st=0"]],
        ),
        (
            "--data-parallel-rank",
            LAYOUT,
            "it follows from the nodes and sizes",
            [["--data-parallel-rank", "0"], ["-dpn=0"]],
        ),
        (
            "--data-parallel-address",
            LAYOUT,
            "it is the address of the first node",
            [["--data-parallel-address", "x"], ["-dpa", "x"]],
        ),
        (
            "--data-parallel-rpc-port",
            LAYOUT,
            "set ports.data_parallel_rpc",
            [["--data-parallel-rpc-port", "1"], ["-dpp=1"]],
        ),
        (
            "--data-parallel-backend",
            LAYOUT,
            "set launch_mode",
            [["--data-parallel-backend", "ray"], ["-dpb", "ray"]],
        ),
        (
            "--data-parallel-hybrid-lb",
            LAYOUT,
            "set profile.data_parallel_mode: hybrid",
            [
                ["--data-parallel-hybrid-lb"],
                ["-dph"],
                ["--no-data-parallel-hybrid-lb"],
                ["--data-parallel-h"],
            ],
        ),
        (
            "--data-parallel-external-lb",
            LAYOUT,
            "set profile.data_parallel_mode: external",
            [["--data-parallel-external-lb"], ["-dpe"], ["--no_data_parallel_external_lb"]],
        ),
        (
            "--data-parallel-multi-port-external-lb",
            LAYOUT,
            "set profile.data_parallel_mode: external",
            [["--data-parallel-multi-port-external-lb"], ["-dpm"]],
        ),
        (
            "--model",
            "the model stands in front of all flags",
            "set profile.model",
            [["--model", "x"], ["--model=x"]],
        ),
    ],
)
def test_what_makes_nodes_disagree_is_refused_in_every_spelling(
    name: str, why: str, hint: str, spellings: list[list[str]]
) -> None:
    for args in spellings:
        # It is found wherever it stands.
        assert refused({"args": ["--enforce-eager", *args]}) == (
            error("refused-argument", "profile.args[1]", f"{name} cannot stand in args: {why}", hint),
        ), args


def test_every_refusal_is_said_at_once() -> None:
    errors = refused({"args": ["--nnodes", "2", "--bogus", "--max-model-len", "many", "--headless"]})
    assert [(f.code, f.where) for f in errors] == [
        ("unknown-flag", "profile.args[2]"),
        ("bad-value", "profile.args[3]"),
        ("refused-argument", "profile.args[0]"),
        ("refused-argument", "profile.args[5]"),
    ]


@pytest.mark.parametrize(
    ("args", "code", "place", "message"),
    [
        (["stray"], "stray-value", 0, "'stray' belongs to no flag"),
        ([""], "stray-value", 0, "'' belongs to no flag"),
        (["--max-model-len", "4k", "5k"], "stray-value", 2, "'5k' belongs to no flag"),
        (["--enforce-eager", "true"], "stray-value", 1, "'true' belongs to no flag"),
        (
            ["--enforce-eager=true"],
            "unexpected-value",
            0,
            "--enforce-eager is a switch and takes no value, got 'true'",
        ),
        (
            ["--max-model-len", "big"],
            "bad-value",
            0,
            "--max-model-len takes a whole number, as in 4096, 4k (4000) or 4K (4096), or auto, not 'big'",
        ),
        (["-tp", "4k"], "bad-value", 0, "--tensor-parallel-size takes a whole number, not '4k'"),
        (
            ["--dtype", "float8"],
            "bad-value",
            0,
            "--dtype must be one of auto, bfloat16, float, float16, float32, half, not 'float8'",
        ),
        (
            ["--kv-events-config", "{bad"],
            "bad-value",
            0,
            "--kv-events-config takes a JSON object, not '{bad'",
        ),
        (["--kv-events-config", "[]"], "bad-value", 0, "--kv-events-config takes a JSON object, not '[]'"),
        (
            ["--lora-modules", "a=/a", "b"],
            "bad-value",
            0,
            "--lora-modules takes name=path, or a JSON object with name and path, not 'b'",
        ),
        (["--port.x", "1"], "unexpected-value", 0, "--port has no keys: it does not take JSON"),
        (["--he"], "ambiguous-flag", 0, "--he could be any of --headless, --help"),
        (["-tp4"], "unknown-flag", 0, "-tp4 is not a flag of this release"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused(
    args: list[str], code: str, place: int, message: str
) -> None:
    errors = refused({"args": args})
    assert [(f.code, f.where, f.message) for f in errors] == [(code, f"profile.args[{place}]", message)]


@pytest.mark.parametrize("args", [["--max-model-len"], ["--max-model-len", "--enforce-eager"], ["-tp"]])
def test_a_value_that_is_missing_is_named(args: list[str]) -> None:
    errors = refused({"args": args})
    assert [(f.code, f.where) for f in errors] == [("missing-value", "profile.args[0]")]


@pytest.mark.parametrize("port", ["0", "-1", "65536", "70000"])
def test_a_port_in_args_is_a_port(port: str) -> None:
    assert refused({"args": ["--port", port]}) == (
        error("bad-value", "profile.args[0]", f"--port must be from 1 to 65535, not {port}"),
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            "--max-model-len 4096",
            "must be a list with one item per argument, not the text '--max-model-len 4096'",
        ),
        ([1], "must be text, not 1; write it in quotes"),
        ([None], "must be text, not None"),
        ([["--port", "1"]], "must be text, not ['--port', '1']"),
        ([b"--port"], "must be text, not b'--port'"),
        (["a\0b"], "must not hold a NUL byte, which no process can be given, not 'a\\x00b'"),
        ({"--port": "1"}, "must be a list, not {'--port': '1'}"),
        (7, "must be a list, not 7"),
    ],
)
def test_args_that_are_no_list_of_texts_are_explained(args: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        deployment({"args": args})
    assert [entry["msg"] for entry in caught.value.errors()] == [message]


def test_a_config_file_is_said_not_to_be_read() -> None:
    args = ["--config", "f.yaml"]
    assert only_command({"args": args}).argv == argv_with(args)
    assert found({"args": args}) == (
        warning(
            "config-file-not-read",
            "profile.args[0]",
            "--config f.yaml: what the file sets is not known here, so nothing is checked against it",
            "put its contents into args; what stands on the command line wins over the file",
        ),
    )


@pytest.mark.parametrize(
    ("args", "name", "place"),
    [
        (["--gpu-memory-utilization", "0.5", "--gpu_memory_utilization=0.6"], "--gpu-memory-utilization", 2),
        (["--enforce-eager", "--no-enforce-eager"], "--enforce-eager", 1),
        (["--max-model-len", "-1", "--seed", "1", "--max-model-len=4096"], "--max-model-len", 4),
    ],
)
def test_a_repeat_is_a_warning_and_the_last_one_counts(args: list[str], name: str, place: int) -> None:
    assert only_command({"args": args}).argv == argv_with(args)
    assert found({"args": args}) == (
        warning(
            "repeated-argument",
            f"profile.args[{place}]",
            f"{name} is given more than once; the last one counts",
        ),
    )


def test_host_and_port_in_args_are_where_the_server_is_asked_and_reached() -> None:
    args = ["--port", "9000", "--host", "10.1.1.1"]
    (machine,) = planned({"args": args}, [node(0)]).nodes
    (command,) = machine.commands
    assert command.ready == HTTPReady(address=SocketAddress("10.1.1.1", 9000), path="/health", timeout=3600.0)
    assert command.ports == (ListeningPort(name="http", base=9000),)
    assert machine.endpoints == (Endpoint(command="server", host="10.1.1.1", port=9000),)


@pytest.mark.parametrize(
    "args",
    [
        ["--ssl-keyfile", "k", "--ssl-certfile", "c"],
        ["--ssl_keyfile=k", "--ssl_certfile=c"],
        ["--ssl-certfile", "both"],
    ],
)
def test_a_server_with_a_certificate_speaks_https(args: list[str]) -> None:
    (machine,) = planned({"args": args}, [node(0)]).nodes
    (command,) = machine.commands
    assert isinstance(command.ready, HTTPReady)
    assert command.ready.scheme == "https"
    assert [endpoint.url for endpoint in machine.endpoints] == ["https://10.0.0.1:8000"]


@pytest.mark.parametrize(("args", "name"), [(["--uds", "/run/s"], "--uds"), (["--grpc"], "--grpc")])
def test_a_server_that_does_not_speak_http_cannot_be_asked(args: list[str], name: str) -> None:
    plan = planned({"args": args})
    (command,) = plan.nodes[0].commands
    assert (command.ready, plan.nodes[0].endpoints) == (None, ())
    assert plan.findings == (
        warning(
            "no-http-port",
            "profile.args[0]",
            f"with {name} the server does not answer at http_port, so it cannot be asked whether it is ready",
        ),
    )


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (
            ["--port", "9000"],
            "--port in args gives 2 servers of one node the same port",
            "set http_port; each server takes the next one",
        ),
        (["--uds", "/run/s"], "--uds in args gives 2 servers of one node the same socket", "leave it out"),
    ],
)
def test_servers_of_one_node_do_not_share_where_they_listen(args: list[str], message: str, hint: str) -> None:
    profile = {"data_parallel_size": 2, "data_parallel_mode": "external", "args": args}
    assert refused(profile, nodes(2)) == (error("refused-argument", "profile.args[0]", message, hint),)


def test_headless_ranks_get_args_without_served_names() -> None:
    args = ["--served-model-name", "x", "y", "--enforce-eager"]
    (server,), (worker,) = commands({"tensor_parallel_size": 2, "args": args}, nodes(1, 1))
    meeting = (
        "--distributed-executor-backend mp --nnodes 2 --node-rank {} "
        "--master-addr 10.0.0.1 --master-port 29501"
    )
    assert server.argv == words(
        "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 2 "
        f"{meeting.format(0)} {' '.join(args)}"
    )
    assert worker.argv == words(
        f"vllm serve m --tensor-parallel-size 2 {meeting.format(1)} --headless --enforce-eager"
    )


@pytest.mark.parametrize("name", ["-x", "--served"])
def test_a_served_name_does_not_read_as_a_flag(name: str) -> None:
    with pytest.raises(ValidationError, match="must not begin with '-', which reads as a flag"):
        deployment({"served_model_name": ["m", name]})


@pytest.mark.parametrize("model", ["-m", "--help"])
def test_a_model_does_not_read_as_a_flag(model: str) -> None:
    with pytest.raises(
        ValidationError, match=f"must not begin with '-', which reads as a flag, not '{model}'"
    ):
        deployment({"model": model})


def test_many_args_stay_in_their_order() -> None:
    args = [f"--seed={number}" for number in range(300)]
    assert only_command({"args": args}).argv == argv_with(args)


def test_a_flag_that_only_speaks_of_tokens_is_no_secret() -> None:
    args = ["--return-tokens-as-token-ids", "--max-model-len", "4096"]
    assert only_command({"args": args}).argv == argv_with(args)


def test_args_cannot_make_every_node_headless() -> None:
    (finding,) = refused({"args": ["--api-server-count", "0"]})
    assert (finding.code, finding.where) == ("refused-argument", "profile.args[0]")


@pytest.mark.parametrize("host", ["[::]", "http://node", "a b"])
def test_a_host_in_args_is_an_address_without_brackets(host: str) -> None:
    (finding,) = refused({"args": ["--host", host]})
    assert (finding.code, finding.where) == ("bad-value", "profile.args[0]")


def test_ports_of_grpc_in_args_are_planned() -> None:
    (finding,) = refused({"args": ["--grpc-port", "8000"]})
    assert (finding.code, finding.message) == (
        "port-collision",
        "http (8000) of server and gRPC (8000) of server collide",
    )


def test_a_token_of_the_vocabulary_in_json_is_no_secret() -> None:
    args = ["--hf-overrides", '{"eos_token":"</s>","pad_token":"<pad>","token_limit":"4"}']
    assert only_command({"args": args}).argv == argv_with(args)


@pytest.mark.parametrize(
    "args",
    [
        ["--kv-transfer-config", '{"api_key":"s3cret"'],
        ["--api-ke", "--", "s3cret"],
        ["--hf-toke", "x", "s3cret"],
        ["--port", "token=s3cret"],
        ["HF_TOKEN=s3cret"],
    ],
)
def test_a_secret_where_nothing_can_be_read_is_not_repeated(args: list[str]) -> None:
    found = refused({"args": args})
    assert found
    assert not any("s3cret" in str(finding) for finding in found)
