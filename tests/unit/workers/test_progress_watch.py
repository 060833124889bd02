"""The watch over progress: its records and reported stragglers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.nodes.peers import Peers
from safe_launch.progress import snapshot
from safe_launch.progress.board import WINDOW, Phase, RankProgress
from safe_launch.progress.snapshot import Snapshot
from safe_launch.workers import progress_watch
from safe_launch.workers.progress_watch import INTERVAL, ProgressWatch
from support.links import linked


def row(rank: int, own: float) -> RankProgress:
    """A rank with steps of one second and this much own time."""
    times = (own,) * WINDOW
    return RankProgress(rank, 9, 1, Phase.TRAINING, 99, 0.1, 9.0, 1.0, times, (1.0,) * WINDOW)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of the watch, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(progress_watch.time, "monotonic", lambda: now[0])
    return now


def test_progress_is_kept_and_a_straggler_is_told_once(tmp_path: Path, clock: list[float]) -> None:
    """The straggler's host is named, on any node."""
    said: list[str] = []
    with linked() as (near, _far):
        peers = Peers({1: near}, progress={1: (row(2, 0.9), row(3, 0.3))})
        ours = (row(0, 0.3), row(1, 0.31))
        watch = ProgressWatch(0, tmp_path, lambda: ours, peers, said.append, bool)
        watch.check()
        assert said == []
        assert watch.pause() == INTERVAL
        for _ in range(3):
            clock[0] += INTERVAL
            watch.check()
        assert watch._writer is not None
        watch._writer.join()
        (line,) = said
        assert line.startswith("rank 2 on far keeps the others waiting")
        kept = snapshot.read(tmp_path, 0)
        assert isinstance(kept, Snapshot)
        assert kept.host == os.uname().nodename
        assert [one.rank for one in kept.rows] == [0, 1]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_who_waits_at_a_terminal_is_told_once(
    tmp_path: Path,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
) -> None:
    """The slowest ranks' phase is shown while no rank has printed."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    output: list[str] = []
    rows = (row(0, 0.3), replace(row(1, 0.3), phase=Phase.LOADING, step=None))
    given = 0, tmp_path, lambda: rows, Peers(), print
    for watch in (ProgressWatch(*given, lambda: bool(output)) for _ in range(2)):
        for _ in range(3):
            clock[0] += INTERVAL
            watch.check()
        output.append("step 1")
    told = "1 of 2 ranks are loading: the script runs, and no step is done yet"
    assert capsys.readouterr().err.count(told) == is_terminal


def test_a_folder_that_is_gone_stops_nothing(tmp_path: Path, clock: list[float]) -> None:
    """A missing folder doesn't end the training."""
    watch = ProgressWatch(1, tmp_path / "gone", lambda: (row(0, 0.3),), Peers(), print, bool)
    clock[0] += INTERVAL
    watch.check()
    assert watch._writer is not None
    watch._writer.join()
    assert not (tmp_path / "gone").exists()
