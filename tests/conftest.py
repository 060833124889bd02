"""What holds for a whole tier: its time limit; and the fixtures of all tests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from safe_launch.system.signals import ENDING, IGNORED, REPORT
from support import order, passed
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
CHANGED = (*ENDING, REPORT, signal.SIGUSR1, signal.SIGUSR2)
for ignored in IGNORED:  # by a shell, for what runs in its background; launches inherit it
    signal.signal(ignored, signal.SIG_DFL)


@dataclass(frozen=True)
class Tier:
    """What the tests of a folder have in common.

    Attributes:
        seconds: after which a test hangs, on a busy machine.
        filters: of warnings, as `warnings.filterwarnings` has them.
    """

    seconds: float
    filters: tuple[str, ...] = ()


STRICT = ("error", "ignore:unclosed <socket:ResourceWarning")
"""A launcher that is refused ends, and its connections with it. In a test they are garbage, which
is collected in whatever test runs by then."""
TIERS = {
    "unit": Tier(120, filters=STRICT),
    "commands": Tier(120, filters=STRICT),
    "project": Tier(120),
    "processes": Tier(900),
    "clusters": Tier(900),
    "training": Tier(1800),
    "frameworks": Tier(3600),
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


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what it runs in the background with these ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    sys.dont_write_bytecode = False  # of the tests, with their asserts: that takes as long again
    if not hasattr(config, "workerinput"):
        passed.ask_for(config)
        config.pluginmanager.register(passed.Keeper())
        config.pluginmanager.register(order.Timekeeper())


def pytest_collection_finish() -> None:
    """What tests import themselves is written, or isn't, as the environment says."""
    sys.dont_write_bytecode = sys.flags.dont_write_bytecode == 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks every test as its tier is, and leaves out trainings that nothing has changed for."""
    for item in items:
        tier = TIERS[item.path.relative_to(TESTS).parts[0]]
        item.add_marker(pytest.mark.timeout(tier.seconds))
        if tier.filters:  # before a test's own, which hold
            item.add_marker(pytest.mark.filterwarnings(*tier.filters), append=False)
    run = list(passed.chosen(items))
    if left_out := set(items).difference(run):
        config.hook.pytest_deselected(items=list(left_out))
    items[:] = order.longest_first(run)
