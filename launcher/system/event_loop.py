"""Calls handlers on their events, without polling."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol, Self


class Readable(Protocol):
    """A socket, or an object with a descriptor."""

    def fileno(self) -> int:
        """The descriptor."""


class EventLoop:
    """Handlers of events; a context manager that closes the descriptors it opens."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._processes: set[int] = set()
        self._timers: dict[Callable[[], None], float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._selector.close()
        for descriptor in self._processes:
            os.close(descriptor)

    def on_readable(self, source: int | Readable, handler: Callable[[], None]) -> None:
        """Registers a handler that is called whenever a source is readable."""
        self._selector.register(source, selectors.EVENT_READ, handler)

    def on_end(self, pid: int, handler: Callable[[], None]) -> None:
        """Registers a handler for the end of a process, before it is reaped."""
        descriptor = os.pidfd_open(pid)
        self._processes.add(descriptor)
        self.on_readable(descriptor, partial(self._ended, descriptor, handler))

    def after(self, seconds: float, handler: Callable[[], None]) -> None:
        """Calls a handler once after a delay, replacing its earlier time."""
        self._timers[handler] = time.monotonic() + seconds

    def forget(self, source: int | Readable) -> None:
        """Removes the handler of a source."""
        self._selector.unregister(source)

    def wait(self, seconds: float | None) -> None:
        """Waits for an event, up to a timeout, and calls its handlers."""
        if self._timers:
            due = max(0.0, min(self._timers.values()) - time.monotonic())
            seconds = due if seconds is None else min(seconds, due)
        for key, _ in self._selector.select(seconds):
            key.data()
        now = time.monotonic()
        for handler in [handler for handler, due in self._timers.items() if due <= now]:
            del self._timers[handler]
            handler()

    def _ended(self, descriptor: int, handler: Callable[[], None]) -> None:
        self.forget(descriptor)
        self._processes.remove(descriptor)
        os.close(descriptor)
        handler()
