"""Lines of a log, of which only those that may matter are looked at.

A log may have gigabytes and be healthy. So blocks of it are searched by one automaton for all that
a failure could begin with, at hundreds of megabytes a second; Python sees a line only where that
has found something, and the lines after it as long as they belong to what was found.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

BLOCK = 1 << 20
"""Bytes that are read at a time."""
FILLER = "\x1f"
"""A line that stands for one that has been joined to the line before it."""
LONGEST = 1 << 16
"""Bytes of a line that are looked at; the rest of a longer one is passed over."""
FOLLOWING = 12
"""Lines after one of which something came that are looked at, whatever stands in them."""
BEFORE = 6
"""Lines before a find that are looked at too."""
OFTEN, KEY, MOST_KEYS = 64, 200, 10_000
"""How often something is found in vain before it is passed over, by how many of its bytes it is
known again, and how many such finds are remembered."""
LAST = 1 << 16
"""Bytes of a file's end that are given at its end, whatever stands in them."""
SEPARATORS = re.compile(rb"[\r\n]")


class Source(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, as many at most; none at the end."""


@dataclass(slots=True)
class Resumed:
    """A source of which the beginning has been read already."""

    head: bytes
    rest: Source

    def read(self, size: int, /) -> bytes:
        """The next bytes, as many at most; none at the end."""
        piece, self.head = self.head[:size], self.head[size:]
        return piece + self.rest.read(size - len(piece)) if len(piece) < size else piece


class Recoded:
    """A source in another encoding, as UTF-8."""

    def __init__(self, source: Source, encoding: str) -> None:
        self.source = source
        self.decoder = codecs.getincrementaldecoder(encoding)("replace")
        self.rest = b""

    def read(self, size: int, /) -> bytes:
        """The next bytes, as many at most; none at the end."""
        while len(self.rest) < size and (piece := self.source.read(size)):
            self.rest += self.decoder.decode(piece).encode("utf-8", "replace")
        piece, self.rest = self.rest[:size], self.rest[size:]
        return piece


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or the part of one between two carriage returns.

    Attributes:
        number: of the line in its file, from 1.
        text: decoded; what isn't UTF-8 is replaced.
        is_found: the automaton found something in it.
    """

    number: int
    text: str
    is_found: bool


def loosened(pattern: str) -> str:
    """A pattern that finds at least what the given one finds in a line without its prefixes.

    Anchors are dropped, since prefixes stand before the line, and a space stands for a run of white
    space.
    """
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
    """One compiled alternative of all patterns, for bytes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 256 << 20
    options.never_nl = False
    union = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re2.compile(union.encode(), options)


def blocks(file: Source) -> Iterator[bytes]:
    """A file in blocks that end where a line ends; a line without end is cut."""
    rest = b""
    while piece := file.read(BLOCK):
        whole = rest + piece
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r"))
        if end + 1 == len(whole) and whole.endswith(b"\r"):
            end = max(whole.rfind(b"\n"), whole.rfind(b"\r", 0, end))  # perhaps half a line end
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
    """The lines that matter, in order; at the end it returns the file's last lines.

    A consumer answers each line by `send(True)` if something came of it: then the next lines are
    given too, whatever stands in them. What was found often, and nothing ever came of it, is passed
    over: a warning that is repeated in every step.

    Args:
        file: opened for bytes.
        triggers: gives the automaton to search with, asked before every search.
    """
    number = 1
    wanted = 0
    vain: Counter[bytes] = Counter()
    last = b""
    for block in blocks(file):
        last = (last + block[-LAST:])[-LAST:]
        position = 0
        while position < len(block):
            start = position
            if not wanted:
                found = triggers().search(block, position)
                if found is None:
                    number += block.count(b"\n", position)
                    break
                if vain[found.group(0)[:KEY]] > OFTEN:
                    end = _end(block, found.end())
                    number += block.count(b"\n", position, end + 1)
                    position = end + 1
                    continue
                start = _start(block, position, found.start())
                number += block.count(b"\n", position, start)
            end = _end(block, start)
            line = block[start : min(end, start + LONGEST)]
            if line or (wanted and block[end - 1 : end + 1] != b"\r\n"):
                hit = triggers().search(line) if line else None
                more = yield Line(number, line.decode("utf-8", "replace"), hit is not None)
                if hit is not None and not more and not wanted:
                    vain[hit.group(0)[:KEY]] += 1
                    if len(vain) > MOST_KEYS:
                        vain.clear()
                wanted = FOLLOWING if more else max(wanted - 1, 0)
            number += block.count(b"\n", end, end + 1)
            position = end + 1
    return _numbered(last, number)


def _numbered(last: bytes, number: int) -> list[tuple[int, str]]:
    """The written lines of a file's end, and what stands between carriage returns, numbered.

    Args:
        last: the file's last bytes.
        number: of the line after the last line end.
    """
    rows = last.decode("utf-8", "replace").split("\n")
    return [
        (place, piece)
        for place, row in enumerate(rows, number - len(rows) + 1)
        for piece in row.split("\r")
        if piece.strip()
    ]


def _start(block: bytes, low: int, found: int) -> int:
    """Where the lines before a find begin."""
    start = found
    for _ in range(BEFORE + 1):
        start = max(block.rfind(b"\n", low, start), block.rfind(b"\r", low, start))
        if start < 0:
            return low
    return start + 1


def _end(block: bytes, start: int) -> int:
    found = SEPARATORS.search(block, start)
    return found.start() if found else len(block)
