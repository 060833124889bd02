"""The progress board of a node: shared memory with a slot per rank.

The launcher creates it (`Board`), each worker writes its slot (`Slot`), and any process that can
open it reads all slots (`rows`). No lock is needed: a slot has one writer, and a concurrent reader
misses at most one movement.

The memory has no name (memfd_create(2)), so no file is left behind. Its pages are allocated at
once: with a mapped file on a full disk, SIGBUS would kill a worker that marks a step. It is opened
through the launcher's process, which only the same user may do (proc_pid_fd(5)).
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated

from ..core.limits import SECONDS, Count, Counter, Limit, Pid, Rank, Seconds

VARIABLE = "SAFE_LAUNCH_BOARD"
"""Environment variable with the board's path, for the workers."""
_NAME = "safe-launch-board"
WINDOW = 16
"""Number of latest steps with times in a slot."""
HEAD = struct.Struct("<8sII")
"""Mark with the layout's version, the first rank, the number of ranks."""
MARK = b"slboard3"
STATE = struct.Struct("<IIqQQQQQQQQQQQQ")
"""Process, phase, step, main thread; then, in nanoseconds of the monotonic clock, the last movement
and the phase's start; the longest quiet of this phase in nanoseconds; the number of timed steps and
their nanoseconds; how many of them have kept times; the peak memory, and its part outside of the
training, in bytes; the steps done before this attempt; samples and tokens of the timed steps."""
PROCESS, STEP, CHANGED, ENTERED, LONGEST, TIMED, TRAINED, KEPT = 0, 1, 3, 4, 5, 6, 7, 8
PEAK, CONTEXT, START, SAMPLES, TOKENS = 9, 10, 11, 12, 13
WORDS = STATE.size // 8
"""Indices of these fields in 64-bit words, and their number; process and phase share word 0."""
TIMES = struct.Struct("<QQ")
"""A step's own time and its whole time, in nanoseconds; a slot has `WINDOW` of them."""
SIZE = STATE.size + WINDOW * TIMES.size


class Phase(IntEnum):
    """A rank's activity, as observed by guards."""

    STARTING = 0
    """The worker's process starts; the script hasn't begun."""
    LOADING = 1
    """The script runs without a step yet: imports, data, model, compilation."""
    TRAINING = 2
    EVALUATION = 3
    SAVING = 4
    ENDED = 5
    """The script has completed."""


def _are_times(times: tuple[float, ...]) -> bool:
    return len(times) <= WINDOW and all(0 <= time < SECONDS for time in times)


Times = Annotated[tuple[float, ...], Limit("a few numbers of seconds", _are_times)]


@dataclass(frozen=True, slots=True)
class RankProgress:
    """The progress of a rank.

    Attributes:
        pid: its process id; 0 before its start.
        thread: its main thread (`threading.get_ident`); 0 before its start.
        phase: its current activity.
        step: optimizer steps done; None without a counter.
        quiet: seconds since the last movement.
        in_phase: seconds since the phase began.
        longest_quiet: maximum seconds without a movement in all turns of this phase; 0 before
            any movement.
        own: seconds before waiting for other ranks in each of the latest steps, latest last, at
            most `WINDOW`.
        whole: total seconds of the same steps.
        timed: number of timed steps.
        trained: total seconds of timed steps.
        peak: peak bytes of memory so far, on the device or else of the process; 0 if unknown.
            Excludes a device's context before the script's end.
        context: bytes of the peak outside of the training, see `Measured`.
        start: optimizer steps done before the attempt, by a resume.
        samples: this rank's samples in timed steps; 0 if unknown.
        tokens: their tokens with padding; 0 if unknown.
    """

    rank: Rank
    pid: Pid
    thread: Counter
    phase: Phase
    step: Counter | None
    quiet: Seconds
    in_phase: Seconds
    longest_quiet: Seconds
    own: Times = ()
    whole: Times = ()
    timed: int = 0
    trained: float = 0.0
    peak: int = 0
    context: int = 0
    start: Counter = 0
    samples: Count = 0
    tokens: Count = 0


class Board:
    """A node's board, created by its launcher.

    Attributes:
        path: the path for processes of the same user on this host.
    """

    def __init__(self, first: int, count: int) -> None:
        """Creates the board for ranks `first` to `first + count - 1`.

        Raises:
            OSError: there isn't enough memory.
        """
        size = HEAD.size + count * SIZE
        self._descriptor = os.memfd_create(_NAME)
        try:
            os.posix_fallocate(self._descriptor, 0, size)
            self._memory = mmap.mmap(self._descriptor, size)
        except BaseException:
            os.close(self._descriptor)
            raise
        HEAD.pack_into(self._memory, 0, MARK, first, count)
        now = time.monotonic_ns()
        for local in range(count):
            offset = HEAD.size + local * SIZE
            STATE.pack_into(self._memory, offset, 0, Phase.STARTING, -1, 0, now, now, *[0] * 9)
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def rows(self) -> tuple[RankProgress, ...]:
        """The progress of each rank."""
        return tuple(_rows(self._memory))

    def close(self) -> None:
        """Releases the memory once no worker uses it."""
        self._memory.close()
        os.close(self._descriptor)


def rows(path: str | Path) -> tuple[RankProgress, ...]:
    """Reads each rank's progress from a board on this host.

    Raises:
        OSError: the board can't be opened: its launcher has ended, or belongs to another user.
        ValueError: the file isn't a board of this version.
    """
    memory = mapped(str(path), writable=False)
    with memory:
        if memory[: len(MARK)] != MARK:
            raise ValueError(f"{path} is not a board of this version of safe-launch")
        return tuple(_rows(memory))


def board_of(pid: int) -> Path | None:
    """The board of a launcher during an attempt, if any.

    Also found for processes that opened it, such as workers: mmap keeps a descriptor.
    """
    with suppress(OSError):  # it has ended, or belongs to another user
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(link.readlink()).startswith(f"/memfd:{_NAME} "):
                    return link
    return None


def _rows(memory: mmap.mmap) -> Iterator[RankProgress]:
    now = time.monotonic_ns()
    _, first, count = HEAD.unpack_from(memory)
    for local in range(count):
        offset = HEAD.size + local * SIZE
        state = STATE.unpack_from(memory, offset)
        pid, phase, step, thread, changed, entered, longest, timed, trained, kept, *held = state
        times = [
            TIMES.unpack_from(memory, offset + STATE.size + number % WINDOW * TIMES.size)
            for number in range(max(0, kept - WINDOW), kept)
        ]
        yield RankProgress(
            rank=first + local,
            pid=pid,
            thread=thread,
            phase=Phase(phase),
            step=None if step < 0 else step,
            quiet=max(0, now - changed) / 1e9,
            in_phase=max(0, now - entered) / 1e9,
            longest_quiet=longest / 1e9,
            own=tuple(own / 1e9 for own, _ in times),
            whole=tuple(whole / 1e9 for _, whole in times),
            timed=timed,
            trained=trained / 1e9,
            peak=held[0],
            context=held[1],
            start=held[2],
            samples=held[3],
            tokens=held[4],
        )


def mapped(path: str, *, writable: bool) -> mmap.mmap:
    """Maps a board's file.

    Raises:
        OSError: it can't be opened.
    """
    descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        return mmap.mmap(
            descriptor, 0, access=mmap.ACCESS_DEFAULT if writable else mmap.ACCESS_READ
        )
    finally:
        os.close(descriptor)
