"""The status of a run, in words."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.progress.board import WINDOW, Phase, RankProgress
from safe_launch.report.run_status import RankStatus, RunStatus, span
from safe_launch.system.kept_runs import LauncherRecord, State, recorded, records

ROW = RankProgress(
    *(0, 71, 9, Phase.TRAINING, 1234, 0.12, 9.0, 0.2, (0.05,) * WINDOW, (0.3,) * WINDOW, 1233),
    *(370.0, 29 << 28),
)


@pytest.fixture
def here(tmp_path: Path) -> LauncherRecord:
    """A running launcher."""
    with recorded(tmp_path, 0, "train.py --lr 1"):
        (found,) = records(tmp_path)
    assert isinstance(found, LauncherRecord)
    return found


def run(*launchers: LauncherRecord, **more: object) -> RunStatus:
    """A run with these launchers."""
    return replace(RunStatus(Path("/runs/train-1"), launchers), **more)  # type: ignore[arg-type]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    """The current time, frozen."""
    at = time.time()
    monkeypatch.setattr(time, "time", lambda: at)
    return at


def test_a_run_that_runs(here: LauncherRecord, now: float) -> None:
    """Where each rank is, since when, and its process's activity."""
    since = replace(here, begun=now - 3700)
    ranks = (
        RankStatus(ROW, "node0", "S"),
        RankStatus(replace(ROW, rank=1, phase=Phase.SAVING, quiet=80.4), "node0", "T"),
        RankStatus(replace(ROW, rank=2, own=(), whole=(), step=None, peak=0), "node1", None, 7.2),
    )
    status = run(since, ranks=ranks, failures={1: "zero2-x", 2: ""})
    assert status.is_running
    assert status.lines() == [
        f"train-1 has run on {os.uname().nodename} for 1 h 1 min",
        "  train.py --lr 1",
        "  attempt 1 failed: zero2-x",
        "  attempt 2 is the last",
        "  rank  host   phase      step  last moved  step time   memory  process",
        "     0  node0  training  1,234       0.1 s      0.3 s  7.2 GiB  sleeps",
        "     1  node0  saving    1,234  1 min 20 s      0.3 s  7.2 GiB  is stopped",
        "     2  node1  training              7.3 s                      as of 7.2 s ago",
        "  /runs/train-1",
    ]


def test_a_straggler_is_named_with_its_host(here: LauncherRecord) -> None:
    """Below the table, and in the JSON."""
    slow = RankStatus(replace(ROW, rank=1, own=(0.25,) * WINDOW), "node1", "R")
    status = run(here, ranks=(RankStatus(ROW, "node0", "S"), slow))
    assert status.lines()[-2] == (
        "  rank 1 on node1 keeps the others waiting, 0.2 s a step: its own part of a step takes "
        "5.0 times as long as theirs"
    )
    (found,) = status.document()["stragglers"]
    assert found["rank"] == 1
    assert status.document()["ranks"][1]["peak"] == 29 << 28


def test_how_a_run_has_ended(here: LauncherRecord, now: float) -> None:
    """Exit code, attempts and throughput, without a table."""
    speed = {"steps": 9, "seconds": 4.0, "steps_per_second": 2.0, "lost": 0.25}
    outcome = {"exit_code": 3, "attempts": 2, "throughput": speed}
    ended = replace(here, ended=now - 90)
    status = run(ended, outcome=outcome, failures={1: "", 2: "rank 0: KeyError: 'x'"})
    assert not status.is_running
    assert status.lines() == [
        "train-1 ended 1 min 30 s ago with exit code 3: the failed worker's own",
        "  train.py --lr 1",
        "  attempt 2 failed: rank 0: KeyError: 'x'",
        "  trained 9 steps: 2 steps/s; 25% of the time lost to failures",
        "  /runs/train-1",
    ]


@pytest.mark.parametrize(
    ("state", "node", "words"),
    [
        (State.GONE, 0, "ended without a word: its launcher on alpha was killed"),
        (State.ENDED, 0, " ago without an outcome: its launcher failed, or had no room"),
        (State.ENDED, 2, "has ended on alpha; node 0 has the outcome"),
        (State.ELSEWHERE, 0, "began on alpha, which has written nothing for more than 1 min"),
    ],
)
def test_runs_without_an_outcome(here: LauncherRecord, state: State, node: int, words: str) -> None:
    """Each state of the launcher has a message."""
    changed = {
        State.GONE: {"started": 1},
        State.ENDED: {"ended": 1.0},
        State.ELSEWHERE: {"place": "elsewhere"},
    }[state]
    launcher = replace(here, host="alpha", node=node, **changed)  # type: ignore[arg-type]
    old = RankStatus(ROW, "alpha", None, 61.0)
    status = run(launcher, ranks=(old,))
    assert launcher.state is state
    assert not status.is_running
    assert words in status.state_text()


def test_a_run_on_another_host_runs_while_it_writes(here: LauncherRecord) -> None:
    """It writes to the shared file system every ten seconds."""
    there = replace(here, host="alpha", place="elsewhere")
    status = run(there, ranks=(RankStatus(ROW, "alpha", None, 9.0),))
    assert status.is_running
    assert "has run on alpha for" in status.lines()[0]


def test_an_older_versions_run() -> None:
    """Its launcher wasn't recorded."""
    assert "of an older version" in run().state_text()
    assert run().lines()[-1] == "  /runs/train-1"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-0.1, "0 ms"),
        (0.0046, "4.6 ms"),
        (0.0996, "0.1 s"),
        (0.44, "0.4 s"),
        (9.96, "10.0 s"),
        (59.4, "59 s"),
        (185, "3 min 5 s"),
        (9600, "2 h 40 min"),
        (180_000, "2 days 2 h"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    """Two units are enough."""
    assert span(seconds) == text
