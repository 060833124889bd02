"""The signals that stop a run, and waiting for signals and descriptors together."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Self

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a run."""
IGNORED: Final = tuple(each for each in ENDING if signal.getsignal(each) is signal.SIG_IGN)
"""Those that were ignored when this process started, as SIGHUP under nohup; they stay ignored."""
STOPS: Final = tuple(each for each in ENDING if each not in IGNORED)
"""Signals that end this run."""
REPORT: Final = signal.SIGQUIT
"""The signal, Ctrl-\\ at a terminal, that asks where every rank stands; the run continues."""


class StoppedError(Exception):
    """A signal has stopped the launcher while it waited for something else."""


class SignalWakeup:
    """Collects signals; a selector sees it as readable when one has arrived.

    A context manager, which restores the earlier handlers at the end.

    Attributes:
        arrived: all signals so far, in order of arrival.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self.arrived: list[int] = []
        self._numbers = tuple(numbers)
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.settimeout(0)
        self._taken = 0
        self._earlier: dict[int, Any] = {}
        self._earlier_wakeup = -1

    def __enter__(self) -> Self:
        self._earlier = {number: signal.getsignal(number) for number in self._numbers}
        descriptor = self._writer.fileno()
        self._earlier_wakeup = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        self.install()
        return self

    def __exit__(self, *_error: object) -> None:
        signal.set_wakeup_fd(self._earlier_wakeup)
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def install(self) -> None:
        """Installs the handlers, even if they have been replaced since."""
        for number in self._numbers:
            signal.signal(number, self._note)

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._reader.fileno()

    def raise_if_stopped(self) -> None:
        """Checks whether any of `STOPS` has arrived.

        Raises:
            StoppedError: it has.
        """
        if any(number in STOPS for number in self.arrived):
            raise StoppedError

    def wait_for(self, source: socket.socket, seconds: float) -> bool:
        """Waits for a socket to become readable; returns whether it did within the time.

        Raises:
            StoppedError: a signal has come that ends the run.
        """
        end = time.monotonic() + seconds
        has_woken = False
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            selector.register(self, selectors.EVENT_READ)
            try:
                while True:
                    self.raise_if_stopped()
                    ready = [key.fileobj for key, _ in selector.select(end - time.monotonic())]
                    if self not in ready:
                        return bool(ready)
                    has_woken = True
                    self._reader.recv(4096)
            finally:
                if has_woken:
                    self._writer.send(b"\0")  # for a later caller of `taken`

    def taken(self) -> list[int]:
        """The signals that have arrived since the last call."""
        with suppress(BlockingIOError):
            self._reader.recv(4096)
        new = self.arrived[self._taken :]
        self._taken += len(new)
        return new

    def _note(self, number: int, _frame: object) -> None:
        self.arrived.append(number)
