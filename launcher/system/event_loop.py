"""Calls handlers as soon as what they wait for has happened; there is no polling."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from functools import partial
from typing import Protocol, Self


class Readable(Protocol):
    """A socket, or what has one."""

    def fileno(self) -> int:
        """The descriptor."""


class EventLoop:
    """Handlers by what they wait for; a context manager, which closes what it has opened."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._processes: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._selector.close()
        for descriptor in self._processes:
            os.close(descriptor)

    def on_readable(self, source: int | Readable, handler: Callable[[], None]) -> None:
        """Has a handler called whenever a source is readable."""
        self._selector.register(source, selectors.EVENT_READ, handler)

    def on_end(self, pid: int, handler: Callable[[], None]) -> None:
        """Has a handler called when a process has ended, which isn't reaped by that."""
        descriptor = os.pidfd_open(pid)
        self._processes.add(descriptor)
        self.on_readable(descriptor, partial(self._ended, descriptor, handler))

    def forget(self, source: int | Readable) -> None:
        """Calls no handler for a source any more."""
        self._selector.unregister(source)

    def wait(self, seconds: float | None) -> None:
        """Waits until something happens, or so long at most, and calls the handlers for it."""
        for key, _ in self._selector.select(seconds):
            key.data()

    def _ended(self, descriptor: int, handler: Callable[[], None]) -> None:
        self.forget(descriptor)
        self._processes.remove(descriptor)
        os.close(descriptor)
        handler()
