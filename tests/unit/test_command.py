"""A command as data: placeholders, secrets, resolving and JSON."""

from __future__ import annotations

import copy
import io
import json
import pickle
from typing import Any

import msgspec
import pytest
import rich.console
from hypothesis import given
from hypothesis import strategies as st

from enginelaunch.addresses import BadAddressError
from enginelaunch.command import (
    Command,
    EnvironmentSecret,
    Exits,
    File,
    FileSecret,
    FrozenDict,
    HTTPReady,
    Joined,
    LeaderAddress,
    ListeningPort,
    LiteralSecret,
    NodeRank,
    OwnAddress,
    PlaceholderValues,
    SocketAddress,
    Stop,
    StopSignal,
    TCPReady,
    Text,
    Wait,
    joined,
    text_as_data,
)

STOP = Stop(order=2, signals=(StopSignal("SIGTERM", 30.0), StopSignal("SIGKILL", 5.0)))

FULL = Command(
    name="server",
    path="vllm",
    args=(
        "serve",
        "m",
        "--node-rank",
        NodeRank(),
        "--url",
        joined("http://", LeaderAddress(in_url=True), ":1"),
    ),
    env=FrozenDict({"VLLM_HOST_IP": OwnAddress(), "A": "1"}),
    secret_env=FrozenDict({"KEY": EnvironmentSecret("MY_KEY"), "TOKEN": FileSecret("/run/token")}),
    clear_env=("VLLM_",),
    files=(
        File(path="/etc/plain", content=joined("rank ", NodeRank(times=8, plus=1)), mode=0o644),
        File(path="/etc/secret", content=LiteralSecret("s3cret")),
    ),
    role="worker",
    waits_for=(Wait(address=SocketAddress(LeaderAddress(), 6379), timeout=600.0),),
    ready=HTTPReady(address=SocketAddress(OwnAddress(), 8000), path="/health", timeout=900.0),
    ports=(ListeningPort(name="http", base=8000, span=2),),
    stop=STOP,
    exits=Exits(success=(0, 143), meanings=((1, "it failed"),)),
)

RESOLVED = msgspec.structs.replace(
    FULL,
    args=("serve", "m", "--node-rank", "3", "--url", "http://[fd00::1]:1"),
    env=FrozenDict({"VLLM_HOST_IP": "fd00::4", "A": "1"}),
    files=(File(path="/etc/plain", content="rank 25", mode=0o644), FULL.files[1]),
    waits_for=(Wait(address=SocketAddress("fd00::1", 6379), timeout=600.0),),
    ready=HTTPReady(address=SocketAddress("fd00::4", 8000), path="/health", timeout=900.0),
)


def small(**more: Any) -> Command:
    return Command(name="server", path="vllm", role="serves", stop=STOP, **more)


# --- placeholders ---


def test_resolving_replaces_every_placeholder_and_nothing_else() -> None:
    assert FULL.resolve(leader_addr="fd00::1", node_addr="fd00::4", node_rank=3) == RESOLVED


def test_a_command_is_resolved_when_no_placeholder_is_left() -> None:
    assert (FULL.is_resolved, RESOLVED.is_resolved, small().is_resolved) == (False, True, True)


@pytest.mark.parametrize(
    "part",
    [
        {"args": (NodeRank(),)},
        {"args": (joined("x", OwnAddress()),)},
        {"env": {"A": LeaderAddress()}},
        {"files": (File(path="f", content=OwnAddress()),)},
        {"waits_for": (Wait(address=SocketAddress(LeaderAddress(), 1), timeout=1.0),)},
        {"ready": TCPReady(address=SocketAddress(OwnAddress(), 1), timeout=1.0)},
    ],
    ids=lambda part: next(iter(part)),
)
def test_a_placeholder_anywhere_leaves_a_command_unresolved(part: dict[str, Any]) -> None:
    command = small(**part)
    assert not command.is_resolved
    assert command.resolve(leader_addr="a", node_addr="b", node_rank=0).is_resolved


def test_filling_replaces_what_is_known_and_leaves_the_rest() -> None:
    command = small(
        args=(NodeRank(), OwnAddress(), joined(LeaderAddress(), ":", NodeRank())), env={"A": OwnAddress()}
    )
    filled = command.fill(PlaceholderValues(leader_addr="a", node_rank=2))
    assert filled == small(args=("2", OwnAddress(), "a:2"), env={"A": OwnAddress()})
    assert filled.fill(PlaceholderValues(node_addr="b")) == small(args=("2", "b", "a:2"), env={"A": "b"})


