"""The vLLM engine as an object: its programs, its release, and what orchestration code asks of it."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest
from plans import deployment, error, nodes, planned, words

from enginelaunch import GPU, VLLM, Command, Deployment, Engine, LaunchError, Node, Profile, ShardSpec, plan
from enginelaunch.engine import Endpoint, Metrics, engine_class, engine_names

SHARD = ShardSpec(profile=Profile(model="m"))
RAY_SHARD = ShardSpec(profile=Profile(model="m"), launch_mode="ray")

SERVE = words("serve m --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --served-model-name m")


def environment(
    folder: Path,
    vllm: str | None = "0.32.0",
    ray: str | None = None,
    *,
    programs: tuple[str, ...] = ("vllm",),
) -> Path:
    """A made-up Python environment with these releases and programs."""
    packages = folder / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    for name, version in (("vllm", vllm), ("ray", ray)):
        if version is not None:
            metadata = packages / f"{name}-{version}.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for name in programs:
        (folder / "bin" / name).touch()
    return folder


def paths(engine: VLLM, shard: ShardSpec = RAY_SHARD) -> list[str]:
    return [command.path for command in engine.commands(shard)]


def test_it_is_an_engine() -> None:
    engine = VLLM("0.32.0")
    assert isinstance(engine, Engine)
    assert (engine.name, engine.health_path, engine.version, engine.release) == (
        "vllm",
        "/health",
        "0.32.0",
        "0.32.0",
    )
    assert engine.metrics == Metrics(path="/metrics", format="prometheus", needs_key=False)
    assert [engine.default_leader_port(mode) for mode in ("mp", "ray")] == [29501, 6379]


def test_it_is_found_by_its_name() -> None:
    assert "vllm" in engine_names()
    assert engine_class("vllm") is VLLM


def test_an_unknown_engine_names_those_that_there_are() -> None:
    with pytest.raises(LaunchError) as caught:
        engine_class("vlm")
    assert caught.value.report.findings == (
        error(
            "unknown-engine", "engine", "engine 'vlm' is not known", f"known are {', '.join(engine_names())}"
        ),
    )


def test_programs_are_bare_words_unless_they_are_configured() -> None:
    assert paths(VLLM("0.32.0")) == ["ray", "vllm"]
    assert paths(VLLM("0.32.0", path="/a/vllm", ray_path="/b/ray")) == ["/b/ray", "/a/vllm"]
    assert paths(VLLM("0.32.0", path="/a/vllm")) == ["ray", "/a/vllm"]


def test_a_path_is_the_first_item_of_the_argv() -> None:
    (command,) = VLLM("0.32.0", path="/opt/my env/bin/vllm").commands(SHARD)
    assert command.argv == ("/opt/my env/bin/vllm", *SERVE)


def test_it_says_how_it_was_made() -> None:
    engine = VLLM("0.32.0", path="/a/vllm", ray_path="/b/ray")
    assert repr(engine) == "VLLM(version='0.32.0', path='/a/vllm', ray_path='/b/ray')"


def test_find_reads_the_release_and_the_programs_of_an_environment(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env", "0.32.0+cpu", "2.51.0", programs=("vllm", "ray"))
    engine = VLLM.find(str(folder))
    assert (engine.version, engine.release, engine.ray_version) == ("0.32.0+cpu", "0.32.0", "2.51.0")
    assert paths(engine) == [str(folder / "bin" / "ray"), str(folder / "bin" / "vllm")]


def test_find_takes_the_program_itself(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env", "0.16.0")
    engine = VLLM.find(str(folder / "bin" / "vllm"))
    assert (engine.version, paths(engine)) == ("0.16.0", ["ray", str(folder / "bin" / "vllm")])


def test_find_knows_no_release_without_metadata(tmp_path: Path) -> None:
    engine = VLLM.find(str(environment(tmp_path / "env", None)))
    assert (engine.version, engine.release, engine.ray_version) == (None, "0.33.0", None)
    assert [finding.code for finding in engine.review(SHARD).findings] == ["version-not-given"]


@pytest.mark.parametrize("made", ["", "lib", "bin", "bin/vllm"])
def test_a_folder_without_vllm_is_refused(tmp_path: Path, made: str) -> None:
    folder = tmp_path / "env"
    (folder / made).mkdir(parents=True)
    expected = error(
        "not-installed",
        "path",
        f"there is no {folder / 'bin' / 'vllm'}",
        "give the folder of the Python environment in which vLLM is installed",
    )
    engine = VLLM("0.32.0", path="/a/vllm")
    for ask in (VLLM.find, engine.use_installed):
        with pytest.raises(LaunchError) as caught:
            ask(str(folder))
        assert caught.value.report.findings == (expected,)
    assert paths(engine) == ["ray", "/a/vllm"]


def test_find_refuses_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=f"there is no {tmp_path}/env/bin/vllm"):
        VLLM.find(str(tmp_path / "env"))


def test_find_refuses_a_release_that_is_too_old(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env", "0.7.3")
    with pytest.raises(LaunchError, match=r"vllm 0\.7\.3 is older than every known release"):
        VLLM.find(str(folder))


def test_use_installed_wins_over_what_is_configured(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env", "0.16.0", "2.60.0", programs=("vllm", "ray"))
    engine = VLLM("0.32.0", path="/a/vllm", ray_path="/b/ray")
    before = engine.commands(RAY_SHARD)
    engine.use_installed(str(folder))
    assert paths(engine) == [str(folder / "bin" / "ray"), str(folder / "bin" / "vllm")]
    assert [command.path for command in before] == ["/b/ray", "/a/vllm"]
    assert (engine.version, engine.release) == ("0.32.0", "0.32.0")


def test_the_ray_in_use_stays_where_an_environment_has_none(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env")
    engine = VLLM("0.32.0", path="/a/vllm", ray_path="/b/ray")
    engine.use_installed(str(folder))
    assert paths(engine) == ["/b/ray", str(folder / "bin" / "vllm")]


def test_use_installed_takes_programs_as_they_are(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env", programs=("vllm", "ray"))
    engine = VLLM("0.32.0", path="/a/vllm", ray_path="/b/ray")
    engine.use_installed("/c/vllm")
    assert paths(engine) == ["/b/ray", "/c/vllm"]
    engine.use_installed("/c/vllm", "/c/ray")
    assert paths(engine) == ["/c/ray", "/c/vllm"]
    engine.use_installed(str(folder), "/d/ray")
    assert paths(engine) == ["/d/ray", str(folder / "bin" / "vllm")]


def test_the_release_of_ray_is_that_of_the_ray_in_use(tmp_path: Path) -> None:
    folder = environment(tmp_path / "env", ray="2.40.0", programs=("vllm", "ray"))
    engine = VLLM("0.32.0", path=str(folder / "bin" / "vllm"), ray_path=str(folder / "bin" / "ray"))
    two = deployment(
        {"tensor_parallel_size": 2}, nodes(1, 1), launch_mode="ray", cluster_token={"env": "TOKEN"}
    )
    assert "ray-version-unknown" in [finding.code for finding in plan(two, engine).findings]
    engine.use_installed(str(folder))
    with pytest.raises(LaunchError, match=r"Ray 2\.40\.0 has no token authentication"):
        plan(two, engine)


def test_both_programs_change_together_whatever_another_thread_does(tmp_path: Path) -> None:
    folders = [environment(tmp_path / name, programs=("vllm", "ray")) for name in ("one", "two")]
    expected = {(str(f / "bin" / "ray"), str(f / "bin" / "vllm")) for f in folders}
    engine = VLLM("0.32.0")
    engine.use_installed(str(folders[0]))
    done = threading.Event()
    failures: list[BaseException] = []

    def switch() -> None:
        try:
            for _ in range(10):
                for folder in folders:
                    engine.use_installed(str(folder))
        except BaseException as failure:
            failures.append(failure)
        finally:
            done.set()

    threads = [threading.Thread(target=switch) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = set()
    while not done.is_set():
        seen.add(tuple(paths(engine)))
    for thread in threads:
        thread.join()
    assert failures == []
    assert seen <= expected
    assert tuple(paths(engine)) in expected


def test_plans_of_many_threads_are_those_of_one() -> None:
    engine = VLLM("0.32.0")
    profile = Profile(model="m", tensor_parallel_size=8, pipeline_parallel_size=4)
    shards = [
        ShardSpec(
            profile=profile, nnodes=4, node_rank=rank, leader_addr="10.0.0.1", node_addr=f"10.0.0.{rank + 1}"
        )
        for rank in range(4)
    ]
    alone = [VLLM("0.32.0").commands(shard) for shard in shards]
    results: list[list[list[Command]]] = []
    threads = [
        threading.Thread(target=lambda: results.append([engine.commands(shard) for shard in shards]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [alone] * 8


def test_profiles_that_follow_one_another_are_not_mixed_up() -> None:
    engine = VLLM("0.32.0")
    for number in range(200):
        shard = ShardSpec(profile=Profile(model=f"m{number}"))
        (command,) = engine.commands(shard)
        assert command.argv[2] == f"m{number}"
        del shard, command
        if number % 50 == 0:
            gc.collect()


def test_one_profile_serves_shards_of_different_shapes() -> None:
    engine = VLLM("0.32.0")
    profile = Profile(model="m")
    ports = [ShardSpec(profile=profile, http_port=port) for port in (8000, 8001, 8000)]
    assert [engine.commands(shard)[0].argv[6] for shard in ports] == ["8000", "8001", "8000"]
    keyed = [ShardSpec(profile=profile, api_key=key) for key in (None, {"env": "A"}, {"env": "B"}, None)]
    assert [
        {name: secret.as_dict() for name, secret in engine.commands(shard)[0].secret_env.items()}
        for shard in keyed
    ] == [{}, {"VLLM_API_KEY": {"env": "A"}}, {"VLLM_API_KEY": {"env": "B"}}, {}]


def test_commands_of_a_shard_are_those_of_the_plan() -> None:
    engine = VLLM("0.32.0")
    made = planned({"tensor_parallel_size": 2}, nodes(1, 1), engine=engine)
    assert [tuple(engine.commands(machine.shard)) for machine in made.nodes] == [
        machine.commands for machine in made.nodes
    ]
    assert [tuple(engine.endpoints(machine.shard)) for machine in made.nodes] == [
        machine.endpoints for machine in made.nodes
    ]


@pytest.mark.parametrize(("rank", "serves"), [(0, True), (1, False)])
def test_a_node_serves_http_when_it_has_an_endpoint(rank: int, serves: bool) -> None:
    engine = VLLM("0.32.0")
    shard = ShardSpec(
        profile=Profile(model="m", tensor_parallel_size=2),
        nnodes=2,
        node_rank=rank,
        leader_addr="10.0.0.1",
        node_addr=f"10.0.0.{rank + 1}",
    )
    assert engine.serves_http(shard) is serves
    assert engine.endpoints(shard) == (
        [Endpoint(command="server", host="10.0.0.1", port=8000)] if serves else []
    )


def test_a_shard_that_cannot_be_launched_says_so_whatever_is_asked() -> None:
    engine = VLLM("0.32.0")
    shard = ShardSpec(profile=Profile(model="m", tensor_parallel_size=2, args=["--headless"]), gpus=1)
    report = engine.review(shard)
    assert [finding.code for finding in report.errors] == ["refused-argument", "impossible-layout"]
    for ask in (engine.commands, engine.endpoints, engine.kv_event_endpoints, engine.serves_http):
        with pytest.raises(LaunchError) as caught:
            ask(shard)
        assert caught.value.report == report


def test_validate_checks_a_profile_on_the_gpus_of_one_node() -> None:
    engine = VLLM("0.32.0")
    profile = Profile(model="m", tensor_parallel_size=2)
    assert engine.validate(profile, (GPU() for _ in range(2))).ok
    assert engine.validate(profile, [GPU(id=0), GPU(id="cuda:1")]).errors == (
        error(
            "gpu-id",
            "node.gpus",
            "GPU 'cuda:1' is no index and no full UUID, and vLLM finds no GPU by anything else",
            "give an index, or GPU- and the whole UUID as `nvidia-smi -L` shows it",
        ),
    )
    assert [finding.code for finding in engine.validate(profile, []).errors] == ["impossible-layout"]


def test_an_engine_of_the_same_release_plans_a_deployment_and_another_does_not() -> None:
    deployment = Deployment(
        engine="vllm", version="0.32.0", profile=Profile(model="m"), nodes=(Node(gpus=1),)
    )
    planned = plan(deployment, VLLM("0.32.0+cpu", path="/opt/env/bin/vllm"))
    assert planned.nodes[0].commands[0].path == "/opt/env/bin/vllm"
    with pytest.raises(LaunchError, match=r"for 0.32.0, the engine was made for 0.31.0"):
        plan(deployment, VLLM("0.31.0"))
