"""Restores logs copied by hand, which may be quoted, indented or wrapped."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from .lines import FILLER
from .plain import MARKS, WRAPPER, enclosed, inside, straight

MOST = 4 << 20
"""Maximum bytes of a copied log."""
NEARLY_ALL = 0.9
WIDTHS = range(60, 251)
"""Columns at which terminals may wrap."""
LEAST_WRAPPED = 3
"""Minimum lines of exactly the maximum width to infer wrapping."""
STAMP = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\[\d\d:\d\d:\d\d\])"
    r" (?!- |\||\[?(?:INFO|WARN|ERROR|DEBUG)\b)"
)
"""A timestamp prepended by another tool, not by the logger."""
DRAWN = re.compile(r"^[\W_]*$|[│┃╮╯|]\s*$")
"""Lines with a fixed width: rules and boxes."""
BEGINS = re.compile(r"\[|\{|\(\w+ pid=| *\d{1,4}: |\d{4}-\d\d|[IWEF]\d{4} |Traceback|  |\s*$")
FEW = 0.4
"""Maximum share of the lines after the widest that look like the beginning of a line."""


def restored(log: bytes) -> tuple[bytes, ...]:
    """The possible original logs: with wrapped lines joined, if any, and as it is.

    Every line keeps its number: fillers follow joined lines.
    """
    text = log.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = _without_marks([*map(straight, text.split("\n"))])
    texts = dict.fromkeys("\n".join(joined) for joined in (_join_wrapped(lines), lines))
    return tuple(candidate.encode("utf-8", "replace") for candidate in texts)


def _without_marks(lines: Sequence[str]) -> list[str]:
    """Removes indents and marks around each line or the whole."""
    lines = textwrap.dedent("\n".join(lines)).split("\n")
    written = [line for line in lines if line.strip()]
    if sum(WRAPPER.match(line) is not None for line in written) > NEARLY_ALL * len(written):
        lines = [*map(inside, lines)]
        written = [line for line in lines if line.strip()]
    if written and all(map(STAMP.match, written)):
        lines = [STAMP.sub("", line, count=1) for line in lines]
        written = [line for line in lines if line.strip()]
    for mark in MARKS:
        if None not in (enclosed(line, mark) for line in written):
            return [enclosed(line, mark) or "" for line in lines]
        if enclosed("\n".join(written), mark) is not None:
            first, last = lines.index(written[0]), lines.index(written[-1])
            lines[first] = lines[first].removeprefix(mark)
            lines[last] = lines[last].rstrip().removesuffix(mark)
    return lines


def _join_wrapped(lines: Sequence[str]) -> list[str]:
    """Joins lines wrapped by a terminal at the maximum width."""
    lengths = Counter(len(line) for line in lines if not DRAWN.search(line))
    width = max(lengths, default=0)
    if width not in WIDTHS or lengths[width] < LEAST_WRAPPED:
        return list(lines)
    following = [after for line, after in pairwise(lines) if len(line) == width]
    if sum(map(bool, map(BEGINS.match, following))) > FEW * len(following):
        return list(lines)
    result: list[str] = []
    missing = 0
    is_open = False
    for line in lines:
        if is_open:
            result[-1] += line
            missing += 1
        else:
            result += [FILLER] * missing
            missing = 0
            result.append(line)
        is_open = len(line) == width and not DRAWN.search(line)
    return result + [FILLER] * missing
