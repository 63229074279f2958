"""The command line: what it writes, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from enginelaunch import Deployment, __version__, cli, examples, plan, render

PROGRAM = [sys.executable, "-c", "from enginelaunch.cli import main; main()"]

BEGINNING = 'engine: vllm\nversion: "0.32.0"\nnodes: [{gpus: 1}]\n'


class Ended(NamedTuple):
    """What a run of the command line came to."""

    code: int
    out: str
    err: str


def called(*arguments: str) -> Ended:
    """The command line in this process."""
    result = CliRunner().invoke(cli.application(), list(arguments), prog_name="enginelaunch")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def run(
    *arguments: str, stdout: int = subprocess.PIPE, env: Mapping[str, str] | None = None, **options: Any
) -> Ended:
    """The command line in a process of its own, without a terminal."""
    ended = subprocess.run(
        [*PROGRAM, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
        **options,
    )
    out = ended.stdout.decode("utf-8") if ended.stdout is not None else ""
    return Ended(ended.returncode, out, ended.stderr.decode("utf-8"))


def file_with(tmp_path: Path, text: str, name: str = "deployment.yaml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def known_examples() -> str:
    return ", ".join(examples.names())


# --- plan ---

ONE_GPU_PAGE = """\
vllm 0.32.0 on 1 node

node 0  address not known yet
  requests to http://<own address>:8000

  server  role: serves
    unsets     VLLM_PORT*, VLLM_DP_*
    env        CUDA_DEVICE_ORDER=PCI_BUS_ID
               CUDA_VISIBLE_DEVICES=0
    secrets    VLLM_API_KEY from the variable LLM_API_KEY
    runs       vllm serve /models/Llama-3.1-8B-Instruct
                 --host 0.0.0.0
                 --port 8000
                 --tensor-parallel-size 1
                 --served-model-name llama-3.1-8b
                 --max-model-len 32768
    ready      when http://127.0.0.1:8000/health answers 200, within 3600 s
    listens    8000 (http)
    stops by   SIGTERM, after 30 s SIGTERM, after 15 s SIGKILL
