"""Leaves out tracebacks that a log repeats.

A run that survives an error may log it thousands of times. Its first tracebacks are read, and all
near the end of the file; those between add nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

OFTEN, MOST_KEYS = 16, 10_000
"""Tracebacks of one kind that are read, and maximum kinds to remember."""
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
            if seen[kind] > OFTEN:
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
