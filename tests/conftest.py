"""What holds for a whole tier: its time limit, its second try; and the fixtures of all tests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from safe_launch.system.signals import REPORT, STOPS
from support import older_stack
from support.processes import workshop  # noqa: F401 - a fixture
from support.stacks import STACKS, TESTS, Stack

# How long an example takes says nothing on a busy machine.
settings.register_profile(
    "busy", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", settings.get_profile("busy"), derandomize=False, max_examples=5000
)
settings.load_profile("busy")
CHANGED = (*STOPS, REPORT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Tier:
    """What the tests of a folder have in common.

    Attributes:
        seconds: after which a test hangs, on a busy machine.
        trains: whether it trains for real.
        filters: of warnings, as `warnings.filterwarnings` has them.
    """

    seconds: float
    trains: bool = False
    filters: tuple[str, ...] = ()


STRICT = ("error", "ignore:unclosed <socket:ResourceWarning")
"""A launcher that is refused ends, and its connections with it. In a test they are garbage, which
is collected in whatever test runs by then."""
TIERS = {
    "unit": Tier(120, filters=STRICT),
    "commands": Tier(120, filters=STRICT),
    "project": Tier(120),
    "processes": Tier(300),
    "clusters": Tier(900),
    "training": Tier(900, trains=True),
    "frameworks": Tier(3600, trains=True),
}


@pytest.fixture(params=STACKS, ids=lambda stack: stack.name, scope="session")
def stack(request: pytest.FixtureRequest) -> Stack:
    """Each set of framework versions; scripts/environment makes them."""
    found: Stack = request.param
    if not (found.bin / "python").exists():
        pytest.fail(f"no environment {found.bin}: run scripts/environment {found.name}")
    return found


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Each test leaves the signals as it has found them: the entry point changes handlers."""
    before = {number: signal.getsignal(number) for number in CHANGED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_configure() -> None:
    """A shell starts what it runs in the background with these ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    sys.dont_write_bytecode = False  # of the tests, with their asserts: that takes as long again


def pytest_collection_finish() -> None:
    """What tests import themselves is written, or isn't, as the environment says."""
    sys.dont_write_bytecode = sys.flags.dont_write_bytecode == 1


def pytest_report_header() -> str:
    """Which tests of the older stack this run has."""
    return older_stack.described()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks every test as its tier is, and leaves out the older stack's that are not drawn.

    What trains for real is tried once more where it fails; the summary says RERUN. gloo now and
    then aborts or stalls a process that ends without `destroy_process_group()` (the entry
    `crash-at-exit`), which most scripts do; plain torchrun, the reference, fails because of it.
    """
    for item in items:
        tier = TIERS[item.path.relative_to(TESTS).parts[0]]
        item.add_marker(pytest.mark.timeout(tier.seconds))
        if tier.filters:  # before a test's own, which hold
            item.add_marker(pytest.mark.filterwarnings(*tier.filters), append=False)
        if tier.trains:
            item.add_marker(pytest.mark.trains)
        if item.get_closest_marker("trains"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if left_out := [item for item in items if not older_stack.is_drawn(item)]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if older_stack.is_drawn(item)]
