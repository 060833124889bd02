"""Random faults in real launches, some drawn for each commit: all promises hold."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import passed
from support.draws import draw
from support.faults.checks import Observed, Result, result_of, wrong
from support.faults.tables import line_of, results_in, tables
from support.faults.trial import FAULTS, MOMENTS, Trial, drawn
from support.hosts import needs_hosts

pytestmark = needs_hosts
ALL = drawn(60, 18)
PER_RUN = 15
TRIALS = ALL if passed.is_whole() else sorted(ALL, key=lambda trial: draw(str(trial)))[:PER_RUN]
SIDE_BY_SIDE = 2
SLOWNESS = 4.0
"""Factor on a campaign's time limits: the machine may be busy."""


@pytest.fixture(scope="module")
def results() -> Iterator[dict[int, Future[tuple[Result, Observed]]]]:
    """The results of all trials, checked while later ones run."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {trial.number: pool.submit(result_of, trial, slowness=SLOWNESS) for trial in TRIALS}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_what_holds_after_a_fault(
    trial: Trial, results: dict[int, Future[tuple[Result, Observed]]]
) -> None:
    """Time, exit codes, culprit, no leftovers, no internal traceback, an intact checkpoint."""
    result, seen = results[trial.number].result()
    print(result, *seen.said, sep="\n-----\n")
    assert dict(result.wrong) == {}


def test_a_seed_gives_the_same_trials() -> None:
    """For any number of trials; each fault occurs at each of its moments."""
    assert drawn(500, 3)[:40] == drawn(40, 3) != drawn(40, 4)
    kinds = {(fault.name, moment) for fault in FAULTS.values() for moment in fault.moments}
    assert {(trial.fault, trial.moment) for trial in drawn(len(kinds), 3)} == kinds
    assert {moment for _, moment in kinds} == {*MOMENTS}


TRIAL = Trial(0, 0, "kill-rank", "steps", "loop", 1, 2, 0, 1, 0.1, 16)
WELL = Observed(TRIAL, "safe-launch", True, (137,), 1.0, (), ("[safe-launch] rank 1 SIGKILL",), "")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"codes": (None,)}, "ended within its time"),
        ({"codes": (1,)}, "exit code"),
        ({"said": ("[safe-launch] rank 0 SIGKILL",)}, "who it was"),
        ({"said": ("rank 1 SIGKILL",)}, "who it was"),
        ({"left": ("port 7000",)}, "nothing left"),
        ({"said": (*WELL.said, 'File "/x/launcher/cli.py"')}, "no traceback of the launcher's"),
        ({"losses": "{3: None}"}, "checkpoint and losses"),
    ],
    ids=str,
)
def test_each_check_can_fail(change: dict[str, Any], name: str) -> None:
    """Alone, with all other values correct."""
    assert wrong(WELL) == {}
    assert [*wrong(replace(WELL, **change))] == [name]


def test_results_survive_a_file(tmp_path: Path) -> None:
    """A campaign resumes from its results, and its tables count violations."""
    results = [
        Result(TRIAL, "safe-launch", True, (137,), 1.25, {}),
        Result(TRIAL, "torchrun", True, (None,), 15.0, {"exit code": "1"}),
    ]
    (kept := tmp_path / "kept").write_text("".join(f"{line_of(each)}\n" for each in results))
    assert results_in(kept) == results
    rows = tables(results)
    assert "| SIGKILL to a rank | 1 of 1 | 1.2 | 1.2 | 0 of 1 | 15.0 | 15.0 |" in rows
    assert "| exit code | 0 | 1 |" in rows
