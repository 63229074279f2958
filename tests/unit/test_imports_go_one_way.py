"""The rooms of the package know each other in one direction only."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import enginelaunch

ROOT = Path(enginelaunch.__file__).parent
ENGINE_NAMES = frozenset({"vllm", "sglang", "llamacpp", "llama.cpp"})


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


def imports_of(source: str, name: str, known: Iterable[str]) -> set[str]:
    """The modules of ours that a module imports, inside functions too, but not for annotations only."""
    known = set(known)
    found: set[str] = set()
    for node in at_runtime(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else str(node.module))
    return (found & known) - {name}


def at_runtime(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from at_runtime(child)


IMPORTS = {name: imports_of(source, name, SOURCES) for name, source in SOURCES.items()}


def cycle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring, or nothing."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(imports.get(name, ())):
            found = walk(other, [*path, name])
            if found:
                return found
        done.add(name)
        return []

    return next((found for name in sorted(imports) if (found := walk(name, []))), [])


def in_room(name: str, room: str) -> bool:
    return name == f"enginelaunch.{room}" or name.startswith(f"enginelaunch.{room}.")


def strangers(imports: Mapping[str, set[str]], room: str, allowed: Iterable[str]) -> set[tuple[str, str]]:
    """Imports of a room that lead anywhere but into itself and the rooms allowed."""
    rooms = (room, *allowed)
    return {
        (name, other)
        for name, others in imports.items()
        if in_room(name, room)
        for other in others
        if not any(in_room(other, known) for known in rooms)
    }


def forbidden(imports: Mapping[str, set[str]], room: str, others: Iterable[str]) -> set[tuple[str, str]]:
    return {
        (name, other)
        for name, found in imports.items()
        if in_room(name, room)
        for other in found
        if any(in_room(other, one) for one in others)
    }


def name_comparisons(source: str) -> list[int]:
    """Lines on which something is compared with an engine's name."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        compared: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        texts = {
            inner.value
            for part in compared
            for inner in ast.walk(part)
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
        }
        if texts & ENGINE_NAMES:
            lines.append(node.lineno if isinstance(node, ast.Compare) else compared[0].lineno)  # type: ignore[attr-defined]
    return lines


def test_no_modules_import_each_other_in_a_ring() -> None:
    assert cycle_in(IMPORTS) == []


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("argv", ()),
        ("addresses", ()),
        ("findings", ()),
        ("command", ("addresses",)),
        ("spec", ("addresses", "command")),
        ("profile", ("addresses", "command", "spec")),
        ("shard", ("addresses", "command", "spec", "profile")),
        ("engine", ("addresses", "command", "findings", "spec", "profile", "shard")),
        ("yaml_file", ("findings",)),
    ],
)
def test_a_room_knows_only_the_rooms_below_it(room: str, allowed: tuple[str, ...]) -> None:
    assert f"enginelaunch.{room}" in SOURCES
    assert strangers(IMPORTS, room, allowed) == set()


@pytest.mark.parametrize(
    ("room", "others"),
    [
        ("deployment", ("engines", "render", "supervisor", "cli")),
        ("engines", ("deployment", "render", "supervisor", "cli")),
        ("render", ("engines", "supervisor", "cli")),
        ("supervisor", ("engines", "render", "cli")),
        ("hardware", ("engines", "deployment", "render", "supervisor", "cli")),
    ],
)
def test_a_room_does_not_know_the_rooms_beside_and_above_it(room: str, others: tuple[str, ...]) -> None:
    assert forbidden(IMPORTS, room, others) == set()


def test_nobody_knows_the_command_line() -> None:
    users = {name for name, found in IMPORTS.items() if any(in_room(other, "cli") for other in found)}
    assert {name for name in users if not in_room(name, "cli")} == set()


def test_no_engine_is_told_apart_by_its_name_outside_its_room() -> None:
    found = {
        name: lines
        for name, source in SOURCES.items()
        if not in_room(name, "engines") and name != "enginelaunch.engine"
        if (lines := name_comparisons(source))
    }
    assert found == {}


# --- the checks are able to fail ---


def test_the_ring_check_sees_a_ring() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_import_check_sees_imports_wherever_they_stand() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "import pkg.one\n"
        "from pkg import two, other\n"
        "if TYPE_CHECKING:\n    import pkg.three\n"
        "def f():\n    from pkg.four import x\n"
    )
    known = {"pkg", "pkg.one", "pkg.two", "pkg.three", "pkg.four"}
    assert imports_of(source, "me", known) == {"pkg", "pkg.one", "pkg.two", "pkg.four"}


def test_the_room_checks_see_a_stranger() -> None:
    imports = {"enginelaunch.argv.x": {"enginelaunch.cli", "enginelaunch.argv"}}
    assert strangers(imports, "argv", ()) == {("enginelaunch.argv.x", "enginelaunch.cli")}
    assert forbidden(imports, "argv", ("cli",)) == {("enginelaunch.argv.x", "enginelaunch.cli")}


@pytest.mark.parametrize(
    "source",
    [
        "if engine == 'vllm': pass",
        "x = 'sglang' != name",
        "y = name in ('vllm', 'sglang')",
        "match name:\n    case 'llamacpp': pass",
    ],
)
def test_the_name_check_sees_a_comparison(source: str) -> None:
    assert len(name_comparisons(source)) == 1
    assert name_comparisons("path = path or 'vllm'") == []
