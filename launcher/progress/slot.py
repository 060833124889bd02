"""The slot of a rank on its node's board, which only this rank writes."""

from __future__ import annotations

import mmap
import os
import struct
import time
from contextlib import suppress

from .board import (
    CHANGED,
    CONTEXT,
    ENTERED,
    HEAD,
    KEPT,
    LONGEST,
    MARK,
    PEAK,
    PROCESS,
    SAMPLES,
    SIZE,
    START,
    STATE,
    STEP,
    TIMED,
    TOKENS,
    TRAINED,
    WINDOW,
    WORDS,
    Phase,
    mapped,
)


class Slot:
    """A rank's slot; without a board, unread memory."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        # 64-bit words, as in `STATE` and `TIMES`; the first has two halves.
        self._words = memoryview(memory)[offset : offset + SIZE].cast("q")
        self._pid = 0
        self._phase = Phase.STARTING
        self._longest = [0] * len(Phase)
        self._quiet = 0  # the longest of this phase
        self._changed = time.monotonic_ns()

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self._phase

    @property
    def step(self) -> int:
        """The last marked optimizer steps; -1 before any."""
        return self._words[STEP]

    @property
    def start(self) -> int:
        """Steps done before the attempt."""
        return self._words[START]

    def begin(self, thread: int) -> None:
        """Notes the process and its main thread; called once in the worker's process."""
        self._pid = os.getpid()
        self._words[:WORDS] = memoryview(STATE.pack(0, 0, -1, thread, *[0] * 11)).cast("q")
        self._words[ENTERED] = self._changed
        self.enter(Phase.STARTING)

    def enter(self, phase: Phase) -> Phase:
        """Enters a phase, which is a movement; returns the previous phase."""
        before, now = self._phase, self.moved()
        if phase is not before:
            self._longest[before] = self._quiet
            self._quiet = self._words[LONGEST] = self._longest[phase]
            self._phase, self._words[ENTERED] = phase, now
        self._words[PROCESS] = self._pid | phase << 32
        return before

    def moved(self, step: int | None = None) -> int:
        """Marks a movement, and known optimizer steps.

        Returns:
            The time, in nanoseconds of the monotonic clock.
        """
        now = time.monotonic_ns()
        words = self._words
        if now - self._changed > self._quiet:
            self._quiet = words[LONGEST] = now - self._changed
        if step is not None:
            words[STEP] = step
        self._changed = words[CHANGED] = now
        return now

    def count(self, step: int | None) -> None:
        """Notes known optimizer steps without a movement, which is cheapest."""
        if step is not None:
            self._words[STEP] = step

    def resumed(self, start: int) -> None:
        """Notes steps done before the attempt."""
        self._words[START] = start

    def timed(self, own: int, whole: int, samples: int = 0, tokens: int = 0) -> None:
        """Stores a step's times, in nanoseconds, and counts it like `trained`."""
        words = self._words
        place = WORDS + 2 * (words[KEPT] % WINDOW)
        words[place] = own
        words[place + 1] = whole
        words[KEPT] += 1
        self.trained(1, whole, samples, tokens)

    def trained(self, steps: int, whole: int, samples: int = 0, tokens: int = 0) -> None:
        """Counts steps, their total nanoseconds, samples and tokens."""
        self._words[SAMPLES] += samples
        self._words[TOKENS] += tokens
        self._words[TIMED] += steps
        self._words[TRAINED] += whole

    def held(self, peak: int, context: int) -> None:
        """Notes peak memory, and its part outside of the training, in bytes."""
        self._words[PEAK], self._words[CONTEXT] = peak, context


def unread_slot() -> Slot:
    """An unread slot."""
    return Slot(mmap.mmap(-1, SIZE), 0)


def slot_of(path: str | None, rank: int) -> Slot:
    """A rank's slot on the board at a path; an unread one without a board."""
    with suppress(OSError, ValueError, struct.error):
        if path:
            memory = mapped(path, writable=True)
            mark, first, count = HEAD.unpack_from(memory)
            if mark == MARK and first <= rank < first + count:
                return Slot(memory, HEAD.size + (rank - first) * SIZE)
    return unread_slot()
