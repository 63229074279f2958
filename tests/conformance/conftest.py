"""What the conformance tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).parent

# The tests are imported by their path, so the modules they share have to be made findable.
sys.path.insert(0, str(HERE))

from real_vllm import SET_UP_COMMANDS, RealVLLM, missing_variables  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)


def not_set_up(message: str) -> NoReturn:
    """Skip, or fail where every tier has to run."""
    if os.environ.get("ENGINELAUNCH_REQUIRE_ALL_TIERS") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def real_vllm() -> Iterator[RealVLLM]:
    """Return the real vLLM releases and Ray."""
    missing = missing_variables(os.environ)
    if missing:
        not_set_up(f"{' and '.join(missing)} not set; run: {SET_UP_COMMANDS}")
    with RealVLLM.from_environment(os.environ) as real:
        yield real