def test_resolving_a_resolved_command_changes_nothing_and_needs_nothing() -> None:
    assert RESOLVED.resolve() == RESOLVED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NodeRank(), "node_rank is needed: the command depends on it"),
        (LeaderAddress(), "leader_addr is needed: the command depends on it"),
        (OwnAddress(in_url=True), "node_addr is needed: the command depends on it"),
        (joined("a", OwnAddress()), "node_addr is needed: the command depends on it"),
    ],
)
def test_a_value_that_is_not_given_is_named(text: Text, message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole text is compared
        small(args=(text,)).resolve()
    assert str(raised.value) == message


@pytest.mark.parametrize("leader", ["fd00::1", "[fd00::1]"])
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (LeaderAddress(), "fd00::1"),
        (LeaderAddress(in_url=True), "[fd00::1]"),
        (joined("tcp://", LeaderAddress(in_url=True), ":", 5557), "tcp://[fd00::1]:5557"),
    ],
)
def test_an_ipv6_address_has_brackets_in_a_url_and_nowhere_else(leader: str, text: Text, plain: str) -> None:
    assert PlaceholderValues(leader_addr=leader).text(text) == plain


@pytest.mark.parametrize("address", ["10.0.0.1:8000", "http://node", "", "a b"])
def test_a_value_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadAddressError):
        PlaceholderValues(node_addr=address).text(OwnAddress())


@pytest.mark.parametrize(
    ("rank", "at", "number"),
    [
        (NodeRank(), 0, 0),
        (NodeRank(), 3, 3),
        (NodeRank(times=8, plus=2), 2, 18),
        (NodeRank(plus=8000), 1, 8001),
    ],
)
def test_a_rank_is_multiplied_and_added_to(rank: NodeRank, at: int, number: int) -> None:
    assert rank.at(at) == number
    assert PlaceholderValues(node_rank=at).text(rank) == str(number)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), ""),
        (("", ""), ""),
        (("a", 1, "b"), "a1b"),
        (("", LeaderAddress(), ""), LeaderAddress()),
        (("a", "b", NodeRank(), 1, "c"), Joined(("ab", NodeRank(), "1c"))),
        (
            (Joined(("a", NodeRank())), Joined((OwnAddress(), "b"))),
            Joined(("a", NodeRank(), OwnAddress(), "b")),
        ),
        ((Joined((NodeRank(), "a")), "b", 0), Joined((NodeRank(), "ab0"))),
    ],
    ids=repr,
)
def test_parts_become_one_text(parts: tuple[Text | int, ...], text: Text) -> None:
    assert joined(*parts) == text


parts_strategy = st.lists(
    st.text(max_size=3)
    | st.integers()
    | st.sampled_from([LeaderAddress(in_url=True), OwnAddress(), NodeRank(2, 1)])
)


@given(parts_strategy, parts_strategy)
def test_joining_first_or_resolving_first_gives_the_same(
    one: list[Text | int], two: list[Text | int]
) -> None:
    values = PlaceholderValues(leader_addr="fd00::1", node_addr="h", node_rank=2)
    plain = "".join(str(part) if isinstance(part, int) else values.text(part) for part in [*one, *two])
    assert values.text(joined(joined(*one), joined(*two))) == plain


# --- JSON ---


def test_a_command_as_json_data() -> None:
    data = FULL.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert data == {
        "name": "server",
        "role": "worker",
        "argv": [
            "vllm",
            "serve",
            "m",
            "--node-rank",
            {"placeholder": "node_rank", "times": 1, "plus": 0},
            "--url",
            {"joined": ["http://", {"placeholder": "leader_addr", "in_url": True}, ":1"]},
        ],
        "env": {"A": "1", "VLLM_HOST_IP": {"placeholder": "node_addr", "in_url": False}},
        "secret_env": {"KEY": {"env": "MY_KEY"}, "TOKEN": {"file": "/run/token"}},
        "clear_env": ["VLLM_"],
        "files": [
            {
                "path": "/etc/plain",
                "content": {"joined": ["rank ", {"placeholder": "node_rank", "times": 8, "plus": 1}]},
                "mode": "0644",
            },
            {"path": "/etc/secret", "secret": {"literal": "**********"}, "mode": "0600"},
        ],
        "waits_for": [
            {"host": {"placeholder": "leader_addr", "in_url": False}, "port": 6379, "timeout": 600.0}
        ],
        "ready": {
            "kind": "http",
            "scheme": "http",
            "path": "/health",
            "status": 200,
            "host": {"placeholder": "node_addr", "in_url": False},
            "port": 8000,
            "timeout": 900.0,
            "interval": 1.0,
        },
        "ports": [{"name": "http", "base": 8000, "span": 2}],
        "stop": {
            "order": 2,
            "signals": [{"name": "SIGTERM", "grace": 30.0}, {"name": "SIGKILL", "grace": 5.0}],
        },
        "exits": {"success": [0, 143], "meanings": {"1": "it failed"}},
    }


def test_a_command_without_anything_optional_as_json_data() -> None:
    assert small().as_dict() == {
        "name": "server",
        "role": "serves",
        "argv": ["vllm"],
        "env": {},
        "secret_env": {},
        "clear_env": [],
        "files": [],
        "waits_for": [],
        "ready": None,
        "ports": [],
        "stop": FULL.as_dict()["stop"],
        "exits": {"success": [], "meanings": {}},
    }


