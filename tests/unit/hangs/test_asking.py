"""Asking processes in bad states ends in time and reports what is unknown."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.hangs import asking, flight_recorder, proc, stacks
from safe_launch.hangs.asking import standings, up_to_date
from safe_launch.hangs.standing import Standing
from safe_launch.progress.board import Phase, RankProgress


@pytest.fixture(autouse=True)
def without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables py-spy and devices."""
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    monkeypatch.setattr(asking, "utilization", lambda _pids: {})


def row(pid: int, rank: int = 4) -> RankProgress:
    """A row of the board."""
    return RankProgress(rank, pid, 0, Phase.SAVING, 3, 9.0, 12.0, 1.0)


def test_a_rank_that_moved_while_it_was_asked() -> None:
    """The board is read again, so that it matches the newer stack."""
    before = [Standing(3, phase=Phase.LOADING, quiet=9.0), Standing(4, phase=Phase.LOADING)]
    after = replace(row(17), phase=Phase.TRAINING, step=5, quiet=0.5)
    first, second = up_to_date(before, lambda: [after])
    assert first == before[0]
    assert (second.phase, second.step, second.quiet) == (Phase.TRAINING, 5, 0.5)


def test_a_rank_that_moves_again(tmp_path: Path) -> None:
    """A rank that moved on isn't interrupted; one that never stood still is."""
    stood, moved = row(os.getpid()), replace(row(os.getpid(), rank=5), quiet=0.01)
    latest = [replace(stood, quiet=0.01), moved]
    again, always = standings([stood, moved], tmp_path, 0.1, lambda: latest)
    assert again.problem == "it moves again"
    assert "moves" not in always.problem


def test_a_board_that_is_closed() -> None:
    """The attempt has ended, so the answer isn't needed."""

    def closed() -> Sequence[RankProgress]:
        raise ValueError("mmap closed or invalid")

    assert up_to_date([Standing(3)], closed) == (Standing(3),)


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    """Its last state on the board is kept."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    (found,) = standings([row(ended.pid)], tmp_path, 0.0)
    assert (found.rank, found.phase, found.step, found.quiet) == (4, Phase.SAVING, 3, 9.0)
    assert (found.state, found.problem) == ("", "its process has ended")
    assert (found.cpu, found.io, found.frames, found.collectives) == (0.0, 0, (), None)


def test_a_process_that_nobody_has_waited_for(tmp_path: Path) -> None:
    """A zombie counts as ended."""
    with subprocess.Popen(["true"]) as ended:
        while proc.trees([ended.pid])[ended.pid][0].state != "Z":
            time.sleep(0.01)
        (found,) = standings([row(ended.pid)], tmp_path, 0.0)
        assert (found.state, found.problem) == ("Z", "its process has ended")


def test_a_process_that_has_not_begun(tmp_path: Path) -> None:
    """The board's state before a worker's script."""
    (found,) = standings([row(0)], tmp_path, 0.0)
    assert (found.state, found.problem) == ("", "its process hasn't begun")


def test_a_program(tmp_path: Path) -> None:
    """A program without Python has no stack; that is reported once."""
    with subprocess.Popen(["sleep", "600"]) as process:
        while proc.trees([process.pid])[process.pid][0].state != "S":
            time.sleep(0.01)
        (found,) = standings([row(process.pid)], tmp_path, 0.1)
        assert process.poll() is None
        process.kill()
    assert found.state == "S"
    assert found.problem.count("its stack can't be read: it has no handler") == 1


def test_processes_that_end_while_they_are_asked(tmp_path: Path) -> None:
    """Every rank is reported, in order, whenever it ends."""
    script = "import sys, time; time.sleep(float(sys.argv[1]))"
    ranks = range(12)
    processes = [subprocess.Popen([sys.executable, "-c", script, str(rank / 20)]) for rank in ranks]
    rows = [row(process.pid, rank) for rank, process in zip(ranks, processes, strict=True)]
    assert [found.rank for found in standings(rows, tmp_path, 0.3)] == list(ranks)
    for process in processes:
        process.wait()


def test_whatever_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver, /proc or a process may hang; the other answers still come."""
    ended = threading.Event()

    def hang(*_: object) -> None:
        ended.wait()

    monkeypatch.setattr(asking, "ANSWERS", 0.5)
    monkeypatch.setattr(asking, "utilization", hang)
    monkeypatch.setattr(flight_recorder, "collectives", hang)
    family = proc.trees([os.getpid()])
    monkeypatch.setattr(proc, "trees", lambda _pids: family)
    (found,) = standings([row(os.getpid())], tmp_path, 0.0)
    state = family[os.getpid()][0].state
    assert (found.state, found.problem) == (state, "it couldn't be asked in time")
    monkeypatch.setattr(asking, "EACH", 0.3)
    monkeypatch.setattr(proc, "trees", hang)
    (found,) = standings([row(os.getpid())], tmp_path, 0.0)
    ended.set()
    assert found.rank == 4


def test_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No error escapes."""

    def fail(*_: object) -> None:
        raise RuntimeError("of a kind that nobody knows")

    monkeypatch.setattr(proc, "trees", fail)
    monkeypatch.setattr(asking, "utilization", fail)
    (found,) = standings([row(1)], tmp_path, 0.0)
    assert found.rank == 4
