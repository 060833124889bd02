"""Reads only the relevant lines of a log.

A healthy log may have gigabytes. So one automaton searches blocks for all possible beginnings of a
failure, at hundreds of megabytes a second; Python only handles lines with matches, and the lines
after them that belong to the same event. A run that survives an error may log it thousands of
times: its first tracebacks are read, and all near the end of the file; those between add nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..core.quotation import is_garbage
from .sources import Source

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


MOST_ALIKE = 16
"""Tracebacks of one kind that are read."""
NEAR = 1 << 18
"""Bytes at the end of a file that are read whole."""
HEADER = b"Traceback (most recent call last):"
LONGEST_PREFIX, MOST_LINES, BETWEEN = 200, 400, 600
"""Bytes before a header in its line, lines of a traceback, and bytes between two chained ones."""
CHAINED = re.compile(rb"During handling of the above exception|The above exception was the direct")
EXCEPTION = re.compile(rb"[A-Za-z_][\w.]*(?::|\r?\n)")
TIME = re.compile(rb"\d[\d:.,T/-]{6,}")
NUMBER = re.compile(rb"00+")
ALIKE = bytes.maketrans(b"0123456789", b"0000000000")


def without_repeats(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields a file's blocks, each with the number of lines that were left out before it.

    Tracebacks are of one kind if they have the same exceptions, messages, innermost frames and
    prefixes, apart from numbers in the messages and times in the prefixes.
    """
    seen: Counter[tuple[bytes, ...]] = Counter()
    rest = b""
    for block in blocks:
        whole = rest + block
        end = whole.rfind(b"\n", 0, max(0, len(whole) - NEAR)) + 1
        end = end or len(rest)  # of a line without end no more than a block is held back
        yield from _thinned(whole[:end], seen)
        rest = whole[end:]
    yield 0, rest


def _thinned(text: bytes, seen: Counter[tuple[bytes, ...]]) -> Iterator[tuple[int, bytes]]:
    """The parts of a text between tracebacks of kinds that were seen often."""
    alike = text.translate(ALIKE) if HEADER in text else b""
    left = read = 0
    at = alike.find(HEADER)
    while at >= 0:
        start, end, kind = _traceback(text, alike, at)
        if kind:
            if len(seen) > MOST_KEYS:
                seen.clear()
            seen[kind] += 1
            if seen[kind] > MOST_ALIKE:
                yield left, text[read:start]
                left, read = text.count(b"\n", start, end), end
        at = alike.find(HEADER, end)
    yield left, text[read:]


def _traceback(text: bytes, alike: bytes, at: int) -> tuple[int, int, tuple[bytes, ...]]:
    """The start, the end and the kind of a traceback; the kind is empty if it has another form.

    Args:
        text: whole lines.
        alike: the same with all digits alike.
        at: the position of its header.
    """
    start = text.rfind(b"\n", 0, at) + 1
    prefix = alike[start:at]
    end = text.find(b"\n", at) + 1
    if len(prefix) > LONGEST_PREFIX:
        return start, end, ()
    kind = [TIME.sub(b"", text[start:at])]
    frame = b""
    for _ in range(MOST_LINES):
        line_end = alike.find(b"\n", end) + 1
        body = end + len(prefix)
        if not line_end or not alike.startswith(prefix, end):
            return start, end, ()
        line, end = alike[body:line_end], line_end
        if line.startswith(b"  File "):
            frame = line
        elif not line.startswith(b"  "):
            if not EXCEPTION.match(line):
                return start, end, ()
            kind += [NUMBER.sub(b"0", frame), NUMBER.sub(b"0", line)]
            following = alike.find(HEADER, end, end + BETWEEN)
            if following < 0 or not CHAINED.search(alike, end, following):
                return start, end, tuple(kind)
            end = alike.find(b"\n", following) + 1
    return start, end, ()
