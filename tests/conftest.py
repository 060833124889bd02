"""Fixtures of all tests, and what is tried once more."""

from __future__ import annotations

import pytest
from support.processes import workshop  # noqa: F401 - a fixture
from support.stacks import STACKS, Stack


@pytest.fixture(params=STACKS, ids=lambda stack: stack.name, scope="session")
def stack(request: pytest.FixtureRequest) -> Stack:
    """Each set of framework versions; scripts/environment makes them."""
    found: Stack = request.param
    if not (found.bin / "python").exists():
        pytest.fail(f"no environment {found.bin}: run scripts/environment {found.name}")
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What trains for real is tried once more where it fails; the summary says RERUN.

    gloo now and then aborts or stalls a process that ends without `destroy_process_group()` (the
    entry `crash-at-exit`), which most scripts do; plain torchrun, the reference, fails of it.
    """
    for item in items:
        if item.get_closest_marker("frameworks") or item.get_closest_marker("heavy"):
            item.add_marker(pytest.mark.flaky(reruns=1))
