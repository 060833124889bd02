"""Asks this node's ranks where they stand, without making the supervisor wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from ..hangs.standing import Standing
from ..progress.board import RankProgress

Ask = Callable[[Sequence[RankProgress]], tuple[Standing, ...]]
"""Asks ranks where they stand; takes seconds."""


class Asker:
    """Asks in a thread; its descriptor is readable once there is an answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None
        self._answer: tuple[Standing, ...] = ()

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._event

    def begin(self, rows: Sequence[RankProgress]) -> None:
        """Begins to ask, unless it already does."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(tuple(rows),), name="asker", daemon=True
            )
            self._thread.start()

    def take(self) -> tuple[Standing, ...]:
        """The answer, once the descriptor is readable."""
        os.eventfd_read(self._event)
        self._thread = None
        return self._answer

    def close(self) -> None:
        """Closes the descriptor, unless an answer is still to be written to it."""
        if self._thread is None or not self._thread.is_alive():
            os.close(self._event)

    def _run(self, rows: tuple[RankProgress, ...]) -> None:
        self._answer = self._ask(rows)
        os.eventfd_write(self._event, 1)
