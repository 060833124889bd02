"""The workers' output: passed on to the console line by line, and kept in a log for each rank."""

from __future__ import annotations

import itertools
import os
import re
import select
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..core.errors import reason_of
from ..core.output_routing import ERR, LONGEST, OUT, QUIET, Streams
from ..core.quotation import ANSI, is_garbage
from ..system import private_files, terminal
from ..system.redaction import redacted
from . import pseudo_terminal

PATIENCE = 0.5
"""Seconds without output after which, once the workers have ended, no more is expected."""
TAIL = 64 * 1024
"""Bytes of each rank's latest output that are kept for the diagnosis."""

NAMES = {OUT: "stdout", ERR: "stderr"}
LINE_END = re.compile(rb"\r\n?|\n")
INNER_LINE_END = re.compile(rb"(?:\r\n?|\n)(?=.)", re.DOTALL)


@dataclass(slots=True)
class Stream:
    """One worker's stdout or stderr.

    Attributes:
        console: descriptor to which the launcher passes the output on.
        reader: the launcher's end of the pipe or pseudo-terminal.
        writer: the worker's end, for `/proc/self/fd/N`.
        logs: the files that keep all of it.
        is_shown: whether it goes to the console.
        is_headed: whether `head` precedes every line.
        is_terminal: whether the worker writes to a pseudo-terminal.
        head: the prefix that names the rank.
        words: a line with any of these words is also written to the file of chosen lines.
        waiting: an incomplete line, not yet shown.
        line: an incomplete line, not yet searched for `words`.
    """

    rank: int
    console: int
    reader: int
    writer: int
    logs: list[BinaryIO] = field(default_factory=list)
    is_shown: bool = True
    is_headed: bool = False
    is_terminal: bool = False
    head: bytes = b""
    words: tuple[bytes, ...] = ()
    waiting: bytes = b""
    line: bytes = b""

    @property
    def path(self) -> str:
        """A path that opens the worker's end."""
        return f"/proc/self/fd/{self.writer}"


