"""Collects the events of a file with their context, and its signs of progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .attempts import Evidence, Reading
from .exception_lines import HANDLED
from .interleaved import IS_SHUFFLED
from .lines import Line

MOST_EVENTS = 2000
MOST_STEPS = 64
"""Maximum steps to remember, to count each only once."""
MOST_INTERLEAVED = 40
"""Maximum places with mixed lines of two ranks to keep."""
LINES_INTERLEAVED = 6
"""Number of mixed lines of two ranks to read together."""


class PendingEvents:
    """Events waiting for the following lines, which are part of their context."""

    def __init__(self) -> None:
        self._pending: list[tuple[Evidence, list[str]]] = []
        self._known: set[object] = set()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, event: Evidence) -> bool:
        """Adds an event; returns whether it is new since the last progress."""
        record = event.record
        key = (record.rank, record.exception, record.message, record.frames[-1:], event.is_ignored)
        if key in self._known:
            return False
        self._known.add(key)
        self._pending.append((event, []))
        return True

    def forget(self) -> None:
        """Counts later events as new, even repeated ones."""
        self._known.clear()

    def follow(self, text: str) -> None:
        """Adds a line after the events."""
        for _, after in self._pending:
            after.append(text)

    def settle(self, most: int, reading: Reading) -> None:
        """Moves events with at least `most` following lines to the reading."""
        waiting = []
        for event, after in self._pending:
            if len(after) < most:
                waiting.append((event, after))
            elif len(reading.events) < MOST_EVENTS:
                record = replace(event.record, log_tail=(*event.record.log_tail, *after))
                is_handled = _is_handled(event, after)
                reading.events.append(replace(event, record=record, is_handled=is_handled))
        self._pending = waiting


def _is_handled(event: Evidence, after: Sequence[str]) -> bool:
    """Whether an exception's last line or the next line shows that the program continues.

    The first line is the exception's message itself, except in a line of a logger.
    """
    lines = event.record.message.splitlines()[0 if event.is_bare else 1 :]
    near = *lines[-1:], next(filter(str.strip, after), "")
    return any(map(HANDLED.search, near))


class Progress:
    """Places in a file that show progress of the training."""

    def __init__(self) -> None:
        self._signs: deque[tuple[int, int]] = deque(maxlen=MOST_STEPS)
        self._steps: deque[str] = deque(maxlen=MOST_STEPS)

    def is_new(self, step: str) -> bool:
        """Whether no rank has reported this step before."""
        if step in self._steps:
            return False
        self._steps.append(step)
        return True

    def forget_steps(self) -> None:
        """Forgets the steps: after a failure they may be repeated, and show progress again."""
        self._steps.clear()

    def add(self, number: int, signs: int) -> None:
        """Adds signs at a line."""
        self._signs.append((number, signs))

    def since(self, number: int) -> int:
        """The number of signs after a line."""
        return sum(signs for at, signs in self._signs if at > number)

    def steps_since(self, number: int) -> int:
        """The number of steps after a line, without a script's words of an end."""
        return sum(1 for at, signs in self._signs if at > number and signs == 1)


def keep_interleaved(reading: Reading, file: str, line: Line, before: Iterable[str]) -> bool:
    """Keeps a line that looks like a mix of two ranks' output, and the few lines after it.

    Returns:
        Whether a mixed place begins with this line.
    """
    kept = reading.shuffled
    if kept and kept[-1][0] == file and line.number - kept[-1][1] < LINES_INTERLEAVED:
        _, number, text = kept[-1]
        kept[-1] = (file, number, f"{text}\n{line.text}")
        return False
    if not line.is_match or not IS_SHUFFLED.search(line.text):
        return False
    kept.append((file, line.number, "\n".join([*before, line.text])))
    del kept[:-MOST_INTERLEAVED]
    return True
