"""LoRA adapters: loaded at start, or on demand."""

from __future__ import annotations

from typing import Any

import pytest
from plans import commands, deployment, error, found, info, nodes, only_command, refused, started, words
from pydantic import ValidationError

HEAD = "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --enable-lora"


def adapter(
    name: str = "sql", path: str = "/adapters/sql", rank: int | None = 8, **more: Any
) -> dict[str, Any]:
    return {"name": name, "path": path, **({} if rank is None else {"rank": rank}), **more}


def loaded(*adapters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"lora": {"adapters": list(adapters), **more}}


def modules(profile: dict[str, Any], version: str = "0.32.0") -> tuple[object, ...]:
    """What follows --lora-modules, which stands last."""
    argv = only_command(profile, version=version).argv
    return argv[argv.index("--lora-modules") + 1 :]


def test_adapters_at_start_are_named_on_the_server() -> None:
    profile = loaded(adapter(rank=24), adapter("chat", "org/chat", 8), max_loras=2)
    assert started(profile) == [
        (
            0,
            "server",
            words(
                f"{HEAD} --max-lora-rank 32 --max-loras 2 --served-model-name m "
                "--lora-modules sql=/adapters/sql chat=org/chat"
            ),
            {},
        )
    ]


def test_headless_ranks_have_lora_but_no_modules() -> None:
    profile = {"tensor_parallel_size": 2, **loaded(adapter())}
    (server,), (worker,) = commands(profile, nodes(1, 1))
    meeting = (
        "--distributed-executor-backend mp --nnodes 2 --node-rank {} "
        "--master-addr 10.0.0.1 --master-port 29501"
    )
    assert server.argv == words(
        "vllm serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 2 --enable-lora --max-lora-rank 8 "
        f"{meeting.format(0)} --served-model-name m --lora-modules sql=/adapters/sql"
    )
    assert worker.argv == words(
        "vllm serve m --tensor-parallel-size 2 --enable-lora --max-lora-rank 8 "
        f"{meeting.format(1)} --headless"
    )


@pytest.mark.parametrize(
    ("given", "item"),
    [
        (adapter(base_model_name="llama"), '{"base_model_name":"llama","name":"sql","path":"/adapters/sql"}'),
        (adapter(path="/a,b"), '{"name":"sql","path":"/a,b"}'),
        (adapter(name="a,b"), '{"name":"a,b","path":"/adapters/sql"}'),
        (adapter(name="a=b"), '{"name":"a=b","path":"/adapters/sql"}'),
        (adapter(name='it\'s "x" $y\n模型'), 'it\'s "x" $y\n模型=/adapters/sql'),
    ],
)
def test_an_adapter_is_json_where_name_and_path_alone_would_be_misread(
    given: dict[str, Any], item: str
) -> None:
    assert modules(loaded(given)) == (item,)


@pytest.mark.parametrize("version", ["0.8.5", "0.29.0", "0.32.0"])
def test_a_path_with_an_equals_sign_is_json(version: str) -> None:
    # Up to 0.29 vLLM ends with an error on a second '='.
    assert modules(loaded(adapter(path="/runs/lr=3/sql")), version) == (
        '{"name":"sql","path":"/runs/lr=3/sql"}',
    )


def test_a_name_that_begins_with_a_dash_is_json() -> None:
    assert modules(loaded(adapter(name="-sql"))) == ('{"name":"-sql","path":"/adapters/sql"}',)


@pytest.mark.parametrize(
    ("version", "rank", "allowed"),
    [
        ("0.8.5", 1, 8),
        ("0.11.0", 1, 8),
        ("0.11.1", 1, 1),
        ("0.32.0", 1, 1),
        ("0.32.0", 2, 8),
        ("0.32.0", 8, 8),
        ("0.32.0", 9, 16),
        ("0.32.0", 24, 32),
        ("0.32.0", 129, 256),
        ("0.32.0", 257, 320),
        ("0.32.0", 512, 512),
    ],
)
def test_the_rank_is_rounded_up_to_what_the_release_allows(version: str, rank: int, allowed: int) -> None:
    assert only_command(loaded(adapter(rank=rank)), version=version).argv == words(
        f"{HEAD} --max-lora-rank {allowed} --served-model-name m --lora-modules sql=/adapters/sql"
    )


def test_a_rank_above_all_that_are_allowed_is_refused() -> None:
    assert refused(loaded(adapter(rank=513))) == (
        error(
            "lora-rank-too-large",
            "profile.lora.adapters",
            "rank 513 is above 512, the largest that vLLM 0.32.0 takes",
        ),
    )


@pytest.mark.parametrize(
    ("ranks", "flag", "largest"),
    [((None, None), "", 16), ((8, None), "--max-lora-rank 16 ", 16), ((64, None), "--max-lora-rank 64 ", 64)],
)
def test_an_unknown_rank_is_said(ranks: tuple[int | None, ...], flag: str, largest: int) -> None:
    profile = loaded(adapter("a", "/a", ranks[0]), adapter("b", "/b", ranks[1]))
    unknown = ", ".join(name for name, rank in zip("ab", ranks, strict=True) if rank is None)
    assert only_command(profile).argv == words(f"{HEAD} {flag}--served-model-name m --lora-modules a=/a b=/b")
    assert found(profile) == (
        info(
            "lora-rank-unknown",
            "profile.lora.adapters",
            f"the rank of {unknown} is not known; one above {largest} fails after the model has loaded",
            "state adapters[].rank or --max-lora-rank in args, or read the adapters (--read-adapters)",
        ),
    )


