"""The workers' output: passed on to the console line by line, and kept in a log for each rank."""

from __future__ import annotations

import os
import select
import selectors
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

QUIET = 0.05
"""Seconds without further output after which an incomplete line is shown nevertheless."""
PATIENCE = 0.5
"""Seconds without output, after the workers' end, after which no more is expected."""
LONGEST = 1024 * 1024
"""Bytes of a line that are waited for before it is shown without its end."""
TAIL = 64 * 1024
"""Bytes of each rank's latest output that are kept for the diagnosis."""


@dataclass(slots=True)
class Stream:
    """One worker's stdout or stderr.

    Attributes:
        rank: whose.
        console: descriptor on which the launcher passes it on.
        reader: our end of the pipe.
        writer: the worker's end, for `/proc/self/fd/N`.
        waiting: an incomplete line.
    """

    rank: int
    console: int
    reader: int
    writer: int
    waiting: bytes = b""

    @property
    def path(self) -> str:
        """A path that opens the worker's end."""
        return f"/proc/self/fd/{self.writer}"


@dataclass(slots=True)
class Output:
    """The streams of all workers of an attempt and the thread that passes them on.

    The thread alone writes to the console, so that a paused terminal delays nobody's supervision.

    Attributes:
        folder: where the logs go, as `rank-N.log`.
        warn: told, once a rank, why its log couldn't be written on.
        streams: stdout and stderr of every rank.
        tails: the latest output of every rank.
    """

    folder: Path
    warn: Callable[[str], None]
    streams: list[Stream] = field(default_factory=list)
    tails: dict[int, deque[bytes]] = field(default_factory=dict)
    _logs: dict[int, BinaryIO] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _passed: int = 0
    _showing: bool = False

    def open(self, ranks: Iterable[int]) -> None:
        """Makes the pipes and the log files."""
        for rank in ranks:
            self.tails[rank] = deque()
            path = self.folder / f"rank-{rank}.log"
            try:
                self._logs[rank] = path.open("wb", buffering=0)
            except OSError as error:
                self.warn(f"rank {rank} gets no log ({path}: {error.strerror})")
            for console in (1, 2):
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                self.streams.append(Stream(rank, console, reader, writer))

    def start(self) -> None:
        """Begins to pass output on; the workers have opened their ends by now."""
        for stream in self.streams:
            os.close(stream.writer)
        self._thread = threading.Thread(target=self._pass_on, name="output", daemon=True)
        self._thread.start()

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Waits until everything that the workers wrote has been passed on.

        A process that they left behind may hold a pipe open for ever, so it ends where nothing has
        come for a while; a console that is slow or paused is waited for until `give_up` says so.
        """
        done = -1
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(PATIENCE)
            if give_up() or (done == self._passed and not self._showing):
                break
            done = self._passed
        for log in self._logs.values():
            with suppress(OSError):
                log.close()

    def tail(self, rank: int) -> tuple[str, ...]:
        """The latest lines of a rank's output."""
        text = b"".join(self.tails[rank]).decode("utf-8", errors="replace")
        return tuple(text.replace("\r", "\n").splitlines()[-200:])

    def _pass_on(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self.streams:
                selector.register(stream.reader, selectors.EVENT_READ, stream)
            while selector.get_map():
                waiting = any(stream.waiting for stream in self.streams)
                ready = selector.select(QUIET if waiting else None)
                for key, _ in ready:
                    stream = key.data
                    chunk = os.read(stream.reader, 65536)
                    if not chunk:
                        selector.unregister(stream.reader)
                        os.close(stream.reader)
                    self._take(stream, chunk)
                if not ready:
                    for stream in self.streams:
                        self._show(stream, len(stream.waiting))

    def _take(self, stream: Stream, chunk: bytes) -> None:
        """Logs a chunk and shows its complete lines; an empty chunk is the stream's end."""
        if chunk:
            self._keep(stream.rank, chunk)
        end = len(stream.waiting) + max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        stream.waiting += chunk
        has_line = end > len(stream.waiting) - len(chunk)
        if has_line and chunk:
            self._show(stream, end)
        elif not chunk or len(stream.waiting) > LONGEST:
            self._show(stream, len(stream.waiting))

    def _show(self, stream: Stream, size: int) -> None:
        shown, stream.waiting = stream.waiting[:size], stream.waiting[size:]
        self._showing = True
        try:
            while shown:
                select.select([], [stream.console], [])
                shown = shown[os.write(stream.console, shown) :]
        except OSError:
            return  # nobody listens any more (`| head`); the log goes on
        finally:
            self._showing = False
            self._passed += size

    def _keep(self, rank: int, chunk: bytes) -> None:
        tail = self.tails[rank]
        tail.append(chunk)
        while sum(map(len, tail)) - len(tail[0]) > TAIL:
            tail.popleft()
        log = self._logs.get(rank)
        if log is None:
            return
        try:
            log.write(chunk)
        except OSError as error:
            del self._logs[rank]
            with suppress(OSError):
                log.close()
            self.warn(
                f"rank {rank}'s log isn't written any further ({log.name}: {error.strerror}); "
                "the training goes on"
            )


def flush_console() -> None:
    """Writes out what this process itself has printed, before the workers print."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
