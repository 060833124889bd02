"""The order of the test files: what takes longest begins first, by the times of earlier runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from support.stacks import TESTS

SECONDS = TESTS / "records" / "seconds.json"
"""For each file, the seconds of one of its tests in the mean."""
NEW = 1.0
"""Seconds of a test in a file that no run has timed."""
OFF = 3.0
"""A mean is written anew where it is so many times another: times are never quite the same."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests of each file together, those of the longest file first."""
    known, files = read(), defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)

    def total(name: str) -> float:
        return expected(name, known) * len(files[name])

    return [item for name in sorted(files, key=total, reverse=True) for item in files[name]]


def expected(name: str, known: Mapping[str, float]) -> float:
    """The seconds that a test takes.

    Args:
        name: of the test or of its file.
        known: as `read` has it.
    """
    return known.get(name.partition("::")[0], NEW)


def read() -> dict[str, float]:
    """The seconds of a test in each file, as far as they are known."""
    found: dict[str, float] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    return found


class Timekeeper:
    """Times the tests, in the main process."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up what a test takes."""
        name = report.nodeid.partition("::")[0]
        self._seconds[name] += report.duration
        self._tests[name].add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Writes the means that are new or quite other than before."""
        known = read()
        kept = {name: mean for name, mean in known.items() if (TESTS.parent / name).exists()}
        for name, tests in self._tests.items():
            mean = round(self._seconds[name] / len(tests), 3)
            if is_off(mean, known.get(name)):
                kept[name] = mean
        if kept != known:
            SECONDS.write_text(json.dumps(dict(sorted(kept.items())), indent=0) + "\n")


def is_off(mean: float, before: float | None) -> bool:
    """Whether a mean isn't known yet, or has changed by more than a busy machine may change it."""
    if before is None:
        return True
    least, most = sorted((mean + 0.01, before + 0.01))
    return most > OFF * least
