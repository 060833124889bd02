"""The output of preloaded imports, kept in memory until every worker prints it as its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

STREAMS = (1, 2)
"""The descriptors of stdout and stderr."""


@dataclass(frozen=True, slots=True)
class CapturedOutput:
    """Descriptors of two files in memory, in place of stdout and stderr."""

    files: tuple[int, ...]

    @classmethod
    def start(cls) -> Self:
        """Starts capturing."""
        return cls(tuple(_redirect(stream, b"") for stream in STREAMS))

    def separate(self) -> Self:
        """Continues in new files, after a fork that shares the old ones."""
        files = tuple(
            _redirect(stream, text_of(file))
            for stream, file in zip(STREAMS, self.files, strict=True)
        )
        for file in self.files:
            os.close(file)
        return type(self)(files)

    def print(self) -> None:
        """Writes the captured output to stdout and stderr, now the worker's."""
        for stream, file in zip(STREAMS, self.files, strict=True):
            text = text_of(file)
            os.close(file)
            while text:
                text = text[os.write(stream, text) :]


def text_of(file: int) -> bytes:
    """All that a file holds, regardless of its position."""
    return os.pread(file, os.fstat(file).st_size, 0)


def _redirect(stream: int, earlier: bytes) -> int:
    """Redirects the stream to a new file, which begins with the earlier output."""
    file = os.memfd_create("preloading")
    os.write(file, earlier)
    os.dup2(file, stream)
    return file
