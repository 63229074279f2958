"""The harness of the conformance tests is itself able to say no, and says yes with the right values."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import set_up
from real_vllm import MODELS, RELEASES, RealVLLM, RealVLLMError, Verdict, missing_variables, releases_found

DENSE = str(MODELS / "dense_llama")
MIXTURE = str(MODELS / "qwen3_moe")

every_release = pytest.mark.parametrize("release", RELEASES)


def serve(*arguments: str) -> list[str]:
    return ["vllm", "serve", *arguments]


def assert_refused(verdict: Verdict, *words: str) -> None:
    assert not verdict.accepted
    assert verdict.values == {}
    assert [word for word in words if word not in str(verdict.why)] == [], verdict.why


# --- vLLM's parser


@every_release
def test_parser_returns_exactly_what_differs_from_the_defaults(real_vllm: RealVLLM, release: str) -> None:
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv"}
    command = serve(
        "some/model",
        *("--tensor-parallel-size", "8"),
        *("--port", "8000"),  # the default
        *("--kv-events-config", json.dumps(events)),
        *("--enable-lora", "--lora-modules", "one=/adapters/one"),
    )
    assert real_vllm.parse(release, [command]) == [
        Verdict(
            accepted=True,
            why=None,
            values={
                "model_tag": "some/model",
                "tensor_parallel_size": 8,
                "kv_events_config": {"config": "KVEventsConfig", "set": events},
                "enable_lora": True,
                "lora_modules": [
                    {"config": "LoRAModulePath", "set": {"name": "one", "path": "/adapters/one"}}
                ],
            },
        )
    ]


@every_release
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--no-such-flag", "1"], ["unrecognized arguments", "--no-such-flag"], id="flag"),
        pytest.param(["--max-lora-rank", "24"], ["--max-lora-rank", "invalid choice"], id="choice"),
        pytest.param(["--tensor-parallel-size", "two"], ["--tensor-parallel-size", "two"], id="number"),
        pytest.param(["--port"], ["--port", "expected one argument"], id="missing value"),
        pytest.param(
            ["--kv-events-config", '{"enable_kv_cache_events": "perhaps"}'],
            ["--kv-events-config", "enable_kv_cache_events", "perhaps"],
            id="value in a config class",
        ),
        pytest.param(["--kv-events-config", "{"], ["--kv-events-config"], id="JSON"),
        pytest.param(["--config", "/no/such/file.yaml"], ["/no/such/file.yaml"], id="config file"),
    ],
)
def test_parser_refuses(real_vllm: RealVLLM, release: str, arguments: list[str], words: list[str]) -> None:
    [verdict] = real_vllm.parse(release, [serve("some/model", *arguments)])
    assert_refused(verdict, *words)


@pytest.mark.parametrize("release", [release for release in RELEASES if release != "0.11.2"])
def test_parser_refuses_an_unknown_field_of_a_config_class(real_vllm: RealVLLM, release: str) -> None:
    [verdict] = real_vllm.parse(
        release, [serve("m", "--kv-events-config", '{"enable_kv_cache_event": true}')]
    )
    assert_refused(verdict, "--kv-events-config", "enable_kv_cache_event", "Unexpected keyword")


def test_an_old_parser_drops_an_unknown_field_of_a_config_class(real_vllm: RealVLLM) -> None:
    [verdict] = real_vllm.parse(
        "0.11.2", [serve("m", "--kv-events-config", '{"enable_kv_cache_event": true}')]
    )
    assert verdict.values["kv_events_config"] == {"config": "KVEventsConfig", "set": {}}


@every_release
def test_parser_takes_the_model_from_wherever_the_serve_command_does(
    real_vllm: RealVLLM, release: str, tmp_path: Path
) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text("model: some/model\ntensor-parallel-size: 8\n", encoding="utf-8")
    moved, from_file = real_vllm.parse(
        release,
        [
            serve("--tensor-parallel-size", "8", "--model", "some/model"),
            serve("--config", str(config), "--pipeline-parallel-size", "2"),
        ],
    )
    assert moved == Verdict(True, None, {"model_tag": "some/model", "tensor_parallel_size": 8})
    assert from_file.why is None
    assert {**from_file.values, "config": "named"} == {
        "model": "some/model",
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "config": "named",
    }


@every_release
def test_a_command_of_another_program_is_refused(real_vllm: RealVLLM, release: str) -> None:
    [verdict] = real_vllm.parse(release, [["ray", "start", "--head"]])
    assert_refused(verdict, "not a vllm serve command")


# --- the engine's configuration


def two_nodes(rank: int) -> list[str]:
    return [
        *("--distributed-executor-backend", "mp"),
        *("--nnodes", "2", "--node-rank", str(rank)),
        *("--master-addr", "10.0.0.1", "--master-port", "29600"),
    ]


PLAIN = {
    "world_size": 1,
    "nnodes": 1,
    "node_rank": 0,
    "data_parallel_size": 1,
    "data_parallel_size_local": 1,
    "data_parallel_rank": 0,
    "data_parallel_hybrid_lb": False,
    "data_parallel_external_lb": False,
    "data_parallel_backend": "mp",
    "data_parallel_master_ip": "127.0.0.1",
    "master_addr": "127.0.0.1",
    "master_port": 29501,
    "enable_expert_parallel": False,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "lora": None,
    "kv_events": None,
}

ENGINES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "one rank": (serve(DENSE), {}),
    "follower of two nodes": (
        serve(
            DENSE, "--tensor-parallel-size", "8", "--pipeline-parallel-size", "2", *two_nodes(1), "--headless"
        ),
        {
            "world_size": 16,
            "local_world_size": 8,
            "nnodes": 2,
            "node_rank": 1,
            "node_rank_within_dp": 1,
            "master_addr": "10.0.0.1",
            "master_port": 29600,
            "distributed_executor_backend": "mp",
            "tensor_parallel_size": 8,
            "pipeline_parallel_size": 2,
        },
    ),
    "second half of a data parallel group": (
        serve(
            MIXTURE,
            *("--data-parallel-size", "16", "--data-parallel-size-local", "8"),
            *("--data-parallel-start-rank", "8", "--headless"),
            *("--data-parallel-address", "10.0.0.1", "--data-parallel-rpc-port", "13345"),
            "--enable-expert-parallel",
        ),
        {
            "data_parallel_size": 16,
            "data_parallel_size_local": 8,
            "data_parallel_rank": 8,
            "data_parallel_master_ip": "10.0.0.1",
            "data_parallel_rpc_port": 13345,
            "enable_expert_parallel": True,
        },
    ),
    "one of four behind a balancer": (
        serve(
            MIXTURE,
            *("--data-parallel-size", "4", "--data-parallel-rank", "2"),
            *("--data-parallel-address", "10.0.0.1"),
        ),
        {
            "data_parallel_size": 4,
            "data_parallel_rank": 2,
            "data_parallel_external_lb": True,
            "data_parallel_master_ip": "10.0.0.1",
        },
    ),
    "LoRA and KV events": (
        serve(
            DENSE,
            *("--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4", "--max-lora-rank", "32"),
            *("--kv-events-config", '{"enable_kv_cache_events": true, "publisher": "zmq"}'),
        ),
        {
            "lora": {"max_loras": 2, "max_lora_rank": 32, "max_cpu_loras": 4, "fully_sharded_loras": False},
            "kv_events": {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": "tcp://*:5557",
                "replay_endpoint": None,
                "topic": "",
            },
        },
    ),
}


@every_release
def test_engine_configuration_has_exactly_these_values(real_vllm: RealVLLM, release: str) -> None:
    verdicts = real_vllm.engine_config(release, [(command, {}) for command, _ in ENGINES.values()])
    for verdict, (name, (_, differing)) in zip(verdicts, ENGINES.items(), strict=True):
        assert (name, verdict.accepted, verdict.why) == (name, True, None)
        expected = {**PLAIN, **differing}
        assert (name, {key: verdict.values.get(key) for key in expected}) == (name, expected)


@every_release
@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param(
            serve(DENSE, "--tensor-parallel-size", "7"), ["heads (64)", "divisible", "(7)"], id="heads"
        ),
        pytest.param(
            serve(DENSE, "--tensor-parallel-size", "16", *two_nodes(2), "--headless"),
            ["node", "2"],
            id="node rank",
        ),
        pytest.param(serve(DENSE, "--enable-expert-parallel"), ["experts"], id="experts of a dense model"),
        pytest.param(
            serve(DENSE, "--enable-lora", "--max-loras", "4", "--max-cpu-loras", "2"),
            ["max_cpu_loras"],
            id="LoRA",
        ),
        pytest.param(serve(DENSE, "--no-such-flag"), ["unrecognized arguments"], id="flag"),
        pytest.param(serve("/no/such/model"), ["/no/such/model"], id="model"),
    ],
)
def test_engine_configuration_refuses(
    real_vllm: RealVLLM, release: str, command: list[str], words: list[str]
) -> None:
    [verdict] = real_vllm.engine_config(release, [(command, {})])
    assert_refused(verdict, *words)


@every_release
def test_environment_holds_for_one_request(real_vllm: RealVLLM, release: str) -> None:
    bad = {"VLLM_CPU_KVCACHE_SPACE": "much"}
    before, between, after = real_vllm.engine_config(
        release, [(serve(DENSE), {}), (serve(DENSE), bad), (serve(DENSE), {})]
    )
    assert_refused(between, "much")
    assert before.accepted
    assert before == after


@every_release
def test_one_request_does_not_colour_the_next(real_vllm: RealVLLM, release: str) -> None:
    tuned = serve(DENSE, "--tensor-parallel-size", "8", "--enforce-eager", "--async-scheduling", "-O1")
    first_parse = real_vllm.parse(release, [serve(DENSE)])
    [first_config, _, second_config] = real_vllm.engine_config(
        release, [(serve(DENSE), {}), (tuned, {}), (serve(DENSE), {})]
    )
    assert first_config == second_config
    assert real_vllm.parse(release, [serve(DENSE)]) == first_parse
    assert first_parse[0].values == {"model_tag": DENSE}


# --- Ray's parser


def test_ray_returns_exactly_what_differs_from_the_defaults(real_vllm: RealVLLM) -> None:
    head = ["ray", "start", "--head", "--port=6379", "--num-gpus", "8", "--block", "--log-style", "auto"]
    joiner = ["ray", "start", "--address", "10.0.0.1:6379", "--include-dashboard", "false"]
    assert real_vllm.ray_start([head, joiner]) == [
        Verdict(True, None, {"head": True, "port": 6379, "num_gpus": 8, "block": True}),
        Verdict(True, None, {"address": "10.0.0.1:6379", "include_dashboard": False}),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hed"], ["--hed"]),
        (["--port", "x"], ["--port", "x"]),
        (["--log-style", "loud"], ["--log-style", "loud"]),
        (["head"], ["unexpected extra argument"]),
    ],
)
def test_ray_refuses(real_vllm: RealVLLM, arguments: list[str], words: list[str]) -> None:
    [verdict] = real_vllm.ray_start([["ray", "start", *arguments]])
    assert_refused(verdict, *words)


# --- the releases


def test_every_release_of_the_set_up_can_be_asked(real_vllm: RealVLLM) -> None:
    found = releases_found(real_vllm.python, real_vllm.sources)
    assert [release for release in RELEASES if release not in found] == []


def test_a_release_that_is_not_there_is_an_error(real_vllm: RealVLLM) -> None:
    with pytest.raises(RealVLLMError, match=r"no sources of vLLM 9\.1\.0"):
        real_vllm.parse("9.1.0", [serve("some/model")])


def test_a_release_other_than_the_one_asked_for_is_an_error(real_vllm: RealVLLM, tmp_path: Path) -> None:
    (tmp_path / "9.1.0" / "vllm").mkdir(parents=True)
    (tmp_path / "9.1.0" / "vllm" / "__init__.py").write_text("__version__ = '0.2.0'", encoding="utf-8")
    with (
        RealVLLM(real_vllm.python, tmp_path) as mistaken,
        pytest.raises(RealVLLMError, match=r"vLLM 9\.1\.0 was asked for, but 0\.2\.0 is at"),
    ):
        mistaken.parse("9.1.0", [serve("some/model")])


# --- the pipes, with a vLLM that is made up: these run without the set-up

MADE_UP_RELEASE = "9.1.0"

MADE_UP_PARSER = """
import argparse, os, sys

