"""Opens logs, with limits on size and time."""

from __future__ import annotations

import codecs
import gzip
import os
import select
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

from ..core.errors import LaunchError, reason_of
from ..core.quantities import GIB, MIB
from ..system import regular_files, terminal

STDIN = "-"
SILENCE = 30.0
"""Maximum seconds of silence of a pipe."""
PIPED = 4 * GIB
"""Maximum bytes to read from a pipe."""
ENDLESS = f"more than {PIPED // GIB} GiB come from it: write them to a file"
UNPACKED, RATIO = GIB, 100
"""Limits of a compressed log's size in bytes and of its ratio; exceeding both is refused. Logs
reach ratios of about ten, decompression bombs a thousand."""
LONG, END = 16 * MIB, MIB // 4
"""Bytes of a log that takes long to read, and of its end, which takes a tenth of a second."""
BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Source(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; empty at the end."""


@dataclass(slots=True)
class Resumed:
    """A source whose beginning has already been read."""

    head: bytes
    rest: Source

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        piece, self.head = self.head[:size], self.head[size:]
        return piece + self.rest.read(size - len(piece)) if len(piece) < size else piece


class Recoded:
    """A source that recodes another encoding as UTF-8."""

    def __init__(self, source: Source, encoding: str) -> None:
        self.source = source
        self.decoder = codecs.getincrementaldecoder(encoding)("replace")
        self.rest = b""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        while len(self.rest) < size and (piece := self.source.read(size)):
            self.rest += self.decoder.decode(piece).encode("utf-8", "replace")
        piece, self.rest = self.rest[:size], self.rest[size:]
        return piece


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """Opens a file to read its bytes as UTF-8; unpacks `.gz`.

    Raises:
        LaunchError: the file can't be read, or has no end.
    """
    if path == STDIN:
        yield _as_utf8(sys.stdin.buffer)
        return
    try:
        # Avoids waiting for the writer of a pipe.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            yield _as_utf8(_bounded(path, file))
    except (OSError, EOFError, zlib.error) as error:
        reason = reason_of(error)
        raise LaunchError(f"{path}: it can't be read: {reason}") from None


def end_of(path: str) -> bytes:
    """The last lines of a plain file that takes long to read; empty for any other source."""
    if path == STDIN or path.endswith(".gz"):
        return b""
    with suppress(OSError), regular_files.opened(Path(path)) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LONG and file.read(2) not in BOMS:
            file.seek(size - END)
            return file.read().partition(b"\n")[2]
    return b""


def _bounded(path: str, file: IO[bytes]) -> Source:
    """The part of an opened file that is read."""
    status = os.fstat(file.fileno())
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        raise OSError("it is a device, and not a log")
    if stat.S_ISFIFO(status.st_mode):
        return _Bounded(lambda size: _from_pipe(file.fileno(), size), PIPED, ENDLESS)
    if not status.st_size:  # of the kernel's, which it makes up
        return _Bounded(lambda size: os.read(file.fileno(), size), PIPED, ENDLESS)
    if not path.endswith(".gz"):
        return cast("Source", file)
    most = max(UNPACKED, RATIO * status.st_size)
    message = f"it unpacks to more than {most / GIB:.0f} GiB, {RATIO} times its size: unpack it"
    return _Bounded(_Unpacked(gzip.GzipFile(fileobj=file), path).read, most, message)


@dataclass(slots=True)
class _Unpacked:
    """A compressed log, read until it is cut off or damaged, with a note.

    Attributes:
        file: the log.
        path: path of its file.
        is_cut: whether the rest can't be decompressed.
    """

    file: gzip.GzipFile
    path: str
    is_cut: bool = False

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; fewer only at the end."""
        pieces = b""
        try:
            while len(pieces) < size and not self.is_cut:
                piece = self.file.read1(size - len(pieces))
                if not piece:
                    break
                pieces += piece
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not pieces and not self.file.tell():
                raise  # there is nothing to read
            self.is_cut = True
            what = "cut off" if isinstance(error, EOFError) else "damaged"
            terminal.say(f"{self.path} is {what}: it is read up to there")
        return pieces


def _from_pipe(descriptor: int, size: int) -> bytes:
    """The next bytes from a pipe; fewer than `size` only at the end."""
    pieces, poll = b"", select.poll()
    poll.register(descriptor, select.POLLIN)
    end = time.monotonic() + SILENCE
    while len(pieces) < size:
        if not poll.poll(1000 * max(0.0, end - time.monotonic())):
            raise TimeoutError(f"nobody has written to this pipe for {SILENCE:g} s")
        piece = os.read(descriptor, size - len(pieces))
        if not piece:
            break
        pieces += piece
        end = time.monotonic() + SILENCE
    return pieces


@dataclass(slots=True)
class _Bounded:
    """A source with a limit on bytes to read.

    Attributes:
        next: reads the next bytes.
        left: remaining bytes.
        message: the message if there are more.
    """

    next: Callable[[int], bytes]
    left: int
    message: str

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        piece = self.next(size)
        self.left -= len(piece)
        if self.left < 0:
            raise OSError(self.message)
        return piece


def _as_utf8(source: Source) -> Source:
    """Recodes output of PowerShell's `>`: UTF-16 with a byte order mark."""
    head = source.read(2)
    whole = Resumed(head, source)
    return Recoded(whole, "utf-16") if head in BOMS else whole
