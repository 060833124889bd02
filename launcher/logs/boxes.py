"""Reads tracebacks in Rich's boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..evidence.failure_record import Frame

TOP = re.compile(r"[╭┏+][─━-]+ *Traceback \(most recent call last\) *[─━-]*[╮┓+]?$")
LINE = re.compile(r"[│┃|](?P<text>.*?)[│┃|]?$")
END = re.compile(r"[╰┗+][─━-]+[╯┛+]?$")
PLACE = re.compile(r"(?P<file>[^\s:]+\.\w+): ?(?P<line>\d+) in (?P<function>[\w<>.]+)")
SOURCE = re.compile(r"\s*❱ *\d+ (?P<source>.*)")
OTHER_SOURCE = re.compile(r"\s*\d+ [ │]")
MOST_ROWS = 2000


def row_of(text: str) -> str | None:
    """The text between a box's borders; None for a line that isn't part of a box."""
    inner = LINE.match(text.strip())
    return inner["text"] if inner else None


def frames_in(rows: Sequence[str]) -> Iterator[tuple[int, Frame]]:
    """The frames in a box, with the index of the row of each, outermost first."""
    index, frame = -1, None
    for number, row in enumerate(rows):
        if source := SOURCE.match(row):
            if frame is not None:
                frame = replace(frame, source=source["source"].strip(" │"))
            continue
        following = rows[number + 1] if number + 1 < len(rows) else ""
        if place := _place(row, following):
            if frame is not None:
                yield index, frame
            index = number
            frame = Frame(place["file"], int(place["line"]), place["function"], "")
    if frame is not None:
        yield index, frame


def _place(row: str, following: str) -> re.Match[str] | None:
    """A frame's place in a row; its path may continue in the next row."""
    row, following = row.strip(), following.strip()
    if not row or OTHER_SOURCE.match(row):
        return None
    if whole := PLACE.match(row):
        return whole
    if PLACE.match(following):
        return None
    return PLACE.match(f"{row}{following}") or PLACE.match(f"{row} {following}")
