"""The layout of a board: its header, and a slot per rank."""

from __future__ import annotations

import mmap
import os
import struct

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
