"""Reads only the relevant lines of a log.

A healthy log may have gigabytes. So one automaton searches blocks for all possible beginnings of a
failure, at hundreds of megabytes a second; Python only handles lines with matches, and the lines
after them that belong to the same event.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from ..core.quotation import is_garbage
from .repeated import without_repeats

BLOCK = 1 << 20
"""Bytes per read."""
FILLER = "\x1f"
"""Replaces a line that was joined to the line before it."""
LONGEST = 1 << 16
"""Maximum bytes to read of a line; the rest is skipped."""
FOLLOWING = 12
"""Number of lines to read after a used line, with any text."""
BEFORE = 6
"""Lines to read before a match."""
OFTEN, KEY, MOST_KEYS = 64, 200, 10_000
"""Unused occurrences before a match is skipped, bytes that identify a match, and maximum matches to
remember."""
DIGITS = 100
"""Maximum digits to keep of a number, above any path or count: Python reads no numbers of thousands
of digits, and makes no float of one with more than 308."""
LAST = 1 << 16
"""Bytes at a file's end that are always returned."""
LONG_NUMBER = re.compile(rf"(\d{{{DIGITS}}})\d+")
SEPARATORS = re.compile(rb"[\r\n]")


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


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or the part of a line between two carriage returns.

    Attributes:
        number: number of the line in its file, from 1.
        text: decoded, with invalid UTF-8 replaced.
        is_match: whether the automaton matches.
    """

    number: int
    text: str
    is_match: bool


NAMED = re.compile(r"(?<!\\)\(\?P<\w+>")
"""The beginning of a named group."""


def loosened(pattern: str) -> str:
    """Loosens a pattern to match whole lines with prefixes.

    Anchors are dropped, since prefixes precede the line, a space matches any run of white space,
    and groups have no names, which may be those of another pattern.
    """
    pattern = NAMED.sub("(?:", pattern)
    result: list[str] = []
    is_class = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            result.append(pattern[position : position + 2])
            position += 2
            continue
        if is_class:
            is_class = char != "]" or pattern[position - 1] == "["
            result.append(char)
        elif char == "[":
            is_class = True
            result.append(char)
            if pattern[position + 1 : position + 2] == "^":
                position += 1
                result.append("^")
                if pattern[position + 1 : position + 2] == "]":
                    position += 1
                    result.append("]")
        elif char == " ":
            result.append(r"(?:[ \t]+)")
        elif char not in "^$":
            result.append(char)
        position += 1
    return "".join(result)


def automaton(patterns: Iterable[str]) -> Any:
    """All patterns compiled as one alternative, for bytes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 256 << 20
    options.never_nl = False
    union = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re2.compile(union.encode(), options)


def blocks(file: Source) -> Iterator[bytes]:
    """A file in blocks that end at line ends; overlong lines are cut."""
    rest = b""
    while piece := file.read(BLOCK):
        whole = rest + piece
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r"))
        if end + 1 == len(whole) and whole.endswith(b"\r"):
            end = max(whole.rfind(b"\n"), whole.rfind(b"\r", 0, end))  # may be half of a line end
        if end < 0 and len(whole) < 4 * BLOCK:
            rest = whole
            continue
        end = len(whole) if end < 0 else end + 1
        yield whole[:end]
        rest = whole[end:]
    if rest:
        yield rest


def interesting(
    file: Source, triggers: Callable[[], Any]
) -> Generator[Line, bool | None, list[tuple[int, str]]]:
    """Yields the lines that may matter, in order; returns the file's last lines.

    The consumer answers each line with `send(True)` if it used the line: then the next lines
    follow, with any text. Frequent matches that are never used, such as a warning in every step,
    are skipped, and tracebacks that the file repeats.

    Args:
        file: opened in binary mode.
        triggers: returns the automaton to search with, called before every search.
    """
    number = 1
    wanted = 0
    vain: Counter[bytes] = Counter()
    last = b""
    for left_out, block in without_repeats(blocks(file)):
        last = (last + block[-LAST:])[-LAST:]
        number += left_out
        position = 0
        while position < len(block):
            start = position
            if not wanted:
                match = triggers().search(block, position)
                if match is None:
                    number += block.count(b"\n", position)
                    break
                if vain[match.group(0)[:KEY]] > OFTEN:
                    end = _end(block, match.end())
                    number += block.count(b"\n", position, end + 1)
                    position = end + 1
                    continue
                start = _start(block, position, match.start())
                number += block.count(b"\n", position, start)
            end = _end(block, start)
            line = block[start : min(end, start + LONGEST)]
            if line or (wanted and block[end - 1 : end + 1] != b"\r\n"):
                key = _key(triggers(), line) if line else None
                more = yield Line(number, decoded(line), key is not None)
                if key is not None and not more and not wanted:
                    vain[key] += 1
                    if len(vain) > MOST_KEYS:
                        vain.clear()
                wanted = FOLLOWING if more else max(wanted - 1, 0)
            number += block.count(b"\n", end, end + 1)
            position = end + 1
    return _numbered(last, number)


@lru_cache(maxsize=1024)  # tracebacks have most of their lines in common
def _key(automaton: Any, line: bytes) -> bytes | None:
    """The beginning of an automaton's match in a line."""
    match = automaton.search(line)
    return None if match is None else match.group(0)[:KEY]


def _numbered(last: bytes, number: int) -> list[tuple[int, str]]:
    """The non-empty lines at a file's end with numbers, also split at carriage returns.

    Args:
        last: the file's last bytes.
        number: number of the line after the last line end.
    """
    rows = decoded(last).split("\n")
    return [
        (place, piece)
        for place, row in enumerate(rows, number - len(rows) + 1)
        for piece in row.split("\r")
        if piece.strip() and not is_garbage(piece)
    ]


def decoded(text: bytes) -> str:
    """Decodes a text, replacing invalid UTF-8 and shortening huge numbers."""
    return LONG_NUMBER.sub(r"\1…", text.decode("utf-8", "replace"))


def _start(block: bytes, low: int, match_start: int) -> int:
    """The start of the lines before a match."""
    start = match_start
    for _ in range(BEFORE + 1):
        start = max(block.rfind(b"\n", low, start), block.rfind(b"\r", low, start))
        if start < 0:
            return low
    return start + 1


def _end(block: bytes, start: int) -> int:
    separator = SEPARATORS.search(block, start)
    return separator.start() if separator else len(block)
