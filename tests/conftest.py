"""Fixtures of all tests: the stacks of framework versions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `stacks` and the like, under importlib mode

from stacks import STACKS, Stack


@pytest.fixture(params=STACKS, ids=lambda stack: stack.name, scope="session")
def stack(request: pytest.FixtureRequest) -> Stack:
    """Each set of framework versions; scripts/test makes them."""
    found: Stack = request.param
    if not (found.bin / "python").exists():
        pytest.fail(f"no environment {found.bin}: run scripts/environment {found.name}")
    return found
