"""Answers of real ranks to inquiries, wherever they are."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safe_launch.hangs import stacks
from safe_launch.hangs.asking import standings
from safe_launch.hangs.standing import Collective, Standing
from safe_launch.progress.board import Phase, RankProgress
from support.processes import FAST, LAUNCHER, PROGRAMS, begin, ready
from support.stacks import TORCH_2_6
from support.waiting import wait_for

PROGRAM = PROGRAMS / "stands.py"
LINES = PROGRAM.read_text().splitlines()
WINDOW = 0.2
Tells = Callable[[Standing], bool]


def waits(standing: Standing) -> bool:
    """Whether a rank has entered the second collective and not completed it."""
    return standing.problem == "" and standing.collectives == (
        Collective(1, "all_reduce", ((3,),), ("Float",), "0 default_pg", is_retired=True),
        Collective(2, "all_reduce", ((2, 4),), ("Float",), "0 default_pg"),
    )


def is_in_it(standing: Standing) -> bool:
    """Whether a rank waits in that line, if its collective isn't known."""
    line, waits = "dist.all_reduce(torch.ones(2, 4))", "work.wait()"
    return {line, waits} <= {frame.source for frame in standing.frames}


def knows_no_torch(_standing: Standing) -> bool:
    """The answer has no collectives."""
    return True


@contextmanager
def asked(
    workshop: Path, how: str, launcher: str = LAUNCHER, tells: Tells = waits
) -> Iterator[list[Standing]]:
    """The positions of two ranks, once both have arrived; no socket remains.

    Args:
        workshop: the working folder.
        how: a mode of `stands.py`.
        launcher: the command that starts them.
        tells: whether the first rank announces that it waits.
    """
    launched = begin(workshop, "--nproc-per-node=2", *FAST, PROGRAM, how, command=launcher)
    try:
        ready(workshop, 2)
        rows = [row(workshop, rank) for rank in range(2)]
        (folder,) = workshop.glob("runs/*/attempt-1/sockets-0")
        assert folder.stat().st_mode & 0o777 == 0o700
        found: list[Standing] = []

        def stand_still() -> bool:
            found[:] = standings(rows, folder, WINDOW)
            is_still = all(each.state in "ST" and each.cpu <= 0.02 for each in found)
            return is_still and found[0].frames != () and tells(found[0])

        wait_for(stand_still)
        yield found
    finally:
        launched.send_signal(signal.SIGTERM)
        said = launched.communicate()
    assert not folder.exists()
    assert "WorkerServer" not in "".join(said)


def row(workshop: Path, rank: int) -> RankProgress:
    """A rank as on the board."""
    pid, thread = map(int, (workshop / f"ready-{rank}").read_text().split())
    return RankProgress(rank, pid, thread, Phase.TRAINING, 7, 60.0, 60.0, 1.0)


def place(standing: Standing) -> tuple[str, str]:
    """Function and text of the user's innermost line."""
    inner = [frame for frame in standing.frames if frame.file in standing.own_files][-1]
    assert LINES[inner.line - 1].strip() == inner.source
    assert standing.own_files == (str(PROGRAM),)
    assert standing.frames[0].function == "<module>"  # without the launcher's own
    return inner.function, inner.source


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("sleep", "time.sleep(600)"),
        ("gil", "ctypes.PyDLL(None).sleep(600)  # a call that keeps the GIL"),
    ],
)
def test_the_rank_that_stands_elsewhere(workshop: Path, how: str, line: str) -> None:
    """Its line, and a collective less than the other rank; a second inquiry agrees."""
    with asked(workshop, how) as (first, second):
        assert place(first) == ("main", "dist.all_reduce(torch.ones(2, 4))")
        assert waits(first)
        assert place(second) == ("stand", line)
        assert [each.number for each in second.collectives or ()] == [1]
        assert (second.rank, second.step, second.quiet) == (1, 7, 60.0)
        assert second.state == "S"
        assert second.cpu <= 0.02
        assert second.io == 0
        assert second.window >= WINDOW


def test_without_a_recorder(workshop: Path) -> None:
    """Torch 2.6 has no recorder, which is reported; the stacks are the same."""
    with asked(workshop, "gil", str(TORCH_2_6.bin / "safe-launch"), is_in_it) as found:
        assert place(found[0]) == ("main", "dist.all_reduce(torch.ones(2, 4))")
        assert place(found[1])[1].startswith("ctypes.PyDLL")
        assert [each.collectives for each in found] == [None, None]
        assert "it has no torch that reports them (2.8 or newer)" in found[1].problem


def test_without_torch(workshop: Path) -> None:
    """A pure Python script reports its position."""
    with asked(workshop, "alone", tells=knows_no_torch) as found:
        assert [place(each) for each in found] == [("stand", "time.sleep(600)")] * 2


def test_a_forked_child(workshop: Path) -> None:
    """It reports its line itself, although a lock was held at its fork."""
    with asked(workshop, "fork") as (first, second):
        assert waits(first)
        assert place(second) == ("stand", "os.waitpid(child, 0)")
        (child,) = second.children
        assert (child.state, child.cpu) == ("S", 0.0)
        assert child.frames[-1].source == "lock.acquire()  # its child can't"
        assert [frame.function for frame in child.frames] == ["<module>", "main", "stand", "locked"]


@pytest.mark.parametrize("has_py_spy", [False, True])
def test_a_stopped_rank(workshop: Path, has_py_spy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can't answer: py-spy reads its stack, or the reason is reported."""
    if has_py_spy:
        assert stacks.py_spy(), "the extra `test` has py-spy"
    else:
        monkeypatch.setattr(stacks, "py_spy", lambda: None)
    with asked(workshop, "stop") as (first, second):
        assert waits(first)
        assert second.state == "T"
        assert second.collectives is None
        assert "its collectives aren't known: the process is stopped (SIGSTOP)" in second.problem
        if has_py_spy:
            assert place(second) == ("stand", "os.kill(os.getpid(), signal.SIGSTOP)")
        else:
            assert second.frames == ()
            assert "pip install 'safe-launch[hang]'" in second.problem


def test_asking_is_bounded(workshop: Path) -> None:
    """Also if a server accepts and never answers, like a stopped process."""
    with asked(workshop, "sleep"):
        (folder,) = workshop.glob("runs/*/attempt-1/sockets-0")
        rows = [row(workshop, rank) for rank in range(2)]
        os.kill(rows[0].pid, signal.SIGSTOP)
        begun = time.monotonic()
        found = standings(rows, folder, WINDOW)
        assert time.monotonic() - begun < 60, "a process that can't answer stays stopped for ever"
        assert [each.state for each in found] == ["T", "S"]
