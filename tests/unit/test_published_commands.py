"""Every launch command that the vLLM project publishes is read as its own parser reads it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from enginelaunch.argv import Arguments, parse
from enginelaunch.engines.vllm.flag_table import serve_flags
from enginelaunch.engines.vllm.json_values import json_findings

DATA = Path(__file__).parents[1] / "conformance" / "data" / "published_commands.jsonl.gz"

RELEASE = "0.32.0"


def published(verdict: str) -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [case for case in map(json.loads, lines) if case["verdict"] == verdict]


def read(case: dict[str, Any]) -> Arguments:
    program, subcommand, *arguments = case["argv"]
    assert (program, subcommand) == ("vllm", "serve")
    return parse(arguments, serve_flags(RELEASE, positionals=1))


def differences(case: dict[str, Any]) -> list[str]:
    arguments = read(case)
    found = {**arguments.values(), "model_tag": dict(arguments.positionals).get(0)}
    wrong = [problem.message for problem in arguments.problems]
    for name, recorded in case["non_default"].items():
        value = found.get(name)
        if isinstance(recorded, dict) and recorded.keys() == {"config", "set"}:
            wrong += [f"{name}.{key} was not given" for key in recorded["set"] if key not in (value or {})]
        elif value != recorded:
            wrong.append(f"{name} is {value!r}, not {recorded!r}")
    return wrong


def test_every_accepted_command_is_read_with_its_recorded_values() -> None:
    accepted = published("accepted")
    assert len(accepted) == 1027
    wrong = {case["src"]: differences(case) for case in accepted}
    assert {source: what for source, what in wrong.items() if what} == {}


def test_a_command_that_is_read_differently_is_noticed() -> None:
    case = next(case for case in published("accepted") if "tensor_parallel_size" in case["non_default"])
    changed = {**case, "non_default": {**case["non_default"], "tensor_parallel_size": 3}}
    assert len(differences(changed)) == 1


def complaints(case: dict[str, Any]) -> list[str]:
    arguments = read(case)
    return [
        *(problem.message for problem in arguments.problems),
        *(finding.message for finding in json_findings(arguments, RELEASE)),
    ]


def test_exactly_the_commands_that_the_real_parser_refuses_are_complained_about() -> None:
    assert [case["src"] for case in published("accepted") if complaints(case)] == []
    refused = published("rejected")
    assert len(refused) == 45
    assert sorted({message for case in refused for message in complaints(case)}) == [
        "--attention-config: vLLM 0.32.0 has no key use_fp4_indexer_cache",
        "--compilation-config: vLLM 0.32.0 has no key use_inductor; "
        "did you mean use_inductor_graph_partition?",
        "--disable-log-requests is not a flag of this release; did you mean --enable-log-requests?",
        "--tool-call-parser-plugin is not a flag of this release; did you mean --tool-parser-plugin?",
    ]
    assert all(complaints(case) for case in refused)