"""


def test_a_plan_is_a_page_that_shows_each_command_whole() -> None:
    assert called("plan", "one-gpu") == (0, ONE_GPU_PAGE, "")


def test_a_page_says_what_a_command_waits_for_and_ends_with_the_findings() -> None:
    code, out, _ = called("plan", "two-nodes-ray")
    lines = out.splitlines()
    assert code == 0
    assert "    waits for  10.0.0.1:6379 to accept a connection, up to 600 s" in lines
    assert "    secrets    HF_TOKEN from the variable HF_TOKEN" in lines
    assert "               RAY_AUTH_TOKEN from the file /run/secrets/ray-token" in lines
    assert lines[-6:] == [
        "info     cluster_token: token authentication needs Ray 2.52.0 or newer, and the",
        "         release is not known; an older one ignores the token",
        "         [ray-version-unknown]",
        "         compare with what `ray --version` says on the nodes",
        "info     launch_mode: vLLM 0.32.0 does not bring Ray with it: install it on",
        "         every node [ray-is-separate]",
    ]


def test_a_page_shows_what_a_scheduler_decides_in_angle_brackets() -> None:
    lines = called("plan", "scheduler-decides").out.splitlines()
    assert "node 1  address not known yet" in lines
    assert "    env        VLLM_HOST_IP=<own address>" in lines
    assert "                 --node-rank <node rank>" in lines
    assert "                 --master-addr <leader address>" in lines


def test_a_long_argument_is_never_cut_off(tmp_path: Path) -> None:
    model = "/models/" + "very-long-name/" * 40
    file = file_with(tmp_path, f"{BEGINNING}profile: {{model: {model}}}")
    assert f"    runs       vllm serve {model}\n" in called("plan", file).out
    assert f"    runs       vllm serve {model}\n" in run("plan", file, env={"COLUMNS": "40"}).out


def test_text_of_a_file_is_neither_markup_nor_a_command_to_the_terminal(tmp_path: Path) -> None:
    profile = r'profile: {model: "[red]m[/red] :smile:\e[31m\n", args: ["--revision", "[bold]"]}'
    code, out, _ = called("plan", file_with(tmp_path, BEGINNING + profile))
    assert code == 0
    assert r"    runs       vllm serve '[red]m[/red] :smile:\x1b[31m\n'" in out.splitlines()
    assert "                 --revision '[bold]'" in out.splitlines()
    code, _, err = called("plan", file_with(tmp_path, "engine: '[red]x'\nprofile: {model: m}\nnodes: [{}]"))
    assert (code, err.splitlines()[0]) == (1, "error    engine '[red]x' is not known [unknown-engine]")


def test_a_plan_as_json_is_that_of_the_library() -> None:
    for name in examples.names():
        code, out, err = called("plan", name, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == plan(Deployment.from_yaml_text(examples.text(name))).as_dict()


def test_the_keys_of_a_plan_as_json() -> None:
    data = json.loads(called("plan", "two-nodes", "--json").out)
    node = data["nodes"][0]
    assert list(data) == ["engine", "version", "nodes", "findings"]
    assert list(node) == ["node_rank", "address", "commands", "endpoints"]
    assert {
        "name",
        "role",
        "argv",
        "env",
        "secret_env",
        "clear_env",
        "files",
        "waits_for",
        "ready",
        "stop",
    } <= set(node["commands"][0])


# --- errors in a file ---


def test_every_error_of_a_file_is_said_and_the_exit_code_is_1(tmp_path: Path) -> None:
    file = file_with(tmp_path, BEGINNING + "profile: {model: m, tensor_parallel_size: 0}\nenigne: x")
    code, out, err = called("plan", file)
    assert (code, out) == (1, "")
    assert err == (
        "error    profile.tensor_parallel_size: should be greater than or equal to 1, not\n"
        "         0 [value]\n"
        "error    enigne: unknown key 'enigne'; did you mean 'engine'? [unknown-key]\n"
    )


def test_a_file_that_cannot_be_launched_is_an_error_with_its_hint(tmp_path: Path) -> None:
    file = file_with(tmp_path, BEGINNING + "profile: {model: m, tensor_parallel_size: 3}")
    assert called("plan", file) == (
        1,
        "",
        "error    profile: tensor_parallel_size 3: that makes 3 GPUs, but the nodes have\n"
        "         1 [impossible-layout]\n"
        "         use tensor_parallel_size 1, or give 3 GPUs\n",
    )


def test_errors_as_json_have_the_shape_of_a_plan_without_nodes(tmp_path: Path) -> None:
    file = file_with(tmp_path, BEGINNING + "profile: {model: m, tensor_parallel_size: 3}")
    code, out, err = called("plan", file, "--json")
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "engine": "vllm",
        "version": "0.32.0",
        "nodes": [],
        "findings": [
            {
                "severity": "error",
                "code": "impossible-layout",
                "message": "tensor_parallel_size 3: that makes 3 GPUs, but the nodes have 1",
                "hint": "use tensor_parallel_size 1, or give 3 GPUs",
                "where": "profile",
            }
        ],
    }


def test_errors_of_a_file_that_cannot_be_read_as_json(tmp_path: Path) -> None:
    code, out, err = called("plan", str(tmp_path), "--json")
    assert (code, err) == (2, "")
    assert json.loads(out) == {
        "engine": None,
        "version": None,
        "nodes": [],
        "findings": [
            {
                "severity": "error",
                "code": "unreadable-file",
                "message": f"{tmp_path}: Is a directory",
                "hint": "",
                "where": str(tmp_path),
            }
        ],
    }


@pytest.mark.parametrize(
    "literal",
    [
        "api_key: sk-S3CRET",
        "api_key: [sk-S3CRET]",
        "api_key: {env: A, file: sk-S3CRET}",
        "api_key: {key: sk-S3CRET}",
        "cluster_token: 'sk-S3CRET'",
        "api-key: sk-S3CRET",
        "profile: {model: m, env: {HF_TOKEN: sk-S3CRET}}",
        "profile: {model: m, args: [--api-key, sk-S3CRET]}",
        "profile: {model: m, args: [--api-key=sk-S3CRET]}",
    ],
)
def test_a_secret_that_is_written_into_a_file_is_refused_and_not_repeated(
    tmp_path: Path, literal: str
) -> None:
    profile = "" if literal.startswith("profile") else "profile: {model: m}\n"
    file = file_with(tmp_path, BEGINNING + profile + literal)
    for arguments in (
        ["plan"],
        ["plan", "--json"],
        ["plan", "--shell"],
        ["render", "--to", "shell", "--json"],
    ):
        code, out, err = called(*arguments, file)
        assert code == 1
        assert "S3CRET" not in out + err


# --- files that cannot be read ---


def test_a_name_that_is_neither_a_file_nor_an_example_gets_the_nearest_and_all_examples() -> None:
    code, out, err = called("plan", "two-node")
    assert (code, out) == (2, "")
    assert " ".join(err.split()) == (
        "error there is no file 'two-node', and no example of that name [unreadable-file] "
        f"did you mean two-nodes? The examples are {known_examples()}"
    )


def test_an_example_can_be_named_with_its_ending() -> None:
    assert called("plan", "one-gpu.yaml") == called("plan", "one-gpu")


def test_a_file_on_disk_wins_over_an_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file_with(tmp_path, BEGINNING + "profile: {model: mine}", "one-gpu")
    assert "vllm serve mine" in called("plan", "one-gpu").out
    (tmp_path / "lora").mkdir()
    assert called("plan", "lora") == (2, "", "error    lora: Is a directory [unreadable-file]\n")


@pytest.mark.parametrize(
    "name", ["", "a\0b", "a" * 5000, "no/such/folder", "one-gpu/x", "[red]", "-", "~", "\udcff"]
)
def test_no_name_makes_a_traceback(name: str) -> None:
    code, out, err = called("plan", "--", name)
    assert (code, out) == (2, "")
    assert err.startswith("error    ")


@pytest.mark.parametrize(
    "content", [b"\x7fELF\xd0", b"\xff\xfea", b"a: [", b"", b"[1]", b"\0", b"a: 1\na: 2"]
)
def test_a_file_that_is_no_deployment_is_unreadable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    code, out, err = called("plan", str(path))
    assert (code, out) == (2, "")
    assert err.startswith("error    ")
    assert "[unreadable-file]" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read_is_unreadable(tmp_path: Path) -> None:
    file = file_with(tmp_path, examples.text("one-gpu"))
    Path(file).chmod(0)
    code, out, err = called("plan", file)
    assert (code, out) == (2, "")
    assert " ".join(err.split()) == f"error {file}: Permission denied [unreadable-file]"


# --- scripts ---


def test_the_script_of_one_node_is_written_as_it_is() -> None:
    (script,) = render.shell(plan(Deployment.from_yaml_text(examples.text("one-gpu")))).values()
    assert called("plan", "one-gpu", "--shell") == (0, script, "")
    assert called("render", "one-gpu", "--to", "shell") == (0, script, "")


def test_scripts_of_several_nodes_each_follow_a_comment() -> None:
    one, two = render.shell(plan(Deployment.from_yaml_text(examples.text("two-nodes")))).values()
    written = f"# ===== node-0.sh =====\n{one}\n# ===== node-1.sh =====\n{two}"
    assert called("plan", "two-nodes", "--shell") == (0, written, "")


def test_findings_about_scripts_do_not_stand_in_them() -> None:
    code, out, err = called("render", "two-nodes-ray", "--to", "shell")
    assert code == 0
    assert "ray-is-separate" not in out
    assert err.startswith("info     cluster_token: token authentication")


def test_scripts_are_written_into_a_folder_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "new folder"
    code, out, err = called("plan", "two-nodes", "--shell", "-o", str(folder))
    assert (code, out, err) == (0, f"wrote {folder}/node-0.sh\nwrote {folder}/node-1.sh\n", "")
    scripts = render.shell(plan(Deployment.from_yaml_text(examples.text("two-nodes"))))
    assert {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()} == scripts
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o700}
    (folder / "node-0.sh").write_text("old")
    (folder / "node-0.sh").chmod(0o444)
    assert called("render", "two-nodes", "--to", "shell", "--output", str(folder)).code == 0
    assert (folder / "node-0.sh").read_text(encoding="utf-8") == scripts["node-0.sh"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    file = file_with(tmp_path, "x")
    code, out, err = called("plan", "one-gpu", "--shell", "-o", file)
    assert (code, out) == (2, "")
    assert " ".join(err.split()) == f"error cannot write into '{file}': File exists [unwritable-file]"


def test_scripts_as_json(tmp_path: Path) -> None:
    made = plan(Deployment.from_yaml_text(examples.text("two-nodes")))
    code, out, err = called("render", "two-nodes", "--to", "shell", "--json")
    assert (code, err) == (0, "")
    files = [{"name": name, "path": None, "text": text} for name, text in render.shell(made).items()]
    expected = {"engine": "vllm", "version": "0.32.0", "target": "shell", "files": files, "findings": []}
    assert json.loads(out) == expected
    out = called("render", "two-nodes", "--to", "shell", "--json", "-o", str(tmp_path)).out
    paths = [f"{tmp_path}/node-0.sh", f"{tmp_path}/node-1.sh"]
    assert [file["path"] for file in json.loads(out)["files"]] == paths


def test_what_no_shell_can_hold_is_an_error_of_the_file(tmp_path: Path) -> None:
    file = file_with(tmp_path, BEGINNING + "profile: {model: m, env: {A.B: x}}")
    assert called("plan", file).code == 0
    code, out, _ = called("render", file, "--to", "shell", "--json")
    data = json.loads(out)
    assert (code, data["engine"], data["files"]) == (1, "vllm", [])
    assert [finding["code"] for finding in data["findings"]] == ["unwritable-in-shell"]


# --- examples, schema, version ---


def test_the_examples_are_listed() -> None:
    code, out, err = called("examples")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "data-parallel-experts  A mixture of experts over two nodes, data parallel."
    assert [line.split()[0] for line in out.splitlines()] == list(examples.names())
    assert max(map(len, out.splitlines())) <= 80


def test_the_examples_as_json_are_a_list_of_names_and_what_they_say() -> None:
    expected = [{"name": name, "says": examples.says(name)} for name in examples.names()]
    assert json.loads(called("examples", "--json").out) == expected


def test_an_example_is_shown() -> None:
    assert called("examples", "lora") == (0, examples.text("lora"), "")
    assert json.loads(called("examples", "lora.yaml", "--json").out) == {
        "name": "lora",
        "says": examples.says("lora"),
        "text": examples.text("lora"),
    }


def test_an_example_that_is_not_there_is_bad_input() -> None:
    code, out, err = called("examples", "lorra")
    assert (code, out) == (2, "")
    assert err.startswith("error    'lorra' is no example [unknown-example]\n         did you mean lora?")
    code, out, _ = called("examples", "lorra", "--json")
    assert (code, [finding["code"] for finding in json.loads(out)["findings"]]) == (2, ["unknown-example"])


def test_the_schema_is_one_that_editors_read() -> None:
    code, out, err = called("schema")
    schema = json.loads(out)
    assert (code, err) == (0, "")
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["engine", "profile", "nodes"]
    assert set(schema["properties"]) == set(Deployment.model_fields)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["launch_mode"]["description"].startswith("How the processes of several nodes")
    assert ">>>" not in out
    assert called("schema", "--json").out == out


def test_the_version_is_that_of_the_package() -> None:
    assert called("--version") == (0, f"enginelaunch {__version__}\n", "")


# --- bad usage ---


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["plan"], "Missing argument 'FILE|EXAMPLE'"),
        (["plan", "one-gpu", "two-nodes"], "unexpected extra argument"),
        (["plan", "one-gpu", "--bogus"], "No such option: --bogus"),
        (["plan", "one-gpu", "--output", "x"], "--output needs --shell"),
        (["plan", "one-gpu", "--shell", "--json"], "--json and --shell exclude each other"),
        (["plan", "one-gpu", "-o"], "Option '-o' requires an argument"),
        (["render", "one-gpu"], "Missing option '--to'"),
        (["render", "one-gpu", "--to", "[red]"], "--to takes shell, not '[red]'"),
        (["schema", "x"], "unexpected extra argument"),
    ],
)
def test_bad_usage_is_said_in_a_line_and_the_exit_code_is_2(arguments: list[str], says: str) -> None:
    code, out, err = called(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_without_a_command_there_is_help() -> None:
    code, out, err = called()
    assert code == 2
    assert all(f"\n  {name}" in out + err for name in ("plan", "render", "examples", "schema"))


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr() == (
        "",
        "enginelaunch: the command line needs typer and rich: pip install 'enginelaunch[cli]'\n",
    )


@pytest.mark.parametrize("imported", ["enginelaunch", "enginelaunch.cli"])
def test_what_only_the_command_line_needs_is_not_imported_before_it_runs(imported: str) -> None:
    code = (
        f"import sys, {imported}; print(sorted({{'typer', 'rich', 'yaml', 'pydantic'}} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


# --- streams ---


def test_without_a_terminal_there_are_no_escapes() -> None:
    assert run("plan", "one-gpu") == (0, ONE_GPU_PAGE, "")


def test_on_a_terminal_the_words_are_the_same() -> None:
    ours, theirs = pty.openpty()
    ended = run("plan", "one-gpu", stdout=theirs, env={"TERM": "xterm", "COLUMNS": "80"})
    os.close(theirs)
    shown = b""
    while len(shown) < len(ONE_GPU_PAGE) or not shown.endswith(b"SIGKILL\r\n"):
        shown += os.read(ours, 65536)
    os.close(ours)
    assert ended.code == 0
    assert b"\x1b[" in shown
    plain = shown.decode().replace("\r\n", "\n")
    for escape in ("\x1b[0m", "\x1b[1m", "\x1b[2m"):
        plain = plain.replace(escape, "")
    assert plain == ONE_GPU_PAGE


@pytest.mark.parametrize("arguments", [["plan", "kv-events"], ["plan", "kv-events", "--json"], ["schema"]])
def test_a_reader_that_goes_away_ends_it_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run(*arguments, stdout=writer)
    os.close(writer)
    assert ended == (141, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["plan", "one-gpu"], ["--help"]])
def test_a_full_disk_is_said_in_a_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run(*arguments, stdout=full.fileno())
    assert ended == (2, "", "enginelaunch: cannot write: No space left on device\n")


def test_a_closed_output_makes_no_traceback() -> None:
    code = "import os; os.close(1); os.execv(os.sys.executable, os.sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", code, *PROGRAM, "plan", "one-gpu"], stderr=subprocess.PIPE, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_a_small_alphabet_makes_no_traceback_and_leaves_scripts_whole(
    tmp_path: Path, env: dict[str, str]
) -> None:
    file = file_with(tmp_path, BEGINNING + "profile: {model: /models/é-模}")
    page = run("plan", file, env=env)
    assert page.code == 0
    assert "vllm serve '/models/é-模'" in page.out or r"vllm serve '/models/\xe9-\u6a21'" in page.out
    assert "exec vllm serve '/models/é-模'" in run("plan", file, "--shell", env=env).out
    assert run("plan", "é", env=env).code == 2


def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([*PROGRAM, "plan", str(pipe)], stderr=subprocess.PIPE) as started:
        writer = os.open(pipe, os.O_WRONLY)  # opened when the program reads
        time.sleep(0.1)
        started.send_signal(signal.SIGINT)
        _, err = started.communicate(timeout=30)
        os.close(writer)
    assert (started.returncode, err) == (130, b"")


def file_with_adapter(tmp_path: Path) -> str:
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"r": 24}', encoding="utf-8")
    adapter = f"{{name: sql, path: {folder}}}"
    return file_with(tmp_path, f"{BEGINNING}profile: {{model: m, lora: {{adapters: [{adapter}]}}}}")


@pytest.mark.parametrize(("options", "rank"), [((), None), (("--read-adapters",), "32")])
def test_ranks_of_adapters_are_read_when_that_is_asked_for(
    tmp_path: Path, options: tuple[str, ...], rank: str | None
) -> None:
    code, out, _ = called("plan", file_with_adapter(tmp_path), "--json", *options)
    (node,) = json.loads(out)["nodes"]
    argv = node["commands"][0]["argv"]
    assert code == 0
    assert (argv[argv.index("--max-lora-rank") + 1] if "--max-lora-rank" in argv else None) == rank


def test_an_adapter_that_cannot_be_read_is_unusable_input(tmp_path: Path) -> None:
    file = file_with_adapter(tmp_path)
    (tmp_path / "sql" / "adapter_config.json").write_text("{", encoding="utf-8")
    code, out, err = called("plan", file, "--read-adapters")
    assert (code, out) == (2, "")
    assert "unreadable-adapter" in err
