"""Shell scripts: what they look like, and what a real shell makes of them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginelaunch import Command, Deployment, LaunchError, Plan, Profile, ShardSpec, examples, plan, render
from enginelaunch.command import (
    EnvironmentSecret,
    File,
    FileSecret,
    FrozenDict,
    HTTPReady,
    LeaderAddress,
    LiteralSecret,
    NodeRank,
    OwnAddress,
    SocketAddress,
    Stop,
    StopSignal,
    TCPReady,
    Text,
    Wait,
    joined,
)
from enginelaunch.deployment import NodePlan
from enginelaunch.render.shell import command_line, quote

GOLDEN = Path(__file__).parent / "golden" / "shell"

SHELLS = [
    command
    for command in (["dash"], ["bash", "--posix"], ["busybox", "sh"], ["ksh"], ["mksh"], ["yash"])
    if shutil.which(command[0])
]

NASTY = (
    "plain",
    "",
    " ",
    "two words",
    "it's",
    '"quoted"',
    '{"a":[1,"b c"],"d":"$x"}',
    "$HOME ${HOME} $(id) `id`",
    "back\\slash\\",
    "line\nbreak\n",
    "\ttab",
    "-leading",
    "--flag=a b",
    "!history",
    "*?[a]~",
    "~root",
    "=equals",
    "#no comment",
    "a;b|c&d<e>f(g)h",
    "模型 é \U0001f600",
    "\x01\x1b[31m\x7f",
)

STOP = Stop(signals=(StopSignal("SIGTERM", 5.0), StopSignal("SIGKILL", 1.0)))


def command(name: str = "server", path: str = "prog", **parts: Any) -> Command:
    return Command(**{"name": name, "path": path, "role": "serves", "stop": STOP, **parts})


def plan_of(*commands: Command, node_rank: int = 0, nodes: int = 1, address: str | None = "10.0.0.1") -> Plan:
    shard = ShardSpec(profile=Profile(model="m"), nnodes=nodes, node_rank=node_rank)
    node = NodePlan(node_rank=node_rank, address=address, shard=shard, commands=tuple(commands), endpoints=())
    return Plan(engine="engine", version="1.0", nodes=(node,))


def script_of(*commands: Command, **parts: Any) -> str:
    (script,) = render.shell(plan_of(*commands, **parts)).values()
    return script


class Recorded(NamedTuple):
    """What a started program has seen."""

    argv: list[str]
    env: dict[str, str]


class Stub(NamedTuple):
    """A program that records its arguments and environment."""

    path: str
    record: Path

    def seen(self) -> Recorded | None:
        if not self.record.exists():
            return None
        argv, env = json.loads(self.record.read_text(encoding="ascii"))
        return Recorded(argv, env)


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    folder = tmp_path_factory.mktemp("it's a $folder")
    program, record = folder / "the program", folder / "record.json"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import json, os, sys\n"
        f"with open({str(record)!r}, 'w') as file:\n"
        "    decode = lambda text: os.fsencode(text).decode('utf-8')\n"
        "    env = {decode(name): decode(value) for name, value in os.environ.items()}\n"
        "    json.dump([[decode(item) for item in sys.argv], env], file)\n"
    )
    program.chmod(0o755)
    return Stub(str(program), record)


SLEEP = shutil.which("sleep")


@pytest.fixture(scope="session", autouse=True)
def _short_seconds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Scripts watch their commands once a second; here a second is a tenth of one."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "sleep").write_text(f"#!/bin/sh\nexec {SLEEP} 0.$1\n")
    (folder / "sleep").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield


def run_script(
    script: str, shell: list[str] | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(shell or ["sh"]), "-c", script, "sh"],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def recorded(stub: Stub, script: str, env: Mapping[str, str] | None = None) -> Recorded:
    """What the stub has seen when the script was run."""
    stub.record.unlink(missing_ok=True)
    ended = run_script(script, env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    seen = stub.seen()
    assert seen is not None
    return seen


def refused(stub: Stub, script: str, env: Mapping[str, str] | None = None) -> str:
    """What the script says when it starts nothing."""
    stub.record.unlink(missing_ok=True)
    ended = run_script(script, env=env)
    assert ended.returncode != 0
    assert stub.seen() is None
    return ended.stderr


# --- the text of a script ---


@pytest.mark.parametrize("name", ["two-nodes", "two-nodes-ray", "scheduler-decides"])
def test_scripts_of_examples_are_those_in_the_golden_files(name: str) -> None:
    scripts = render.shell(plan(Deployment.from_yaml_text(examples.text(name))))
    files = sorted((GOLDEN / name).iterdir())
    assert scripts == {file.name: file.read_text(encoding="utf-8") for file in files}


def test_each_node_has_a_script() -> None:
    scripts = render.shell(plan(Deployment.from_yaml_text(examples.text("two-nodes"))))
    assert list(scripts) == ["node-0.sh", "node-1.sh"]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_every_shell_can_read_the_scripts_of_all_examples(shell: list[str]) -> None:
    for name in examples.names():
        for script in render.shell(plan(Deployment.from_yaml_text(examples.text(name)))).values():
            # ksh has advice to give about scripts without errors.
            ended = subprocess.run([*shell, "-n"], input=script, capture_output=True, text=True, check=False)
            assert (ended.returncode, "syntax error" in ended.stderr) == (0, False)


def test_the_check_of_a_script_is_able_to_fail() -> None:
    ended = subprocess.run(["sh", "-n"], input="case x in", capture_output=True, text=True, check=False)
    assert ended.returncode != 0


def test_what_a_header_says_cannot_end_its_line() -> None:
    made = plan_of(command("a\nrm -rf /"))
    lines = render.shell(made)["node-0.sh"].splitlines()
    assert lines[1] == "# engine 1.0, node 0 of 1 (10.0.0.1): starts a rm -rf /."
    assert [line for line in lines if line.strip().startswith("rm")] == []


# --- argument vectors and environments ---


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_the_line_of_a_command_splits_into_its_argument_vector(items: list[str]) -> None:
    assert shlex.split(command_line(items)) == items


def test_the_line_of_a_command_stands_in_its_script() -> None:
    built = command(args=("serve", "a b", '{"c":1}', "it's"))
    lines = [line for line in script_of(built).splitlines() if line.lstrip().startswith("exec ")]
    assert [shlex.split(line) for line in lines] == [["exec", "prog", "serve", "a b", '{"c":1}', "it's"]]


plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.sampled_from(
    NASTY
)


@given(
    args=st.lists(plain_text, max_size=6),
    env=st.dictionaries(st.from_regex(r"X_[A-Za-z0-9_]{0,8}", fullmatch=True), plain_text, max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_a_real_shell_gives_exactly_the_arguments_and_the_environment(
    stub: Stub, args: list[str], env: dict[str, str]
) -> None:
    built = command(path=stub.path, args=tuple(args), env=FrozenDict(env), clear_env=("X_", "OTHER"))
    seen = recorded(stub, script_of(built), {"X_OLD": "old", "KEPT": "kept"})
    assert seen.argv == [stub.path, *args]
    assert {name: value for name, value in seen.env.items() if name.startswith("X_")} == env
    assert seen.env["KEPT"] == "kept"


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_every_shell_gives_exactly_the_arguments_and_the_environment(stub: Stub, shell: list[str]) -> None:
    env = {f"X_{number}": text for number, text in enumerate(NASTY)}
    built = command(path=stub.path, args=NASTY, env=FrozenDict(env), clear_env=("Y_",))
    stub.record.unlink(missing_ok=True)
    ended = run_script(script_of(built), shell, {"Y_OLD": "old", "Z": "kept"})
    assert (ended.returncode, ended.stderr) == (0, "")
    seen = stub.seen()
    assert seen is not None
    assert seen.argv == [stub.path, *NASTY]
    assert {name: value for name, value in seen.env.items() if name[:2] in ("X_", "Y_", "Z")} == env | {
        "Z": "kept"
    }


def test_the_program_takes_the_place_of_the_script() -> None:
    script = script_of(command(path="sh", args=("-c", "echo $$; exit 7")))
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as started:
        output, _ = started.communicate(timeout=30)
    assert (output, started.returncode) == (f"{started.pid}\n", 7)


def test_variables_are_dropped_by_prefix(stub: Stub) -> None:
    built = command(path=stub.path, clear_env=("VLLM_PORT", "RAY_"), env=FrozenDict({"RAY_NEW": "1"}))
    inherited = {"VLLM_PORT": "tcp://1", "VLLM_PORT_80_TCP": "x", "VLLM_OTHER": "kept", "RAY_A": "a\nRAY_B=b"}
    seen = recorded(stub, script_of(built), inherited)
    assert {name: value for name, value in seen.env.items() if name.startswith(("VLLM", "RAY"))} == {
        "VLLM_OTHER": "kept",
        "RAY_NEW": "1",
    }


# --- secrets ---


def test_a_secret_comes_from_the_variable_that_the_reference_names(stub: Stub) -> None:
    secrets = {"VLLM_API_KEY": EnvironmentSecret("LLM_KEY"), "HF_TOKEN": EnvironmentSecret("HF_TOKEN")}
    script = script_of(command(path=stub.path, secret_env=FrozenDict(secrets)))
    seen = recorded(stub, script, {"LLM_KEY": "s3c ret$x", "HF_TOKEN": "hf"})
    assert (seen.env["VLLM_API_KEY"], seen.env["HF_TOKEN"]) == ("s3c ret$x", "hf")
    assert '    export VLLM_API_KEY="${LLM_KEY:?}"' in script.splitlines()


def test_without_its_secret_nothing_is_started(stub: Stub) -> None:
    secrets = FrozenDict({"VLLM_API_KEY": EnvironmentSecret("LLM_KEY")})
    script = script_of(command(path=stub.path, secret_env=secrets))
    assert "set LLM_KEY to the secret for VLLM_API_KEY" in refused(stub, script)
    assert "set LLM_KEY to the secret for VLLM_API_KEY" in refused(stub, script, {"LLM_KEY": ""})


@pytest.mark.parametrize(
    ("content", "secret"),
    [("key\n", "key"), ("key", "key"), ("key\n\n", "key\n"), (" k e y \n", " k e y "), ("a\nb.\n", "a\nb.")],
)
def test_a_secret_file_loses_one_newline_at_its_end(
    stub: Stub, tmp_path: Path, content: str, secret: str
) -> None:
    file = tmp_path / "-the key"
    file.write_text(content)
    secrets = FrozenDict({"VLLM_API_KEY": FileSecret(str(file))})
    seen = recorded(stub, script_of(command(path=stub.path, secret_env=secrets)))
    assert seen.env["VLLM_API_KEY"] == secret


def test_a_secret_file_that_is_not_there_or_empty_starts_nothing(stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "key"
    script = script_of(command(path=stub.path, secret_env=FrozenDict({"KEY": FileSecret(str(file))})))
    assert f"node-0: cannot read the secret file {file}\n" in refused(stub, script)
    file.write_text("\n")
    assert refused(stub, script) == f"node-0: the secret file {file} is empty\n"


def test_a_secret_from_python_code_is_asked_for_and_never_written(stub: Stub) -> None:
    secrets = FrozenDict({"VLLM_API_KEY": LiteralSecret("s3cret")})
    script = script_of(command(path=stub.path, secret_env=secrets))
    assert "s3cret" not in script
    assert "set VLLM_API_KEY to the secret for VLLM_API_KEY" in refused(stub, script)
    assert recorded(stub, script, {"VLLM_API_KEY": "other"}).env["VLLM_API_KEY"] == "other"


def test_a_secret_is_read_before_its_variable_is_dropped_or_set(stub: Stub) -> None:
    secrets = {"X_KEY": EnvironmentSecret("X_KEY"), "A": EnvironmentSecret("B"), "B": EnvironmentSecret("A")}
    built = command(path=stub.path, secret_env=FrozenDict(secrets), clear_env=("X_",))
    seen = recorded(stub, script_of(built), {"X_KEY": "key", "A": "a", "B": "b"})
    assert {name: seen.env[name] for name in secrets} == {"X_KEY": "key", "A": "b", "B": "a"}


# --- placeholders ---


def placeholder_command(path: str) -> Command:
    args: tuple[Text, ...] = (
        LeaderAddress(),
        joined("tcp://", LeaderAddress(in_url=True), ":6379"),
        NodeRank(),
        NodeRank(times=8, plus=0),
        joined("rank ", NodeRank(times=2, plus=-1), "!"),
    )
    return command(path=path, args=args, env=FrozenDict({"HOST_IP": OwnAddress()}))


def test_placeholders_are_variables_of_the_script(stub: Stub) -> None:
    script = script_of(placeholder_command(stub.path), node_rank=2, nodes=3, address=None)
    seen = recorded(stub, script, {"LEADER_ADDR": "10.0.0.1", "NODE_ADDR": "10.0.0.3"})
    assert seen.argv[1:] == ["10.0.0.1", "tcp://10.0.0.1:6379", "2", "16", "rank 3!"]
    assert seen.env["HOST_IP"] == "10.0.0.3"


def test_a_scheduler_can_say_another_rank_and_ipv6_addresses(stub: Stub) -> None:
    script = script_of(placeholder_command(stub.path), node_rank=2, nodes=3, address=None)
    given_values = {"LEADER_ADDR": "fd00::1", "NODE_ADDR": "fd00::2", "NODE_RANK": "5"}
    seen = recorded(stub, script, given_values)
    assert seen.argv[1:] == ["fd00::1", "tcp://[fd00::1]:6379", "5", "40", "rank 9!"]
    assert seen.env["HOST_IP"] == "fd00::2"


def test_without_the_values_of_its_placeholders_a_script_starts_nothing(stub: Stub) -> None:
    script = script_of(placeholder_command(stub.path), node_rank=2, nodes=3, address=None)
    assert "set LEADER_ADDR to the address of node 0, without brackets" in refused(stub, script)
    addresses = {"LEADER_ADDR": "a", "NODE_ADDR": "b"}
    assert "set NODE_ADDR to the address of this node" in refused(stub, script, {"LEADER_ADDR": "a"})
    for rank in ("x", "08", "-1", "a[$(touch /tmp/x)]"):
        refusal = refused(stub, script, {**addresses, "NODE_RANK": rank})
        assert refusal == f"node-2: NODE_RANK is no whole number: {rank}\n"


# --- files ---


def test_files_are_written_with_their_mode_before_the_start(stub: Stub, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k3y\n")
    loose = tmp_path / "loose"
    loose.write_text("old")
    loose.chmod(0o666)
    files = (
        File(path=str(tmp_path / "it's plain"), content="".join(NASTY), mode=0o644),
        File(path=str(tmp_path / "rank"), content=joined("rank ", NodeRank(times=2))),
        File(path=str(loose), content=FileSecret(str(key))),
        File(path=str(tmp_path / "from-env"), content=EnvironmentSecret("KEY"), mode=0o400),
        File(path=str(tmp_path / "config.yaml"), content=LiteralSecret("never")),
    )
    script = script_of(command(path=stub.path, files=files))
    recorded(stub, script, {"KEY": "from\nenv", "SECRET_CONFIG_YAML": "from code", "NODE_RANK": "3"})
    written = {
        Path(file.path).name: (
            Path(file.path).read_text(encoding="utf-8"),
            stat.S_IMODE(Path(file.path).stat().st_mode),
        )
        for file in files
    }
    assert written == {
        "it's plain": ("".join(NASTY), 0o644),
        "rank": ("rank 6", 0o600),
        "loose": ("k3y", 0o600),
        "from-env": ("from\nenv", 0o400),
        "config.yaml": ("from code", 0o600),
    }
    assert "never" not in script


def test_a_file_that_cannot_be_written_starts_nothing(stub: Stub, tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "file"
    script = script_of(command(path=stub.path, files=(File(path=str(path), content="x"),)))
    assert f"node-0: cannot write {path}\n" in refused(stub, script)


# --- names that a shell cannot hold ---


@pytest.mark.parametrize(
    "parts",
    [
        {"env": FrozenDict({"A.B": "1"})},
        {"env": FrozenDict({"1A": "1"})},
        {"secret_env": FrozenDict({"A B": EnvironmentSecret("C")})},
        {"secret_env": FrozenDict({"A": EnvironmentSecret("B:-$(id)")})},
        {"clear_env": ("A.*",)},
        {"files": (File(path="/x", content=EnvironmentSecret("A\nB")),)},
    ],
)
def test_a_name_that_is_no_shell_variable_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(LaunchError) as caught:
        script_of(command(**parts))
    (finding,) = caught.value.report.findings
    assert finding.code == "unwritable-in-shell"
    assert finding.message.endswith("of server is no name that a shell can give to a variable")


@pytest.mark.parametrize(
    "parts", [{"env": FrozenDict({"LEADER_ADDR": "x"})}, {"clear_env": ("LEADER",)}], ids=["set", "dropped"]
)
def test_a_variable_in_which_the_script_holds_an_address_cannot_be_changed(parts: dict[str, Any]) -> None:
    with pytest.raises(LaunchError) as caught:
        script_of(command(args=(LeaderAddress(),), **parts))
    (finding,) = caught.value.report.findings
    assert finding.message == (
        "server sets or drops LEADER_ADDR, in which the script holds the address of node 0, without brackets"
    )
    assert "LEADER_ADDR=x" in script_of(command(env=FrozenDict({"LEADER_ADDR": "x"})))


# --- pasting ---


def test_a_script_that_was_cut_off_starts_nothing(stub: Stub) -> None:
    whole = script_of(command(path=stub.path))
    stub.record.unlink(missing_ok=True)
    for end in range(0, len(whole) - len("esac\n"), 7):
        run_script(whole[:end])
        assert stub.seen() is None


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not here")
def test_a_script_that_is_pasted_leaves_the_shell_as_it_was(stub: Stub) -> None:
    built = command(path=stub.path, env=FrozenDict({"X_NEW": "a!b"}), args=("a!b", "c\nd"))
    stub.record.unlink(missing_ok=True)
    after = 'echo "still here: ${X_NEW-unset} $-" | grep -c "still here: unset .*i"\n'
    ended = subprocess.run(
        ["bash", "--norc", "--noprofile", "--noediting", "-i"],
        input=script_of(built) + after,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        start_new_session=True,
    )
    seen = stub.seen()
    assert seen is not None
    assert (seen.argv[1:], seen.env["X_NEW"]) == (["a!b", "c\nd"], "a!b")
    assert ended.stdout == "1\n"


# --- waiting ---


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, timeout: float = 10.0, host: Text = "127.0.0.1") -> Wait:
    return Wait(address=SocketAddress(host, port), timeout=timeout)


def test_a_command_starts_when_the_address_it_waits_for_accepts_a_connection(
    stub: Stub, free_port: int
) -> None:
    built = command(path=stub.path, waits_for=(wait_for_port(free_port, host=LeaderAddress()),))
    stub.record.unlink(missing_ok=True)
    env = {**os.environ, "LEADER_ADDR": "127.0.0.1"}
    with subprocess.Popen(
        ["sh", "-c", script_of(built)], env=env, stderr=subprocess.PIPE, text=True
    ) as started:
        time.sleep(0.3)
        assert stub.seen() is None
        with socket.create_server(("127.0.0.1", free_port)) as server:
            _, errors = started.communicate(timeout=30)
            server.settimeout(0)
            server.accept()
            with pytest.raises(BlockingIOError):
                server.accept()  # it asked once, and no more
    assert (started.returncode, errors) == (
        0,
        f"node-0: server waits for tcp://127.0.0.1:{free_port}, up to 10 s\n",
    )
    assert stub.seen() is not None


def test_waiting_ends_with_an_error_that_says_for_what(stub: Stub, free_port: int) -> None:
    script = script_of(command(path=stub.path, waits_for=(wait_for_port(free_port, 0.2),)))
    first, last = refused(stub, script).splitlines()
    assert first == f"node-0: server waits for tcp://127.0.0.1:{free_port}, up to 0.2 s"
    assert last.startswith(f"node-0: server waited 0.2 s for tcp://127.0.0.1:{free_port} in vain: ")
    assert last.endswith("Connection refused")


def test_waiting_needs_python3_and_says_so(stub: Stub, free_port: int, tmp_path: Path) -> None:
    for program in ("sh", "env", "sed"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    script = script_of(command(path=stub.path, waits_for=(wait_for_port(free_port),)))
    message = refused(stub, script, {"PATH": str(tmp_path)})
    assert message == "node-0: python3 is needed for waiting, and is not on PATH\n"


# --- several commands ---


def shell_command(name: str, code: str, **parts: Any) -> Command:
    return command(name, "sh", args=("-c", code), **parts)


def python_command(name: str, code: str, **parts: Any) -> Command:
    return command(name, sys.executable, args=("-ISc", code), **parts)


def logs(log: Path, text: str) -> str:
    """Shell code that adds a line to a log."""
    return f"echo {text} >>{quote(str(log))}"


def running(log: Path) -> Path:
    """The file that is there once `until_stopped` heeds signals."""
    return log.with_suffix(".running")


def until_stopped(log: Path, text: str) -> str:
    """Shell code that runs until it is told to end, and then says so in a log."""
    runs = f": >{quote(str(running(log)))}"
    return f"trap '{logs(log, text)}; kill $!; exit' TERM; {runs}; {SLEEP} 60 >/dev/null 2>&1 & wait"


def once_there(path: Path, code: str) -> str:
    """Shell code that runs when a file is there."""
    return f"until [ -e {quote(str(path))} ]; do {SLEEP} 0.05; done; {code}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_last_command_gives_the_script_its_exit_code(log: Path) -> None:
    background = shell_command("background", until_stopped(log, "stopped"))
    ended = run_script(script_of(background, shell_command("last", once_there(running(log), "exit 7"))))
    assert (ended.returncode, ended.stderr) == (7, "")
    assert log.read_text() == "stopped\n"


def test_commands_are_stopped_in_their_order_when_the_script_is(log: Path) -> None:
    def stopped(name: str, order: int) -> Command:
        code = f"{logs(log, f'{name} runs')}; {until_stopped(log, f'{name} stopped')}"
        return shell_command(name, code, stop=Stop(order=order, signals=STOP.signals))

    script = script_of(stopped("one", 2), stopped("two", 0), stopped("three", 1))
    with subprocess.Popen(["sh", "-c", script], stderr=subprocess.PIPE, text=True) as started:
        deadline = time.monotonic() + 20
        while not log.exists() or len(log.read_text().splitlines()) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        started.send_signal(signal.SIGTERM)
        _, errors = started.communicate(timeout=30)
    assert (started.returncode, errors) == (143, "")
    assert log.read_text().splitlines()[3:] == ["two stopped", "three stopped", "one stopped"]


def test_a_command_that_does_not_heed_a_signal_gets_the_next_one(log: Path) -> None:
    stubborn = shell_command(
        "stubborn",
        f"trap '' TERM; {logs(log, '$$')}; while :; do {SLEEP} 0.1; done",
        stop=Stop(signals=(StopSignal("SIGTERM", 0.5), StopSignal("SIGKILL", 1.0))),
    )
    ended = run_script(script_of(stubborn, shell_command("last", once_there(log, ":"))))
    assert (ended.returncode, ended.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def test_what_a_command_has_in_its_environment_does_not_reach_the_next(stub: Stub, free_port: int) -> None:
    head = python_command(
        "head",
        f"import socket, time; time.sleep(0.5); s = socket.create_server(('127.0.0.1', {free_port})); "
        "time.sleep(60)",
        env=FrozenDict({"X_HEAD": "1", "X_BOTH": "head"}),
        clear_env=("Y_",),
        ready=TCPReady(address=SocketAddress("127.0.0.1", free_port), timeout=10),
    )
    server = command(
        path=stub.path, env=FrozenDict({"X_BOTH": "server"}), waits_for=(wait_for_port(free_port),)
    )
    stub.record.unlink(missing_ok=True)
    ended = run_script(script_of(head, server), env={"Y_KEPT": "kept"})
    url = f"tcp://127.0.0.1:{free_port}"
    assert ended.stderr.splitlines()[0] == f"node-0: server waits for {url}, up to 10 s"
    assert ended.returncode == 0
    seen = stub.seen()
    assert seen is not None
    assert {name: value for name, value in seen.env.items() if name[:2] in ("X_", "Y_")} == {
        "X_BOTH": "server",
        "Y_KEPT": "kept",
    }


def test_a_command_that_dies_while_the_next_one_waits_ends_the_script_at_once(
    stub: Stub, free_port: int
) -> None:
    server = command(path=stub.path, waits_for=(wait_for_port(free_port, 600),))
    message = refused(stub, script_of(shell_command("head", "exit 3"), server))
    assert message.splitlines()[-1] == (
        f"node-0: head has ended while server waited for tcp://127.0.0.1:{free_port}"
    )


ANSWERS = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" and ready() else 503)
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""


def http_server(name: str, port: int, ready: str, timeout: float, path: str = "/health") -> Command:
    code = f"import os\nready = lambda: {ready}\n{ANSWERS.replace('PORT', str(port))}"
    address = SocketAddress("127.0.0.1", port)
    return python_command(
        name, code, ready=HTTPReady(address=address, path=path, timeout=timeout, interval=0.1)
    )


def test_servers_that_are_ready_only_together_are_started_together(free_port: int, log: Path) -> None:
    first = http_server("first", free_port, f"os.path.exists({str(log)!r})", 20)
    ended = run_script(script_of(first, shell_command("second", f"{logs(log, 'here')}; {SLEEP} 3")))
    url = f"http://127.0.0.1:{free_port}/health"
    assert (ended.returncode, ended.stderr) == (
        0,
        f"node-0: readiness of first waits for {url}, up to 20 s\n",
    )


def test_a_command_that_does_not_become_ready_ends_the_script(free_port: int, log: Path) -> None:
    never = http_server("never", free_port, "False", 2.5)
    ended = run_script(script_of(never, shell_command("last", until_stopped(log, "stopped"))))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[1:] == [
        f"node-0: readiness of never waited 2.5 s for http://127.0.0.1:{free_port}/health in vain: "
        "HTTP status 503, not 200"
    ]
    assert log.read_text() == "stopped\n"


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_every_shell_watches_several_commands(shell: list[str], log: Path, free_port: int) -> None:
    head = python_command(
        "head",
        f"import os, socket, time; s = socket.create_server(('127.0.0.1', {free_port}))\n"
        # The server asks whether it may start, and the script whether the head is ready.
        "for _ in range(2): s.accept()\n"
        f"while not os.path.exists({str(running(log))!r}): time.sleep(0.05)",
        ready=TCPReady(address=SocketAddress("127.0.0.1", free_port), timeout=10),
    )
    server = shell_command("server", until_stopped(log, "stopped"), waits_for=(wait_for_port(free_port),))
    ended = run_script(script_of(head, server), shell)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "node-0: head has ended with exit code 0")
    assert log.read_text() == "stopped\n"