@dataclass(slots=True)
class Output:
    """The streams of all workers of an attempt and the thread that passes them on.

    Only this thread writes to the console: a paused terminal can't delay the supervisor.

    Attributes:
        folder: where the logs go, as `rank-N.log`.
        warn: called, once for each log, with why it couldn't be written.
        routing: the user's choices for the streams.
        role: the workers' role, which may be part of `head`.
        streams: stdout and stderr of every rank.
        tails: the latest output of every rank.
    """

    folder: Path
    warn: Callable[[str], None]
    routing: Streams = field(default_factory=Streams)
    role: str = "default"
    streams: list[Stream] = field(default_factory=list)
    tails: dict[int, deque[bytes]] = field(default_factory=dict)
    _logs: dict[BinaryIO, str] = field(default_factory=dict)
    _matching: dict[int, BinaryIO] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _passed: int = 0
    _showing: bool = False

    def open(self, ranks: Iterable[int]) -> None:
        """Makes the pipes and the log files.

        The first worker's output goes through a pseudo-terminal if it is shown on a terminal.
        """
        words = dict(self.routing.words)
        for console in words:
            path = self.folder / f"filtered_{NAMES[console]}.log"
            for log in self._open_log(path, "the file of chosen lines"):
                self._matching[console] = log
        stamp = time.strftime("%Y%m%d%H%M%S")
        for local, rank in enumerate(ranks):
            self.tails[rank] = deque()
            whose = f"rank {rank}'s log"
            both = self._open_log(self.folder / f"rank-{rank}.log", whose)
            if self.routing.folder is not None:
                both += self._open_log(self.routing.folder / f"{stamp}_rank{rank}.log", whose)
            for console, name in NAMES.items():
                is_shown = self.routing.is_shown(local, console)
                is_headed = self.routing.is_headed(local, console)
                is_plain = local == 0 and is_shown and not is_headed
                ends = pseudo_terminal.opened(console) if is_plain else None
                reader, writer = ends or os.pipe()
                os.set_blocking(reader, False)
                stream = Stream(rank, console, reader, writer, [*both], is_shown, is_headed)
                if self.routing.is_split(local, console):
                    stream.logs += self._open_log(self.folder / f"rank-{rank}.{name}.log", whose)
                stream.is_terminal = ends is not None
                stream.head = self.routing.head(local, rank, self.role).encode(
                    errors="surrogateescape"
                )
                stream.words = tuple(os.fsencode(word) for word in words.get(console, ()))
                self.streams.append(stream)

    def _open_log(self, path: Path, whose: str) -> list[BinaryIO]:
        """The opened log, beside files of its name; empty if it can't be written."""
        names = itertools.chain([path.name], (f"{number}-{path.name}" for number in range(2, 100)))
        try:
            free = next(name for name in names if not os.path.lexists(path.with_name(name)))
            log = private_files.create(path.with_name(free))
        except OSError as error:
            self.warn(f"{whose} isn't written ({path}: {reason_of(error)})")
            return []
        self._logs[log] = whose
        return [log]

    def start(self) -> None:
        """Begins to pass output on, once the workers have opened their ends."""
        for stream in self.streams:
            os.close(stream.writer)
        self._thread = threading.Thread(target=self._pass_on, name="output", daemon=True)
        self._thread.start()

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Waits until everything that the workers wrote has been passed on.

        A process that they left behind may hold a pipe open for ever, so the wait ends when nothing
        has come for a while; a slow or paused console is waited for until `give_up` returns True.
        """
        done = -1
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(PATIENCE)
            if give_up() or (done == self._passed and not self._showing):
                break
            done = self._passed
        for log in self._logs:
            with suppress(OSError):
                log.close()

    def tail(self, rank: int) -> tuple[str, ...]:
        """The latest lines of a rank's output, without binary data."""
        text = redacted(b"".join(self.tails[rank]).decode("utf-8", errors="replace"))
        lines = ANSI.sub("", text).replace("\r", "\n").splitlines()[-200:]
        return tuple(line for line in lines if not is_garbage(line))

    def _pass_on(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self.streams:
                selector.register(stream.reader, selectors.EVENT_READ, stream)
            while selector.get_map():
                waiting = any(stream.waiting for stream in self.streams)
                ready = selector.select(QUIET if waiting else None)
                for key, _ in ready:
                    stream = key.data
                    if stream.is_terminal:
                        pseudo_terminal.resize(stream.reader, stream.console)
                    chunk = pseudo_terminal.read(stream.reader, 65536)
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
            self._log(stream, chunk)
        end = len(stream.waiting) + max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        stream.waiting += chunk
        has_line = end > len(stream.waiting) - len(chunk)
        if has_line and chunk:
            self._show(stream, end)
        elif not chunk or len(stream.waiting) > LONGEST:
            self._show(stream, len(stream.waiting))
        if not chunk:
            self._write_if_matching(stream, stream.line)

    def _show(self, stream: Stream, size: int) -> None:
        shown, stream.waiting = stream.waiting[:size], stream.waiting[size:]
        self._showing = True
        try:
            shown = self._read_lines(stream, shown)
            while shown and stream.is_shown:
                select.select([], [stream.console], [])
                written = os.write(stream.console, shown)
                terminal.note_passed_on(stream.console, shown[:written])
                shown = shown[written:]
        except OSError:
            return  # the console is closed (`| head`); the log continues
        finally:
            self._showing = False
            self._passed += size

    def _read_lines(self, stream: Stream, text: bytes) -> bytes:
        """Keeps the lines that have any of `words`; returns the text for the console."""
        if not text or not (stream.is_headed or stream.words):
            return text
        begins = not stream.line
        *whole, stream.line = LINE_END.split(stream.line + text)
        for line in whole:
            self._write_if_matching(stream, line)
        if not stream.is_headed:
            return text
        inner = INNER_LINE_END.sub(lambda match: match[0] + stream.head, text)
        return stream.head + inner if begins else inner

    def _write_if_matching(self, stream: Stream, line: bytes) -> None:
        if stream.console in self._matching and any(word in line for word in stream.words):
            self._write(self._matching[stream.console], stream.head + line + b"\n")

    def _log(self, stream: Stream, chunk: bytes) -> None:
        tail = self.tails[stream.rank]
        tail.append(chunk)
        while sum(map(len, tail)) - len(tail[0]) > TAIL:
            tail.popleft()
        for log in stream.logs:
            self._write(log, chunk)

    def _write(self, log: BinaryIO, text: bytes) -> None:
        """Writes to a log; closes and drops it after an error."""
        if log not in self._logs:
            return
        try:
            log.write(text)
        except OSError as error:
            whose = self._logs.pop(log)
            with suppress(OSError):
                log.close()
            why = f"{whose} isn't written any further ({log.name}: {reason_of(error)})"
            self.warn(f"{why}; the training doesn't depend on it")


def flush_console() -> None:
    """Writes out what this process itself has printed, before the workers print."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
