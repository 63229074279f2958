"""From a deployment file to what runs on each node."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from enginelaunch.command import Command, EnvironmentSecret, ListeningPort, NodeRank, Stop, StopSignal
from enginelaunch.deployment import Deployment, Node, NodePlan, Plan, plan, shards_of
from enginelaunch.engine import Endpoint, Engine, Metrics, engine_class, engine_names
from enginelaunch.findings import Finding, LaunchError, Report
from enginelaunch.profile import Profile
from enginelaunch.shard import GPU, LaunchMode, ShardSpec

TEXT = """
engine: fake
version: "1.2.3"
profile: {model: m, tensor_parallel_size: 2}
nodes:
  - {address: "[fd00::1]", gpus: 2, interface: eth0}
  - {address: fd00::2, gpus: [0, 3]}
api_key: {env: MY_KEY}
ports: {leader: 29501}
"""


class FakeEngine:
    """An engine of one command a node, which says what it is told to say."""

    name = "fake"
    health_path = "/health"
    metrics = Metrics(path="/metrics")

    def __init__(
        self,
        version: str | None = "1.2.3",
        findings: tuple[Finding, ...] = (),
        ports: tuple[ListeningPort, ...] = (),
    ) -> None:
        self.version = version
        self.findings = findings
        self.ports = ports

    @property
    def release(self) -> str:
        return "1.2"

    def validate(self, profile: Profile, gpus: Iterable[GPU], model: Any = None) -> Report:  # noqa: ARG002
        return Report(self.findings)

    def review(self, shard: ShardSpec) -> Report:  # noqa: ARG002
        return Report(self.findings)

    def commands(self, shard: ShardSpec) -> list[Command]:  # noqa: ARG002
        return [command(self.ports)]

    def endpoints(self, shard: ShardSpec) -> list[Endpoint]:
        return [endpoint(shard.node_addr or "h")] if shard.is_leader else []

    def serves_http(self, shard: ShardSpec) -> bool:
        return shard.is_leader

    def default_leader_port(self, launch_mode: LaunchMode) -> int:  # noqa: ARG002
        return 29501


def command(ports: tuple[ListeningPort, ...] = ()) -> Command:
    stop = Stop(signals=(StopSignal("SIGTERM", 30.0),))
    return Command(name="server", path="fake", args=("serve",), role="serves", ports=ports, stop=stop)


def endpoint(host: str) -> Endpoint:
    return Endpoint(command="server", host=host, port=8000)


def deployment(*nodes: dict[str, Any], **more: Any) -> Deployment:
    return Deployment(**({"engine": "fake", "profile": {"model": "m"}, "nodes": nodes or ({},)} | more))


def errors_of(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(LaunchError) as raised:
        Deployment.from_yaml_text(text, "f.yaml")
    return [(f.where, f.code, f.message) for f in raised.value.report.findings]


def refusals(*nodes: dict[str, Any], engine: FakeEngine | None = None) -> list[tuple[str, str, str]]:
    with pytest.raises(LaunchError) as raised:
        plan(deployment(*nodes), engine or FakeEngine())
    return [(f.where, f.code, f.message) for f in raised.value.report.errors]


# --- reading ---


def test_a_deployment_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(TEXT, encoding="utf-8")
    read = Deployment.from_yaml(path)
    assert read == Deployment.from_yaml_text(TEXT)
    assert read == Deployment(
        engine="fake",
        version="1.2.3",
        profile=Profile(model="m", tensor_parallel_size=2),
        nodes=[
            Node(address="fd00::1", gpus=2, interface="eth0"),
            Node(address="fd00::2", gpus=[GPU(id="0"), GPU(id="3")]),
        ],
        api_key=EnvironmentSecret("MY_KEY"),
        ports={"leader": 29501},
    )


def unreadable(path: Path) -> Finding:
    with pytest.raises(LaunchError) as raised:
        Deployment.from_yaml(path)
    (finding,) = raised.value.report.findings
    return finding


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: \xff")
    for path, reason in (
        (tmp_path / "none.yaml", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (latin, "'utf-8' codec can't decode byte 0xff in position 3: invalid start byte"),
        (tmp_path / "a\0b", "embedded null byte"),
    ):
        assert unreadable(path) == Finding(
            severity="error", code="unreadable-file", message=f"{path}: {reason}", where=str(path)
        )


@pytest.mark.parametrize(
    ("text", "kind"), [("", "empty"), ("- 1", "list"), ("just text", "str"), ("5", "int")]
)
def test_a_file_that_is_no_mapping_is_named(text: str, kind: str) -> None:
    message = f"f.yaml: a deployment file is a mapping with engine, profile and nodes, not {kind}"
    assert errors_of(text) == [("f.yaml", "unreadable-file", message)]


BASE = "engine: fake\nprofile: {model: m}\nnodes: [{}]\n"


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            "{}",
            [
                ("engine", "missing", "is required"),
                ("profile", "missing", "is required"),
                ("nodes", "missing", "is required"),
            ],
        ),
        (
            "engine: fake\nprofile: {model: m, kv_events: {prt: 1}}\nnodes: [{}, {gpus: x, adress: a}]",
            [
                ("profile.kv_events.prt", "unknown-key", "unknown key 'prt'; did you mean 'port'?"),
                (
                    "nodes[1].gpus",
                    "gpus",
                    "give a count, a list of ids, or a count and a model like '8 x H100', not 'x'",
                ),
                ("nodes[1].adress", "unknown-key", "unknown key 'adress'; did you mean 'address'?"),
            ],
        ),
        (
            "engine: fake\nprofile: {model: m}\nnodes: []",
            [("nodes", "nodes", "there must be at least one node")],
        ),
        (
            BASE + "version: 0.32",
            [
                (
                    "version",
                    "version",
                    "must be text in quotes, not the number 0.32: a number loses a zero at its end",
                )
            ],
        ),
        (
            BASE + "platform: gpu",
            [("platform", "value", "should be 'cuda', 'rocm', 'xpu' or 'cpu', not 'gpu'")],
        ),
        (
            BASE + "api_key: s3cret",
            [
                (
                    "api_key",
                    "secret",
                    "a secret is named, not written: {env: NAME} for an environment variable (letters, "
                    "digits and _, without a $), {file: PATH} for a file (a whole path, without a ~); "
                    "Python code may hand in a pydantic.SecretStr",
                )
            ],
        ),
        (BASE + "1: 2", [("[1]", "value", "Keys should be strings, not 1")]),
    ],
)
def test_every_mistake_in_a_file_is_told_with_its_place(
    text: str, errors: list[tuple[str, str, str]]
) -> None:
    assert errors_of(text) == errors


@pytest.mark.parametrize(
    "text",
    [
        BASE + "api_key: s3cret",
        BASE + "cluster_token: [s3cret]",
        BASE + "pools: {api_key: s3cret}",
        "engine: fake\nprofile: {model: m, env: {HF_TOKEN: s3cret}}\nnodes: [{}]",
        "engine: fake\nprofile: {model: m, env: [HF_TOKEN=s3cret]}\nnodes: [{}]",
        "engine: fake\nprofile: {model: m, args: [--api-key, s3cret]}\nnodes: [{}]",
        "engine: fake\nprofile: [{model: m, env: {HF_TOKEN: s3cret}}]\nnodes: [{}]",
    ],
)
def test_a_secret_written_into_a_file_is_not_repeated(text: str) -> None:
    with pytest.raises(LaunchError) as raised:
        Deployment.from_yaml_text(text, "f.yaml")
    assert "s3cret" not in str(raised.value) + repr(raised.value.report)


# --- planning ---


def test_a_plan_says_what_runs_on_each_node() -> None:
    made = plan(Deployment.from_yaml_text(TEXT), FakeEngine())
    shards = shards_of(Deployment.from_yaml_text(TEXT))
    assert made == Plan(
        engine="fake",
        version="1.2.3",
        nodes=(
            NodePlan(
                node_rank=0,
                address="fd00::1",
                shard=shards[0],
                commands=(command(),),
                endpoints=(endpoint("fd00::1"),),
            ),
            NodePlan(node_rank=1, address="fd00::2", shard=shards[1], commands=(command(),), endpoints=()),
        ),
    )
    assert made.as_dict() == {
        "engine": "fake",
        "version": "1.2.3",
        "nodes": [
            {
                "node_rank": 0,
                "address": "fd00::1",
                "commands": [command().as_dict()],
                "endpoints": [
                    {
                        "command": "server",
                        "url": "http://[fd00::1]:8000",
                        "host": "fd00::1",
                        "port": 8000,
                        "data_parallel_ranks": None,
                    }
                ],
            },
            {"node_rank": 1, "address": "fd00::2", "commands": [command().as_dict()], "endpoints": []},
        ],
        "findings": [],
    }


def test_a_plan_names_the_release_that_was_taken_when_no_version_is_given() -> None:
    assert plan(deployment(), FakeEngine(version=None)).version == "1.2"


def test_a_shard_holds_what_is_its_nodes_own() -> None:
    first, second = shards_of(
        deployment(
            {"address": "10.0.0.1", "gpus": 2, "interface": "eth0", "http_port": 1},
            {"address": "10.0.0.2", "gpus": [0, 3], "http_host": "::"},
            launch_mode="ray",
            platform="rocm",
            api_key={"env": "K"},
            cluster_token={"file": "/t"},
            ports={"leader": 6380},
        )
    )
    common: dict[str, Any] = {
        "profile": Profile(model="m"),
        "nnodes": 2,
        "leader_addr": "10.0.0.1",
        "leader_port": 6380,
        "gpus_per_node": (2, 2),
        "ports": {"leader": 6380},
        "launch_mode": "ray",
        "platform": "rocm",
        "api_key": {"env": "K"},
        "cluster_token": {"file": "/t"},
    }
    assert first == ShardSpec(
        node_rank=0, node_addr="10.0.0.1", interface="eth0", http_port=1, gpus=2, **common
    )
    assert second == ShardSpec(node_rank=1, node_addr="10.0.0.2", http_host="::", gpus=[0, 3], **common)


def test_a_single_node_meets_nobody() -> None:
    (only,) = shards_of(deployment({"address": "127.0.0.1", "gpus": 1}))
    assert only == ShardSpec(profile=Profile(model="m"), node_addr="127.0.0.1", gpus=1)


def test_followers_whose_address_a_scheduler_decides_have_a_symbolic_rank() -> None:
    assert [s.node_rank for s in shards_of(deployment({}, {}, {}))] == [0, NodeRank(), NodeRank()]
    assert [s.node_rank for s in shards_of(deployment({"address": "h"}, {}))] == [0, NodeRank()]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            [{"address": "10.0.0.1"}, {"address": "10.0.0.1"}],
            [("nodes[1].address", "same-address-twice", "10.0.0.1 is also the address of nodes[0]")],
        ),
        (
            [{"address": "fd00:0::1"}, {"address": "[fd00::1]"}],
            [("nodes[1].address", "same-address-twice", "fd00::1 is also the address of nodes[0]")],
        ),
        (
            [{"address": "127.0.0.1"}, {"address": "LocalHost"}],
            [
                (
                    "nodes[0].address",
                    "unreachable-address",
                    "127.0.0.1 is an address of one machine alone, and 2 nodes have to meet",
                ),
                (
                    "nodes[1].address",
                    "unreachable-address",
                    "LocalHost is an address of one machine alone, and 2 nodes have to meet",
                ),
            ],
        ),
        (
            [{"address": "a"}, {"address": "b"}, {}],
            [
                (
                    "nodes[2].address",
                    "address-missing",
                    "some followers have an address and this node has none",
                )
            ],
        ),
        (
            [{}, {"address": "b"}],
            [
                (
                    "nodes[0].address",
                    "address-missing",
                    "some followers have an address and this node has none",
                )
            ],
        ),
        (
            [{"address": "a", "gpus": 1}, {"address": "b"}],
            [
                (
                    "nodes[1].gpus",
                    "gpus-missing",
                    "the GPUs of some nodes are stated and of this one are not",
                )
            ],
        ),
    ],
)
def test_nodes_that_cannot_meet_are_named(
    nodes: list[dict[str, Any]], expected: list[tuple[str, str, str]]
) -> None:
    assert refusals(*nodes) == expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (
            (ListeningPort(name="http", base=8000, span=2), ListeningPort(name="kv", base=8001)),
            ["http (8000 to 8001) of server and kv (8001) of server collide"],
        ),
        (
            (ListeningPort(name="http", base=65535, span=2),),
            ["http (65535 to 65536) of server goes above 65535"],
        ),
    ],
)
def test_ports_that_cannot_be_are_named(ports: tuple[ListeningPort, ...], expected: list[str]) -> None:
    assert refusals({}, engine=FakeEngine(ports=ports)) == [
        ("nodes[0]", "port-collision", message) for message in expected
    ]


def test_ports_beside_one_another_do_not_collide() -> None:
    ports = (ListeningPort(name="http", base=8000, span=2), ListeningPort(name="kv", base=8002))
    assert plan(deployment(), FakeEngine(ports=ports)).findings == ()


def finding(severity: Any, where: str) -> Finding:
    return Finding(severity=severity, code="c", message="m", where=where)


def test_what_the_engine_says_about_every_node_is_said_once_and_about_a_node_with_its_place() -> None:
    engine = FakeEngine(findings=(finding("info", "profile.args[0]"), finding("warning", "node.gpus")))
    assert plan(deployment({"address": "a"}, {"address": "b"}), engine).findings == (
        finding("info", "profile.args[0]"),
        finding("warning", "nodes[0].gpus"),
        finding("warning", "nodes[1].gpus"),
    )


def test_an_error_of_the_engine_is_raised_with_everything_that_was_said() -> None:
    engine = FakeEngine(findings=(finding("info", "version"), finding("error", "node.gpus")))
    with pytest.raises(LaunchError) as raised:
        plan(deployment(), engine)
    assert raised.value.report.findings == (finding("info", "version"), finding("error", "nodes[0].gpus"))


@pytest.mark.parametrize(
    ("given", "engine"),
    [({"engine": "other"}, FakeEngine()), ({"version": "9.9.9"}, FakeEngine(version="1.2.3"))],
    ids=["name", "version"],
)
def test_an_engine_other_than_the_deployments_own_is_refused(
    given: dict[str, Any], engine: FakeEngine
) -> None:
    with pytest.raises(LaunchError) as raised:
        plan(deployment(**given), engine)
    assert [f.where for f in raised.value.report.errors] == list(given)


def test_an_engine_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(LaunchError) as raised:
        plan(deployment(engine="vlm"))
    assert raised.value.report.findings == (
        Finding(
            severity="error",
            code="unknown-engine",
            message="engine 'vlm' is not known",
            hint=f"known are {', '.join(engine_names())}",
            where="engine",
        ),
    )


def test_every_engine_that_is_known_is_an_engine() -> None:
    assert "vllm" in engine_names()
    assert all(isinstance(engine_class(name)(), Engine) for name in engine_names())
    assert isinstance(FakeEngine(), Engine)


def test_a_plan_does_not_hold_what_a_secret_is() -> None:
    made = plan(deployment(api_key=SecretStr("s3cret"), cluster_token=SecretStr("s3cret")), FakeEngine())
    assert "s3cret" not in repr(made) + repr(made.as_dict())


def test_a_deployment_and_a_plan_are_hashed_and_pickled() -> None:
    one = Deployment.from_yaml_text(TEXT)
    made = plan(one, FakeEngine())
    for value in (one, made):
        again = pickle.loads(pickle.dumps(value))
        assert (again, hash(again)) == (value, hash(value))


@pytest.mark.parametrize(
    ("host", "url"),
    [("10.0.0.1", "http://10.0.0.1:8000"), ("fd00::1", "http://[fd00::1]:8000"), ("h", "http://h:8000")],
)
def test_an_endpoints_url_is_what_requests_begin_with(host: str, url: str) -> None:
    assert endpoint(host).url == url
