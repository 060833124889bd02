"""A run's throughput, and the time lost to failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.diagnosis.attempt import Attempt, Failed, Outcome, Seen, Succeeded
from safe_launch.planning.search import as_asked
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.report import summary
from safe_launch.report.throughput import line_of, throughput_of
from support.worlds import HARDWARE, REQUEST, world

MICRO, STEPS = Setting.MICRO_BATCH, Setting.ACCUMULATION
BATCH: dict[Name, Value] = {MICRO: 4, STEPS: 2}


def attempt(number: int = 0, workload: Workload | None = None) -> Attempt:
    """An attempt on two ranks."""
    known = world(BATCH) if workload is None else workload
    return Attempt(number, as_asked(REQUEST, known, HARDWARE), Path())


def seen(
    step: int, timed: int, trained: float, begun: float, ended: float, **observed: Value
) -> Seen:
    """An attempt's final observations."""
    row = RankProgress(0, 1, 1, Phase.ENDED, step, 0, 0, 0, timed=timed, trained=trained)
    return Seen(observed, rows=(row,), span=(begun, ended))


def with_rows(outcome: Outcome, **fields: int) -> Outcome:
    """The outcome of two ranks with these observations."""
    (row,) = outcome.seen.rows
    rows = (replace(row, **fields), replace(row, rank=1, **fields))
    return replace(outcome, seen=replace(outcome.seen, rows=rows))


def document(*outcomes: Outcome) -> dict[str, Any]:
    """The throughput of these attempts."""
    found = throughput_of(outcomes)
    assert found is not None
    return dict(found)


def test_steps_and_samples_over_the_time_spent_training() -> None:
    """The first step, loading and evaluation don't count."""
    found = document(Succeeded(attempt(), seen=seen(101, 100, 50.0, 0.0, 200.0)))
    assert found == {
        "steps": 101,
        "seconds": 50.0,
        "steps_per_second": 2.0,
        "samples_per_second": 32.0,
        "lost": 0.0,
    }
    assert line_of(found) == "trained 101 steps: 2 steps/s, 32 samples/s"


def test_samples_and_tokens_are_those_that_the_ranks_have_seen() -> None:
    """A script's sampler may halve the stated batch."""
    limit = {Fact.SEQUENCE_LENGTH: Known(512, Origin.FLAG, "")}
    workload = world(BATCH)
    workload = replace(workload, known={**workload.known, **limit})
    outcome = Succeeded(attempt(workload=workload), seen=seen(101, 100, 50.0, 0, 60))
    assert "tokens_per_second" not in document(outcome)
    found = document(with_rows(outcome, samples=400, tokens=40_000))
    assert found["samples_per_second"] == 800 / 50
    assert found["tokens_per_second"] == 80_000 / 50
    assert line_of(found).endswith("16 samples/s, 1,600 tokens/s at 100 a sample")


def test_ranks_that_share_samples_arent_added_up() -> None:
    """Their batches are parts of the same samples."""
    workload = world(BATCH)
    parallel = {Fact.MODEL_PARALLEL: Known(2, Origin.FLAG, "")}
    workload = replace(workload, known={**workload.known, **parallel})
    outcome = Succeeded(attempt(workload=workload), seen=seen(101, 100, 50.0, 0, 60))
    assert "samples_per_second" not in document(with_rows(outcome, samples=400, tokens=4))


def test_steps_before_a_resume_arent_the_runs() -> None:
    """Its first attempt began at step 100; a later resume changes no total."""
    first = with_rows(Failed(attempt(), (), seen(121, 18, 9.0, 0, 30)), start=100)
    again = with_rows(Succeeded(attempt(1), seen=seen(150, 28, 14.0, 30, 60)), start=120)
    assert document(first)["steps"] == 21
    found = document(first, again)
    assert (found["steps"], found["reached"]) == (50, 150)
    assert line_of(found).startswith("trained 50 steps, up to step 150: 2 steps/s")
    whole = with_rows(Failed(attempt(), (), seen(121, 120, 60.0, 0, 90)), start=0)
    assert document(whole, again)["steps"] == 150


@pytest.mark.parametrize(
    "known",
    [
        {},
        {MICRO: Known(4, Origin.FLAG, "")},
        {MICRO: Known(4, Origin.DEFAULT, ""), STEPS: Known(2, Origin.FLAG, "")},
        {
            MICRO: Known(4, Origin.FLAG, ""),
            STEPS: Known(2, Origin.FLAG, ""),
            Fact.MODEL_PARALLEL: Known(2, Origin.FLAG, ""),
        },
    ],
    ids=["nothing", "no accumulation", "an assumption", "ranks share samples"],
)
def test_a_batch_that_isnt_known_is_left_out(known: dict[Name, Known]) -> None:
    """An unknown batch isn't guessed."""
    workload = Workload(known=MappingProxyType(known))
    outcome = Succeeded(attempt(workload=workload), seen=seen(101, 100, 50.0, 0, 60))
    assert document(outcome).keys() == {"steps", "seconds", "steps_per_second", "lost"}


def test_what_the_plan_or_a_worker_says_of_the_batch_holds() -> None:
    """The plan replaced the script's batch; a worker saw another accumulation."""
    outcome = Succeeded(attempt(), seen=seen(11, 10, 10.0, 0, 60, accumulation=8))
    assert document(outcome)["samples_per_second"] == 4 * 8 * 2


def test_without_timed_steps_nothing_is_said() -> None:
    """No board, no optimizer, or a single step."""
    for last in (Seen({}), seen(1, 0, 0.0, 0, 9)):
        assert throughput_of([Succeeded(attempt(), seen=last)]) is None


def test_what_is_lost_to_failures() -> None:
    """Of 60 s with 40 steps of 1 s, only steps before the resume point count."""
    first = Failed(attempt(), (), seen(41, 40, 40.0, 0.0, 60.0))
    resumed = Succeeded(attempt(1), seen=seen(61, 40, 40.0, 70.0, 120.0))  # begins at step 21
    again = Succeeded(attempt(1), seen=seen(61, 60, 60.0, 70.0, 140.0))
    assert document(first, resumed)["lost"] == pytest.approx((70 - 20) / 120)
    assert document(first, again)["lost"] == pytest.approx(70 / 140)
    assert line_of(document(first, again)).endswith("; 50% of the time lost to failures")


def test_a_failure_before_the_first_step() -> None:
    """The whole attempt is lost; the throughput is the second attempt's."""
    first = Failed(attempt(), (), Seen({}, span=(0.0, 30.0)))
    done = Succeeded(attempt(1), seen=seen(11, 10, 5.0, 40.0, 100.0))
    found = document(first, done)
    assert (found["lost"], found["steps_per_second"]) == (pytest.approx(0.4), 2.0)
    last = Failed(attempt(1), (), Seen({}, span=(110.0, 120.0)))
    assert document(done, last)["steps_per_second"] == 2.0


def test_the_summary_has_the_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Between the outcome and the path of the records; JSON has it, too."""
    outcome = Succeeded(attempt(), seen=seen(101, 100, 50.0, 0.0, 60.0))
    summary.show_end([outcome], {}, tmp_path, 0)
    first, second = capsys.readouterr().err.splitlines()
    told = "attempt 1: succeeded; trained 101 steps: 2 steps/s, 32 samples/s"
    assert first == f"[safe-launch] {told}"
    assert second.startswith("[safe-launch] exit code 0")
    assert summary.document([outcome], 0)["throughput"] == document(outcome)
    assert summary.document([Succeeded(attempt())], 0) == {"exit_code": 0, "attempts": 1}
