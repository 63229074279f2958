"""What to serve: the same on every node."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from enginelaunch.command import FrozenDict, SecretReference
from enginelaunch.spec import (
    SECRET_SCHEMA,
    Address,
    NameOnCommandLine,
    NonEmptyText,
    OneOrSeveral,
    PlainText,
    Port,
    Size,
    Spec,
    Switch,
    VariableName,
    explained,
    no_nul,
    read_secret,
    shown,
)
from enginelaunch.spec import (
    names_a_secret as names_a_secret,  # noqa: PLC0414 - also found here
)


class LoRAAdapter(Spec):
    """A LoRA adapter that requests can name as their model.

    Example:
        >>> LoRAAdapter(name="sql", path="/adapters/sql").rank is None
        True
    """

    name: NonEmptyText
    """What a request gives as its model."""

    path: NonEmptyText
    """The adapter's folder, or its name on a hub."""

    base_model_name: NonEmptyText | None = None
    """The base model's name as `/v1/models` shows it as the adapter's parent."""

    rank: Size | None = None
    """The adapter's rank, from its adapter_config.json; None when it is not known."""


class LoRA(Spec):
    """LoRA adapters: loaded at start, or on demand while the engine runs.

    Example:
        >>> LoRA(adapters=[{"name": "sql", "path": "/adapters/sql"}], max_loras=2).on_demand
        False
    """

    adapters: tuple[LoRAAdapter, ...] = ()
    """The adapters. With `on_demand` they are not loaded at start; their ranks still count."""

    on_demand: Switch = False
    """Adapters are loaded and unloaded by requests while the engine runs."""

    max_loras: Size | None = None
    """How many adapters one batch can hold; None is the engine's own default."""

    @model_validator(mode="after")
    def _names_differ(self) -> LoRA:
        seen: set[str] = set()
        for adapter in self.adapters:
            if adapter.name in seen:
                raise explained(
                    "adapters", f"adapter {adapter.name!r} is there twice; each needs its own name"
                )
            seen.add(adapter.name)
        if not self.adapters and not self.on_demand:
            raise explained("adapters", "name at least one adapter, or set on_demand: true")
        return self


class KVEvents(Spec):
    """KV-cache events: what the engine publishes about the blocks it holds.

    Example:
        >>> KVEvents(port=5557, topic="kv").replay_port is None
        True
    """

    port: Port = 5557
    """Base port of the publisher; data-parallel rank r uses port + r on its own node."""

    replay_port: Port | None = None
    """Base port at which missed batches can be asked for again; None for no replay."""

    topic: PlainText = ""
    """Topic of the messages."""

    connect: Address | None = None
    """Address of a subscriber to connect to. None: the engine binds and subscribers connect to it."""

    buffer_steps: Size | None = None
    """How many batches are kept for replay; None is the engine's own default."""

    high_water_mark: Size | None = None
    """How many messages the socket queues; None is the engine's own default."""

    max_queue_size: Size | None = None
    """How many batches wait for the publisher; None is the engine's own default."""

    hash_algorithm: NonEmptyText | None = None
    """How blocks are hashed; None is the release's reproducible one."""

    hash_seed: PlainText = "0"
    """PYTHONHASHSEED on every node, from which block hashes start."""

    @model_validator(mode="after")
    def _ports_and_seed(self) -> KVEvents:
        if self.port == self.replay_port:
            raise explained("ports", f"port and replay_port must differ, both are {self.port}")
        seed = self.hash_seed
        # Zeros in front count for nothing, and int() refuses thousands of digits.
        digits = seed.lstrip("0") or seed[:1]
        if not (seed.isascii() and seed.isdecimal() and len(digits) <= 10 and int(digits) <= 4294967295):
            raise explained(
                "seed", f"hash_seed must be a whole number from 0 to 4294967295 as text, not {seed!r}"
            )
        return self