def test_readiness_over_tcp_as_json_data() -> None:
    ready = TCPReady(address=SocketAddress("fd00::1", 6379), timeout=60.0)
    assert small(ready=ready).as_dict()["ready"] == {
        "kind": "tcp",
        "host": "fd00::1",
        "port": 6379,
        "timeout": 60.0,
        "interval": 0.5,
    }


def test_plain_text_is_its_own_data() -> None:
    assert text_as_data("--x") == "--x"


def test_the_last_port_of_a_span() -> None:
    assert [ListeningPort(name="p", base=8000, span=span).last for span in (1, 4)] == [8000, 8003]


# --- secrets ---

LITERAL = LiteralSecret("s3cret")


def rich_text(value: Any) -> str:
    out = io.StringIO()
    rich.console.Console(file=out, width=1000).print(value)
    return out.getvalue()


@pytest.mark.parametrize(
    "shown",
    [
        repr,
        str,
        "{}".format,
        "{!r}".format,
        lambda secret: str(secret.as_dict()),
        lambda secret: repr([secret]),
        rich_text,
        lambda secret: rich_text(small(secret_env={"KEY": secret})),
        lambda secret: repr(small(secret_env={"KEY": secret}, files=(File(path="f", content=secret),))),
        lambda secret: json.dumps(small(secret_env={"KEY": secret}).as_dict()),
    ],
)
def test_a_literal_secret_is_shown_nowhere(shown: Any) -> None:
    text = shown(LITERAL)
    assert "s3cret" not in text
    assert "*****" in text


@pytest.mark.parametrize("write", [msgspec.json.encode, msgspec.to_builtins, msgspec.msgpack.encode])
def test_a_literal_secret_is_not_written_out_unasked(write: Any) -> None:
    try:
        text = str(write(small(secret_env={"KEY": LITERAL})))
    except TypeError:
        text = "refused: *****"
    assert "s3cret" not in text


def test_a_literal_secret_is_told_to_who_asks_for_it() -> None:
    assert LITERAL.reveal() == "s3cret"


def test_secrets_are_compared_by_what_they_are() -> None:
    assert LiteralSecret("a") == LiteralSecret("a")
    assert len({LiteralSecret("a"), LiteralSecret("b"), LiteralSecret("a")}) == 2
    assert (EnvironmentSecret("A").as_dict(), FileSecret("A").as_dict()) == ({"env": "A"}, {"file": "A"})


def test_a_secret_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        LITERAL._value = "other"


# --- frozen ---


@pytest.mark.parametrize("command", [FULL, RESOLVED, small(env={"A": "1"}, secret_env={"K": LITERAL})])
def test_a_command_is_hashed_pickled_and_copied(command: Command) -> None:
    assert pickle.loads(pickle.dumps(command)) == command
    assert copy.copy(command) == command
    assert copy.deepcopy(command) == command
    assert hash(pickle.loads(pickle.dumps(command))) == hash(command)


@pytest.mark.parametrize("field", ["env", "secret_env"])
def test_a_command_does_not_change_with_the_dict_it_was_made_from(field: str) -> None:
    given: dict[str, Any] = {"A": LITERAL}
    command = small(**{field: given})
    given["B"] = LITERAL
    assert dict(getattr(command, field)) == {"A": LITERAL}


@pytest.mark.parametrize("field", ["env", "secret_env"])
def test_what_a_command_sets_cannot_be_changed(field: str) -> None:
    command = small(**{field: {"A": LITERAL}})
    with pytest.raises(TypeError, match=r"^this dict does not change; make a new one from it$"):
        getattr(command, field)["B"] = LITERAL


def test_fields_of_a_command_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        FULL.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 2),
        lambda d: d.__delitem__("a"),
        lambda d: d.update(a=2),
        lambda d: d.setdefault("b", 2),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.__ior__({"b": 2}),
    ],
)
def test_a_frozen_dict_refuses_every_change(change: Any) -> None:
    frozen = FrozenDict({"a": 1})
    with pytest.raises(TypeError, match=r"^this dict does not change; make a new one from it$"):
        change(frozen)
    assert frozen == {"a": 1}


@given(st.dictionaries(st.text(), st.integers()))
def test_a_frozen_dict_is_like_any_other(plain: dict[str, int]) -> None:
    frozen = FrozenDict(plain)
    backwards = FrozenDict(dict(reversed(plain.items())))
    assert frozen == plain
    assert (hash(frozen), frozen) == (hash(backwards), backwards)
    for again in (pickle.loads(pickle.dumps(frozen)), copy.copy(frozen), copy.deepcopy(frozen)):
        assert (type(again), again) == (FrozenDict, plain)
    assert frozen | {"new": 1} == plain | {"new": 1}


@pytest.mark.parametrize("rank", ["1", -1, True, 1.0])
def test_a_rank_is_a_whole_number_from_0_on(rank: Any) -> None:
    with pytest.raises(ValueError, match=f"node_rank must be a whole number from 0 on, not {rank!r}"):
        PlaceholderValues(node_rank=rank)
