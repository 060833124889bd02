"""A node's board, its slots, and its readers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from safe_launch.progress.board import WINDOW, Board, Phase, rows
from safe_launch.progress.slot import slot_of, unread_slot


@pytest.fixture
def board() -> Iterator[Board]:
    """A board of ranks 4 to 6."""
    made = Board(4, 3)
    yield made
    made.close()


def test_ranks_that_havent_begun(board: Board) -> None:
    """They are starting and have no process."""
    assert [row.rank for row in board.rows()] == [4, 5, 6]
    assert {(row.phase, row.pid, row.step) for row in board.rows()} == {(Phase.STARTING, 0, None)}


def test_a_slot_shows_what_its_rank_does(board: Board) -> None:
    """This user's processes open it by path; other slots are unchanged."""
    slot = slot_of(board.path, 5)
    slot.begin(77)
    slot.enter(Phase.LOADING)
    slot.timed(1_000_000, 3_000_000)
    slot.held(5 << 30, 1 << 30)
    assert slot.enter(Phase.TRAINING) is Phase.LOADING
    assert slot.moved(12) > 0
    first, own, last = rows(board.path)
    assert (own.pid, own.thread, own.phase, own.step) == (os.getpid(), 77, Phase.TRAINING, 12)
    assert (own.own, own.whole, own.timed, own.trained) == ((0.001,), (0.003,), 1, 0.003)
    assert (own.peak, own.context) == (5 << 30, 1 << 30)
    assert own.quiet >= 0
    assert first.pid == last.pid == 0


def test_the_latest_times_are_kept(board: Board) -> None:
    """In order; count and sum cover all."""
    slot = slot_of(board.path, 4)
    for number in range(WINDOW + 5):
        slot.timed(number * 10**9, 10**9)
    slot.moved()
    row = board.rows()[0]
    assert row.own == tuple(float(number) for number in range(5, WINDOW + 5))
    assert (row.timed, row.trained) == (WINDOW + 5, WINDOW + 5)


def test_the_longest_quiet_is_of_the_phase(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all of its periods, without the current quiet time."""
    now = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    slot = slot_of(board.path, 4)
    slot.enter(Phase.TRAINING)
    now += 50_000_000
    slot.enter(Phase.SAVING)
    assert board.rows()[0].longest_quiet == 0
    slot.enter(Phase.TRAINING)
    assert board.rows()[0].longest_quiet == 0.05


@pytest.mark.parametrize("path", [None, "", "/nowhere", "/proc/self/exe", "/etc/hostname"])
def test_without_a_board_marks_go_nowhere(path: str | None) -> None:
    """A missing file, board or rank doesn't disturb the worker."""
    slot = slot_of(path, 0)
    slot.begin(1)
    slot.moved(3)
    assert slot.phase is Phase.STARTING


def test_a_rank_that_the_board_hasnt(board: Board) -> None:
    """Its marks reach no other slot."""
    slot_of(board.path, 7).begin(1)
    slot_of(board.path, 3).begin(1)
    unread_slot().begin(1)
    assert {row.pid for row in board.rows()} == {0}


def test_what_isnt_a_board_cant_be_read(tmp_path: Path) -> None:
    """Another file, or a board whose launcher has ended."""
    (tmp_path / "other").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="not a board of this version"):
        rows(tmp_path / "other")
    with pytest.raises(OSError, match="No such file"):
        rows("/proc/self/fd/9999")


def test_the_memory_has_no_name_and_ends_with_its_board() -> None:
    """No file remains, and a worker's later marks are harmless."""
    made = Board(0, 1)
    slot = slot_of(made.path, 0)
    assert "safe-launch-board" in os.readlink(made.path)
    made.close()
    slot.moved(1)
    assert not os.path.exists(made.path)