def test_a_stated_largest_rank_leaves_no_rank_unknown() -> None:
    profile = {**loaded(adapter(rank=None)), "args": ["--max-lora-rank", "64"]}
    assert only_command(profile).argv == words(
        f"{HEAD} --served-model-name m --lora-modules sql=/adapters/sql --max-lora-rank 64"
    )
    assert found(profile) == ()


def test_adapters_on_demand_are_registered_nowhere_at_start() -> None:
    profile = loaded(adapter(rank=64), on_demand=True, max_loras=4)
    assert started(profile) == [
        (
            0,
            "server",
            words(f"{HEAD} --max-lora-rank 64 --max-loras 4 --served-model-name m"),
            {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
        )
    ]
    assert found(profile) == ()


@pytest.mark.parametrize(("version", "one"), [("0.14.1", ""), ("0.15.0", " --api-server-count 1")])
def test_on_demand_with_replicas_has_one_api_server_where_more_would_refuse(version: str, one: str) -> None:
    profile = {"data_parallel_size": 2, "lora": {"on_demand": True}}
    assert started(profile, nodes(1, 1), version) == [
        (
            0,
            "server",
            words(
                f"{HEAD} --data-parallel-size 2 --data-parallel-size-local 1 "
                f"--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29550 --served-model-name m{one}"
            ),
            {"VLLM_HOST_IP": "10.0.0.1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
        ),
        (
            1,
            "worker",
            words(
                "vllm serve m --tensor-parallel-size 1 --enable-lora --data-parallel-size 2 "
                "--data-parallel-size-local 1 --data-parallel-start-rank 1 --data-parallel-address 10.0.0.1 "
                "--data-parallel-rpc-port 29550 --headless"
            ),
            {"VLLM_HOST_IP": "10.0.0.2"},
        ),
    ]


@pytest.mark.parametrize(("mode", "given"), [("internal", True), ("hybrid", True), ("external", False)])
def test_external_replicas_have_one_api_server_each_anyway(mode: str, given: bool) -> None:
    profile = {"data_parallel_size": 4, "data_parallel_mode": mode, "lora": {"on_demand": True}}
    serving = [c for machine in commands(profile, nodes(2, 2)) for c in machine if c.role == "serves"]
    assert ["--api-server-count" in command.args for command in serving] == [given] * len(serving)
    assert {command.env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] for command in serving} == {"1"}


def test_on_demand_refuses_several_api_servers_in_args() -> None:
    profile = {"lora": {"on_demand": True, "max_loras": 2}, "args": ["--api-server-count", "4"]}
    assert refused(profile) == (
        error(
            "lora-api-servers",
            "profile.args[0]",
            "--api-server-count 4: vLLM refuses adapters on demand with more than one API server",
            "leave it out",
        ),
    )


def test_on_demand_takes_one_api_server_in_args() -> None:
    profile = {"lora": {"on_demand": True}, "args": ["--api-server-count=1"]}
    assert only_command(profile).argv == words(f"{HEAD} --served-model-name m --api-server-count=1")


def test_on_demand_without_a_known_rank_says_what_fits() -> None:
    assert found({"lora": {"on_demand": True}}) == (
        info(
            "lora-rank-unknown",
            "profile.lora.adapters",
            "the rank of adapters that come later is not known; "
            "one above 16 fails after the model has loaded",
            "state adapters[].rank or --max-lora-rank in args, or read the adapters (--read-adapters)",
        ),
    )


TAKEN = "has the name of the base model; vLLM ends with that after the model has loaded"


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ({}, "m"),
        ({"served_model_name": ["a", "b"]}, "b"),
        ({"args": ["--served-model-name", "x", "y"]}, "y"),
    ],
)
def test_an_adapter_does_not_share_a_name_with_the_model(profile: dict[str, Any], name: str) -> None:
    assert refused({**profile, **loaded(adapter(name))}) == (
        error(
            "lora-name-taken",
            "profile.lora.adapters",
            f"adapter {name!r} {TAKEN}",
            "give the adapter another name",
        ),
    )


def test_an_adapter_may_have_a_name_that_args_took_from_the_model() -> None:
    profile = {**loaded(adapter("m")), "args": ["--served-model-name", "x"]}
    assert only_command(profile).argv == words(
        f"{HEAD} --max-lora-rank 8 --lora-modules m=/adapters/sql --served-model-name x"
    )


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({}, "name at least one adapter, or set on_demand: true"),
        ({"adapters": [adapter(), adapter()]}, "adapter 'sql' is there twice; each needs its own name"),
        ({"adapters": [adapter(rank=0)]}, "rank.*greater than or equal to 1, not 0"),
        ({"adapters": [adapter(name=" ")]}, "must not be empty, not ' '"),
        ({"adapters": [adapter(path="")]}, "must not be empty, not ''"),
        ({"adapters": [adapter(pth="/x")]}, "unknown key 'pth'; did you mean 'path'"),
        ({"on_demand": True, "max_loras": 0}, "greater than or equal to 1, not 0"),
    ],
)
def test_bad_adapters_are_explained(lora: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=f"(?s){message}"):
        deployment({"lora": lora})


def test_a_rank_in_args_below_that_of_an_adapter_is_an_error() -> None:
    adapters = [{"name": "a", "path": "/a", "rank": 24}, {"name": "b", "path": "/b", "rank": 8}]
    profile = {"lora": {"adapters": adapters}, "args": ["--max-lora-rank", "8"]}
    assert refused(profile) == (
        error(
            "lora-rank-too-large",
            "profile.args[0]",
            "adapter 'a' has rank 24, above --max-lora-rank 8 in args; "
            "vLLM ends with that after the model has loaded",
            "leave --max-lora-rank out, or raise it",
        ),
    )
