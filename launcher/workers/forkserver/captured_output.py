"""What preloaded imports print: kept in memory, and printed by every worker as its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

STREAMS = (1, 2)
"""The descriptors of stdout and stderr."""


@dataclass(frozen=True, slots=True)
class CapturedOutput:
    """A file in memory in place of stdout, and one in place of stderr.

    Attributes:
        files: their descriptors.
    """

    files: tuple[int, ...]

    @classmethod
    def start(cls) -> Self:
        """Captures from now on."""
        return cls(tuple(_redirected(stream, b"") for stream in STREAMS))

    def separate(self) -> Self:
        """Goes on in files of this process's own, after a fork that shares them."""
        files = tuple(
            _redirected(stream, text_of(file))
            for stream, file in zip(STREAMS, self.files, strict=True)
        )
        for file in self.files:
            os.close(file)
        return type(self)(files)

    def print(self) -> None:
        """Writes to stdout and stderr, which are the worker's by now, what was captured."""
        for stream, file in zip(STREAMS, self.files, strict=True):
            text = text_of(file)
            os.close(file)
            while text:
                text = text[os.write(stream, text) :]


def text_of(file: int) -> bytes:
    """All that a file holds, wherever its position is."""
    return os.pread(file, os.fstat(file).st_size, 0)


def _redirected(stream: int, earlier: bytes) -> int:
    """A new file that begins with what was written earlier, in place of the stream."""
    file = os.memfd_create("preloading")
    os.write(file, earlier)
    os.dup2(file, stream)
    return file