class FlexibleArgumentParser(argparse.ArgumentParser):
    def parse_args(self, arguments):
        print('{"id": 0, "accepted": false}', flush=True)  # as a library might print anything
        os.system("echo noise; cat")
        if "--die" in arguments:
            os.write(2, b"out of luck\\n" * 1000)
            os._exit(9)
        return super().parse_args(arguments)
"""

MADE_UP_ARGUMENTS = """
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--text")
    parser.add_argument("--die", action="store_true")
"""

MADE_UP_ENGINE = """
class AsyncEngineArgs:
    @classmethod
    def from_cli_args(cls, arguments):
        return cls()

    def create_engine_config(self, usage_context):
        import a_module_that_is_not_there
"""


@pytest.fixture
def made_up(tmp_path: Path) -> Any:
    """Return a harness whose only release is made up."""
    files = {
        "__init__.py": f"__version__ = {MADE_UP_RELEASE!r}",
        "utils/__init__.py": "",
        "utils/argparse_utils.py": MADE_UP_PARSER,
        "entrypoints/__init__.py": "",
        "entrypoints/openai/__init__.py": "",
        "entrypoints/openai/cli_args.py": MADE_UP_ARGUMENTS,
        "config/__init__.py": "",
        "engine/__init__.py": "",
        "engine/arg_utils.py": MADE_UP_ENGINE,
        "usage/__init__.py": "",
        "usage/usage_lib.py": "class UsageContext:\n    OPENAI_API_SERVER = 1\n",
    }
    for name, text in files.items():
        file = tmp_path / MADE_UP_RELEASE / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    with RealVLLM(Path(sys.executable), tmp_path) as harness:
        yield harness


def test_what_a_library_prints_is_no_answer(made_up: RealVLLM) -> None:
    assert made_up.parse(MADE_UP_RELEASE, [serve("some/model")]) == [
        Verdict(True, None, {"model_tag": "some/model"})
    ]


def test_more_than_the_pipes_hold_comes_back_in_order(made_up: RealVLLM) -> None:
    texts = [str(number) * 100_000 for number in range(30)]
    verdicts = made_up.parse(MADE_UP_RELEASE, [serve("--text", text) for text in texts])
    assert [verdict.values["text"] for verdict in verdicts] == texts


def test_a_worker_that_dies_is_an_error_with_its_last_words(made_up: RealVLLM) -> None:
    commands = [serve("--text", "x" * 100_000), serve("--die"), *[serve("--text", "x" * 100_000)] * 20]
    with pytest.raises(RealVLLMError, match=r"exited with 9; its last words:\n(out of luck\n?){30}$"):
        made_up.parse(MADE_UP_RELEASE, commands)


def test_a_new_worker_follows_one_that_died(made_up: RealVLLM) -> None:
    with pytest.raises(RealVLLMError):
        made_up.parse(MADE_UP_RELEASE, [serve("--die")])
    [verdict] = made_up.parse(MADE_UP_RELEASE, [serve("some/model")])
    assert verdict.accepted


def test_a_vllm_with_something_missing_is_an_error_and_no_refusal(made_up: RealVLLM) -> None:
    with pytest.raises(RealVLLMError, match="No module named 'a_module_that_is_not_there'"):
        made_up.engine_config(MADE_UP_RELEASE, [(serve("some/model"), {})])


def test_variables_that_are_not_set_are_named() -> None:
    assert missing_variables({"ENGINELAUNCH_VLLM_PYTHON": "/python", "ENGINELAUNCH_VLLM_SOURCES": ""}) == [
        "ENGINELAUNCH_VLLM_SOURCES"
    ]


# --- the set-up


def test_only_sources_are_unpacked_and_half_done_work_is_redone(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-9.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (
            "vllm/__init__.py",
            "vllm/config/defaults.json",
            "vllm/_C.abi3.so",
            "vllm/model_executor/layers/fused_moe/configs/E=8.json",
            "vllm-9.1.0.dist-info/METADATA",
        ):
            archive.writestr(name, "")
    folder = tmp_path / "sources" / "9.1.0"
    half_done = folder.with_name("unfinished-9.1.0")
    (half_done / "vllm").mkdir(parents=True)
    (half_done / "vllm" / "left_over.py").touch()
    set_up.unpack(wheel, folder)
    unpacked = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    assert unpacked == ["vllm/__init__.py", "vllm/config/defaults.json"]
    assert not half_done.exists()


def test_a_folder_that_is_not_set_up_has_no_environment_to_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set_up.main(["--into", str(tmp_path), "--print-environment"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{tmp_path} is not set up" in printed.err


def test_a_set_up_tells_a_shell_where_everything_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "with a space"
    layout = set_up.Layout(folder)
    for stamp in (layout.environment_stamp, layout.stamp):
        stamp.parent.mkdir(parents=True, exist_ok=True)
        set_up.write_stamp(stamp)
    assert set_up.main(["--into", str(folder), "--print-environment"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"export ENGINELAUNCH_VLLM_PYTHON='{folder}/environment/bin/python'",
        f"export ENGINELAUNCH_VLLM_SOURCES='{folder}/sources'",
        f"export ENGINELAUNCH_VLLM_WHEELS='{folder}/wheels'",
    ]


def test_a_stamp_of_another_recipe_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = tmp_path / "complete.json"
    set_up.write_stamp(stamp)
    assert set_up.is_stamped(stamp)
    monkeypatch.setattr(set_up, "PACKAGES", ("ray==0.0.0",))
    assert not set_up.is_stamped(stamp)
