"""What to serve: the same on every node."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from enginelaunch.command import EnvironmentSecret, FileSecret, LiteralSecret
from enginelaunch.profile import KVEvents, LoRA, LoRAAdapter, Profile, names_a_secret

FULL: dict[str, Any] = {
    "model": "org/model",
    "served_model_name": ["a", "b"],
    "tensor_parallel_size": 8,
    "lora": {"adapters": [{"name": "sql", "path": "/adapters/sql", "rank": 16}], "max_loras": 2},
    "kv_events": {"port": 5557, "replay_port": 6557, "topic": "kv"},
    "args": ["--max-model-len", "4096"],
    "env": {"NCCL_DEBUG": "INFO", "HF_TOKEN": {"env": "HF_TOKEN"}, "A_KEY": SecretStr("s3cret")},
}


def mistakes(data: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as raised:
        Profile.model_validate({"model": "m"} | data)
    return [(".".join(str(part) for part in e["loc"]), e["msg"]) for e in raised.value.errors()]


def shown(data: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as raised:
        Profile.model_validate({"model": "m"} | data)
    return str(raised.value) + repr(raised.value.errors()) + raised.value.json()


def test_a_profile_with_little_said_has_the_plain_defaults() -> None:
    assert Profile(model="m").model_dump() == {
        "model": "m",
        "served_model_name": (),
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "prefill_context_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "enable_expert_parallel": False,
        "data_parallel_mode": "internal",
        "lora": None,
        "kv_events": None,
        "args": (),
        "env": {},
        "allow_kernel_fallback": False,
    }


@pytest.mark.parametrize(
    ("given", "names"),
    [({}, ("m",)), ({"served_model_name": "a"}, ("a",)), ({"served_model_name": ["a", "b"]}, ("a", "b"))],
)
def test_the_model_is_served_under_its_own_string_unless_names_are_given(
    given: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert Profile(model="m", **given).served_model_names == names


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"model": ""}, [("model", "must not be empty, not ''")]),
        ({"model": "-m"}, [("model", "must not begin with '-', which reads as a flag, not '-m'")]),
        ({"model": None}, [("model", "must be text, not None")]),
        (
            {"served_model_name": ["a", "-b"]},
            [("served_model_name.1", "must not begin with '-', which reads as a flag, not '-b'")],
        ),
        (
            {"served_model_name": ["a", 1]},
            [("served_model_name.1", "must be text, not 1; write it in quotes")],
        ),
        (
            {"tensor_parallel_size": 0},
            [("tensor_parallel_size", "should be greater than or equal to 1, not 0")],
        ),
        (
            {"tensor_parallel": 8},
            [("tensor_parallel", "unknown key 'tensor_parallel'; did you mean 'tensor_parallel_size'?")],
        ),
        (
            {"data_parallel_mode": "extern"},
            [("data_parallel_mode", "should be 'internal', 'hybrid' or 'external', not 'extern'")],
        ),
        ({"args": ["--port", 8000]}, [("args.1", "must be text, not 8000; write it in quotes")]),
        (
            {"args": ["a\0"]},
            [("args.0", "must not hold a NUL byte, which no process can be given, not 'a\\x00'")],
        ),
        ({"lora": {}}, [("lora", "name at least one adapter, or set on_demand: true")]),
        (
            {"lora": {"adapters": [{"name": "a", "path": "x"}, {"name": "a", "path": "y"}]}},
            [("lora", "adapter 'a' is there twice; each needs its own name")],
        ),
        ({"lora": {"adapters": [{"name": "a"}]}}, [("lora.adapters.0.path", "is required")]),
        (
            {"kv_events": {"port": 1, "replay_port": 1}},
            [("kv_events", "port and replay_port must differ, both are 1")],
        ),
        ({"env": {"A": 5}}, [("env", 'A must be text, not the number 5; write "5"')]),
        (
            {"env": {"A": False}},
            [("env", "A must be text in quotes, as the program will see it, not False")],
        ),
        ({"env": {"A": None}}, [("env", "A must be text in quotes, as the program will see it, not None")]),
        (
            {"env": {"A": "x\0"}},
            [("env.A", "must not hold a NUL byte, which no process can be given, not 'x\\x00'")],
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(data: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert mistakes(data) == expected


@pytest.mark.parametrize("seed", ["", "-1", "4294967296", "random", "1.0", "٤", " 1", "9" * 5000])
def test_a_seed_that_python_does_not_take_is_refused(seed: str) -> None:
    ((place, message),) = mistakes({"kv_events": {"hash_seed": seed}})
    assert place == "kv_events"
    assert message.startswith("hash_seed must be a whole number from 0 to 4294967295 as text, not ")


@pytest.mark.parametrize("seed", ["0", "42", "4294967295"])
def test_a_seed_that_python_takes_is_kept_as_it_is(seed: str) -> None:
    assert KVEvents(hash_seed=seed).hash_seed == seed


# --- secrets ---


@pytest.mark.parametrize(
    ("variable", "secret"),
    [
        ("HF_TOKEN", True),
        ("hf_token", True),
        ("API_KEY", True),
        ("OPENAI_APIKEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True),
        ("SSH_KEY_PASSPHRASE", True),
        ("GOOGLE_CREDENTIALS", True),
        ("api-key", True),
        ("MAX_TOKENS", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("HF_TOKEN_PATH", False),
        ("SSL_KEY_FILE", False),
        ("LONG_PREFILL_TOKEN_THRESHOLD", False),
        ("PATH", False),
        ("", False),
    ],
)
def test_names_that_look_like_a_secret(variable: str, secret: bool) -> None:
    assert names_a_secret(variable) is secret


def test_variables_are_text_or_references_to_secrets() -> None:
    env = {
        "A": "",
        "B": "x=y z",
        "HF_TOKEN": {"env": "HF_TOKEN"},
        "C": {"file": "/run/c"},
        "D_KEY": SecretStr("s3cret"),
    }
    assert Profile(model="m", env=env).env == {
        "A": "",
        "B": "x=y z",
        "HF_TOKEN": EnvironmentSecret("HF_TOKEN"),
        "C": FileSecret("/run/c"),
        "D_KEY": LiteralSecret("s3cret"),
    }


@pytest.mark.parametrize(
    "value", ["s3cret", 5318008, 5318008.5, True, None, ["s3cret"], ("s3cret",)], ids=repr
)
def test_a_variable_that_looks_like_a_secret_takes_a_reference_only(value: Any) -> None:
    data = {"env": {"HF_TOKEN": value}}
    assert mistakes(data) == [
        (
            "env",
            "HF_TOKEN looks like a secret, which is named and not written: "
            "{HF_TOKEN: {env: NAME}} or {HF_TOKEN: {file: PATH}}",
        )
    ]
    assert "s3cret" not in shown(data)
    assert "5318008" not in shown(data)


@pytest.mark.parametrize(
    "data",
    [
        {"env": ["HF_TOKEN=s3cret"]},
        {"env": "HF_TOKEN=s3cret"},
        {"env": {"HF_TOKEN": {"value": "s3cret"}}},
        {"args": ["--api-key=s3cret"]},
        {"args": ["--api-key", "s3cret"]},
        {"args": ["--api_key", "s3cret"]},
        {"args": ["--eager", "--hf-token", "s3cret"]},
        {"args": ["--api-key s3cret"]},
        {"args": "--api-key s3cret"},
        {"args": {"--api-key": "s3cret"}},
        {"args": ["--api-key", ["s3cret"]]},
    ],
    ids=repr,
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_repeated(data: dict[str, Any]) -> None:
    assert "s3cret" not in shown(data)


@pytest.mark.parametrize(
    "args",
    [
        ["--ssl-keyfile", "/run/key"],
        ["--max-num-batched-tokens", "8192"],
        ["--long-prefill-token-threshold", "4"],
        ["--return-tokens-as-token-ids"],
        ["--return-tokens-as-token-ids", "--port", "1"],
    ],
    ids=repr,
)
def test_arguments_that_only_speak_of_tokens_and_keys_are_taken(args: list[str]) -> None:
    assert Profile(model="m", args=args).args == tuple(args)


def test_a_literal_secret_is_nowhere_to_be_seen() -> None:
    profile = Profile(**FULL)
    texts = [repr(profile), str(profile), profile.model_dump_json(), repr(profile.model_dump())]
    assert not any("s3cret" in text for text in texts)
    assert profile.model_dump()["env"] == {
        "NCCL_DEBUG": "INFO",
        "HF_TOKEN": {"env": "HF_TOKEN"},
        "A_KEY": {"literal": "**********"},
    }


# --- frozen ---


def test_a_profile_is_hashed_pickled_and_copied() -> None:
    profile = Profile(**FULL)
    for again in (
        pickle.loads(pickle.dumps(profile)),
        copy.copy(profile),
        copy.deepcopy(profile),
        Profile(**FULL),
    ):
        assert again == profile
        assert hash(again) == hash(profile)


def test_a_profile_cannot_be_changed() -> None:
    profile = Profile(**FULL)
    with pytest.raises(ValidationError, match="frozen"):
        profile.model = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        profile.env["NEW"] = "1"
    with pytest.raises(TypeError):
        Profile(model="m").env["NEW"] = "1"


def test_a_profile_does_not_change_with_what_it_was_made_from() -> None:
    env = {"A": "1"}
    args = ["--eager"]
    profile = Profile(model="m", env=env, args=args)
    env["B"] = "2"
    args.append("--port")
    assert (profile.env, profile.args) == ({"A": "1"}, ("--eager",))


def test_a_profile_written_as_json_is_read_back() -> None:
    profile = Profile(**(FULL | {"env": {"A": "1", "HF_TOKEN": {"env": "HF_TOKEN"}}}))
    assert Profile.model_validate_json(profile.model_dump_json()) == profile


def test_adapters_are_kept_as_given() -> None:
    lora = LoRA(adapters=[{"name": "sql", "path": "/a"}], max_loras=2)
    assert lora.adapters == (LoRAAdapter(name="sql", path="/a"),)
    assert (lora.on_demand, LoRA(on_demand=True).adapters) == (False, ())
