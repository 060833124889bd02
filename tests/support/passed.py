"""Which trainings and slow launches a run makes anew, and how it keeps what has passed.

A test of `tests/training`, or another one that takes long, is run if its script, its support or the
versions under it (`grounds.py`) have changed since it last passed. If only the launcher's code has,
the commit draws one training in six and every second slow launch; a quarter of them if none of it
runs in a worker; and if nothing has, one in ten. The next commit draws others, and a release runs
all. `tests/records/passed.json` has a line for each. Those for which the time isn't enough stay as
they are, and the next run has them first.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pytest

from support import order
from support.draws import draw
from support.grounds import STACKS, Grounds
from support.reproduce import Script
from support.stacks import OLDER, ROOT, TESTS, Stack

PASSED = TESTS / "records" / "passed.json"
PARTS = 10
NEW = "never passed before"
CODE = "changed: code"
CODES = (CODE, f"{CODE}, worker")
DRAWN = "drawn by the commit"
PARTS_OF_CODE, PARTS_OF_LAUNCHES = 6, 2
"""Nearly every commit changes code, which counts for every training: all of them take an hour."""
OUTSIDE_WORKERS = 4
"""So many times fewer are drawn if the code that has changed runs in no worker."""
LAUNCHING = ("clusters", "commands", "processes")
SLOW = 4.0
"""Mean seconds of a file's tests from which launches are kept as trainings are."""
WORKER_SECONDS = 45 * 60.0
"""Of all such tests that a run may take, by the times of earlier runs, in the sum of its processes:
a change of `tests/conftest.py` would make all run again, which takes longer than a landing may."""
VARIABLE = "SAFE_LAUNCH_TESTS_ANEW"
"""Where it is set, all trainings that are asked for are run; it says why."""
WHOLE = "all are"
"""What `scripts/test --anew` says in it."""
UNAIDED = ("test_it_fails_as_the_entry_says", "test_the_advice_works")
"""Tests of reproductions that no launcher runs."""


def ask_for(config: pytest.Config) -> None:
    """Has trainings run that somebody has named; worker processes inherit it."""
    is_named = any(".py" in argument for argument in config.args)
    is_by_hand = config.args_source is pytest.Config.ArgsSource.ARGS and is_named
    if is_by_hand or config.option.keyword:
        os.environ.setdefault(VARIABLE, "asked for")


def is_whole() -> bool:
    """Whether all is to be run, whatever has passed, as before a release."""
    return os.environ.get(VARIABLE) == WHOLE


def is_kept(item: pytest.Item, seconds: Mapping[str, float]) -> bool:
    """Whether a test isn't run as long as nothing changes: a training, or a slow launch.

    Args:
        item: the test.
        seconds: of a test in each file.
    """
    is_slow = order.expected(item.nodeid, seconds) >= SLOW
    return is_training(item) or (item.path.parent.name in LAUNCHING and is_slow)


def is_training(item: pytest.Item) -> bool:
    """Whether it is a test of `tests/training`, or of the older stack."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return item.path.parent == TESTS / "training" or OLDER in given


def chosen(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests that are to be run, those that are kept with why they are run."""
    grounds, passed, seconds = Grounds(), read(), order.read()
    reasons: dict[str, str] = {}
    kept: list[pytest.Item] = []
    for item in items:
        if not is_kept(item, seconds):
            yield item
            continue
        today = hangs_on(item, grounds)
        parts = PARTS_OF_CODE if is_training(item) else PARTS_OF_LAUNCHES
        if why := reason(item.nodeid, passed.get(item.nodeid, ""), today, parts):
            item.user_properties += [("hangs on", today), ("why", why)]
            reasons[item.nodeid] = why
            kept.append(item)
    run = reasons.keys() if VARIABLE in os.environ else affordable(reasons, seconds)
    yield from (item for item in kept if item.nodeid in run)


def affordable(reasons: Mapping[str, str], seconds: Mapping[str, float]) -> set[str]:
    """The kept tests that a run has time for; those that may have changed come first.

    Args:
        reasons: why each is to be run, by its name.
        seconds: of a test in each file.
    """
    found, left = set(), WORKER_SECONDS
    for name in sorted(reasons, key=lambda name: (urgency(reasons[name]), draw(name))):
        left -= order.expected(name, seconds)
        if left < 0:
            break
        found.add(name)
    return found


def urgency(why: str) -> int:
    """How soon a test is run, by its reason: 0 comes first."""
    return {NEW: 0, DRAWN: 3, **dict.fromkeys(CODES, 2)}.get(why, 1)


def hangs_on(item: pytest.Item, grounds: Grounds) -> str:
    """What a kept test hangs on, as a line."""
    assert isinstance(item, pytest.Function)
    if not is_training(item):
        return grounds.of_all(str(item.path.relative_to(ROOT)))
    given = item.callspec.params if hasattr(item, "callspec") else {}
    stacks = [value for value in given.values() if isinstance(value, Stack)] or STACKS
    scripts = [value for value in given.values() if isinstance(value, Script)]
    script = str(scripts[0].path.relative_to(ROOT)) if scripts else ""
    if script and item.originalname in UNAIDED:
        return grounds.of_reproduction(script, stacks[0])
    return grounds.of_launch(str(item.path.relative_to(ROOT)), stacks, script)


def reason(name: str, before: str, today: str, parts_of_code: int = PARTS_OF_CODE) -> str:
    """Why a test is run, in a few words; empty where it isn't.

    Args:
        name: of the test.
        before: what it hung on when it last passed; empty where that isn't known.
        today: what it hangs on.
        parts_of_code: one in so many is run if only the launcher's code has changed.
    """
    if why := os.environ.get(VARIABLE):
        return why
    if not before:
        return NEW
    old, new = (dict(part.split(":") for part in line.split()) for line in (before, today))
    changed = [part for part in new if new[part] != old.get(part)]
    if not changed:
        return "" if draw(name) % PARTS else DRAWN
    parts = parts_of_code * (OUTSIDE_WORKERS if changed == ["code"] and "worker" in new else 1)
    is_code = {"code", "worker"}.issuperset(changed)
    return "" if is_code and draw(name) % parts else f"changed: {', '.join(changed)}"


def is_only_drawn(item: pytest.Item) -> bool:
    """Whether a test is run although nothing that it hangs on has changed."""
    return ("why", DRAWN) in item.user_properties


def read() -> dict[str, str]:
    """What each test hung on when it last passed."""
    found: dict[str, str] = json.loads(PASSED.read_text()) if PASSED.exists() else {}
    return found


class Keeper:
    """Keeps which tests have passed, and says why they were run; in the main process."""

    def __init__(self) -> None:
        self._passed: dict[str, str] = {}
        self._failed: set[str] = set()
        self._reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the outcome of a kept test."""
        told = dict(report.user_properties)
        if "hangs on" not in told:
            return
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed[report.nodeid] = str(told["hangs on"])
            self._reasons[str(told["why"])] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says how many were run, and why."""
        if self._passed or self._failed:
            why = ", ".join(f"{count} {reason}" for reason, count in self._reasons.most_common())
            known = len(read())
            terminalreporter.write_line(
                f"trainings and slow launches: {len(self._passed)} of {known} passed anew ({why}), "
                f"{len(self._failed)} failed; the others weren't drawn or take too long"
            )

    def pytest_sessionfinish(self) -> None:
        """Writes what has passed; what has failed is to be run again."""
        if self._passed or self._failed:
            kept = {**read(), **self._passed}
            lines = {name: kept[name] for name in sorted(kept) if name not in self._failed}
            PASSED.write_text(json.dumps(lines, indent=0) + "\n")
