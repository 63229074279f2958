"""What can be imported from the package, and what importing it costs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import enginelaunch

HEAVY = ("pydantic", "zmq", "yaml", "typer", "rich", "packaging", "msgspec")


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", enginelaunch.__all__)
def test_every_public_name_comes_from_one_of_our_modules(name: str) -> None:
    value = getattr(enginelaunch, name)
    assert value.__module__.startswith("enginelaunch.")
    assert getattr(importlib.import_module(value.__module__), name) is value
    assert getattr(enginelaunch, name) is value


def test_the_public_names_are_those_that_can_be_loaded() -> None:
    assert sorted(enginelaunch.__all__) == sorted(enginelaunch._HOMES)
    assert len(set(enginelaunch.__all__)) == len(enginelaunch.__all__)


def test_the_public_names_are_listed_once_each() -> None:
    names = [getattr(enginelaunch, name) and name for name in enginelaunch.__all__]
    listed = enginelaunch.__dir__()
    assert set(names) <= set(listed)
    assert sorted(set(listed)) == sorted(listed)


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match=r"^module 'enginelaunch' has no attribute 'nope'$"):
        _ = enginelaunch.nope
    with pytest.raises(ImportError, match="cannot import name 'nope'"):
        exec("from enginelaunch import nope")


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert modules_after("import enginelaunch").intersection(HEAVY) == set()


def test_findings_need_no_pydantic() -> None:
    loaded = modules_after("from enginelaunch import Finding, Report, LaunchError, Command")
    assert loaded.intersection({"pydantic", "zmq", "yaml", "typer", "rich"}) == set()


def test_the_check_sees_what_is_loaded() -> None:
    assert modules_after("from enginelaunch import Profile") >= {"pydantic", "enginelaunch.profile"}
    assert "enginelaunch" in modules_after("import enginelaunch")