def _environment(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    read: dict[Any, Any] = {}
    for name, value in values.items():
        is_reference = isinstance(value, (dict, SecretReference)) or hasattr(value, "get_secret_value")
        if not is_reference and isinstance(name, str) and names_a_secret(name):
            raise explained(
                "env",
                f"{name} looks like a secret, which is named and not written: "
                f"{{{name}: {{env: NAME}}}} or {{{name}: {{file: PATH}}}}",
            )
        if isinstance(value, (str, SecretReference)):
            read[name] = value
        elif isinstance(value, dict) or hasattr(value, "get_secret_value"):
            try:
                read[name] = read_secret(value)
            except ValueError as error:
                raise explained("env", f"{name}: {error}") from None
        elif isinstance(value, bool) or value is None:
            raise explained(
                "env", f"{name} must be text in quotes, as the program will see it, not {value!r}"
            )
        elif isinstance(value, (int, float)):
            raise explained("env", f'{name} must be text, not the number {value!r}; write "{value}"')
        else:
            raise explained("env", f"{name} must be text or a reference to a secret, not {shown(value)}")
    return read


def _arguments(value: Any) -> Any:
    if isinstance(value, str):
        raise explained("args", f"must be a list with one item per argument, not the text {shown(value)}")
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _no_secret_argument(item, value[index + 1] if index + 1 < len(value) else None)
    return value


def _no_secret_argument(item: Any, following: Any) -> None:
    if not isinstance(item, str) or not item.startswith("--"):
        return
    flag, separator = [*re.split(r"([=\s])", item[2:], maxsplit=1), ""][:2]
    # A key may begin with a dash itself; only another long flag shows that none was given.
    has_value = separator or (
        following is not None
        and not (isinstance(following, str) and following.startswith("--") and following != "--")
    )
    if has_value and names_a_secret(flag) and _ends_in_a_secret(flag):
        raise explained(
            "secret",
            f"--{flag} would show a secret to everyone who can list processes: use api_key for the server's "
            "key, and env with {env: NAME} or {file: PATH} for others",
        )


def _ends_in_a_secret(flag: str) -> bool:
    """Whether a flag is a key or a token, and does not only speak of one, as --return-tokens-as-token-ids."""
    return names_a_secret(re.split(r"[-_.]", flag)[-1])


def _environment_value(value: Any) -> Any:
    return no_nul(value) if isinstance(value, str) else read_secret(value)


EnvironmentValue = Annotated[
    str | SecretReference,
    PlainValidator(_environment_value),
    PlainSerializer(lambda value: value if isinstance(value, str) else value.as_dict()),
    WithJsonSchema({"anyOf": [{"type": "string"}, SECRET_SCHEMA]}),
]
"""Text, or a reference to a secret."""


class Profile(Spec):
    """What to serve, in the field's own words; the same on every node.

    Example:
        >>> profile = Profile(model="/models/llama", tensor_parallel_size=8, pipeline_parallel_size=2)
        >>> profile.served_model_names
        ('/models/llama',)
    """

    model: NameOnCommandLine
    """The model's folder, or its name on a hub, as the engine takes it."""

    served_model_name: OneOrSeveral = ()
    """The names under which requests reach the model, the first one shown; the model string when empty."""

    tensor_parallel_size: Size = 1
    """Over how many GPUs each layer is split."""

    pipeline_parallel_size: Size = 1
    """Over how many stages the layers are spread."""

    data_parallel_size: Size = 1
    """How many replicas share the requests."""

    prefill_context_parallel_size: Size = 1
    """Over how many GPUs a prompt's tokens are split."""

    decode_context_parallel_size: Size = 1
    """Over how many of the tensor-parallel GPUs the KV cache is split."""

    enable_expert_parallel: Switch = False
    """Experts of a mixture-of-experts model are spread over the GPUs instead of split."""

    data_parallel_mode: Literal["internal", "hybrid", "external"] = "internal"
    """Who spreads requests over the replicas: one server, one server a node, or something outside."""

    lora: LoRA | None = None
    """LoRA adapters."""

    kv_events: KVEvents | None = None
    """KV-cache events."""

    args: Annotated[tuple[PlainText, ...], BeforeValidator(_arguments)] = ()
    """The operator's own arguments to the engine, one item each; they win over built ones."""

    env: Annotated[
        dict[VariableName, EnvironmentValue], BeforeValidator(_environment), AfterValidator(FrozenDict)
    ] = Field(default_factory=FrozenDict)
    """Environment variables; one that looks like a secret takes `{env: NAME}` or `{file: PATH}`."""

    allow_kernel_fallback: Switch = False
    """A slower kernel than the GPU's native one is acceptable."""

    @property
    def served_model_names(self) -> tuple[str, ...]:
        """The names under which requests reach the model."""
        return self.served_model_name or (self.model,)
