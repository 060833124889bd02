"""Strips common and file-specific prefixes from lines."""

from __future__ import annotations

import re

from . import boxes, groups
from .prefixes import Stripped, common, learned, stripped
from .traceback_lines import HEADER, NOTEBOOK

MOST_LEARNED = 8


class FilePrefixes:
    """Strips prefixes from a file's lines, learning file-specific ones.

    A prefix is learned from the common beginning of nearly all first lines, and from the text
    before the first line of a traceback.
    """

    def __init__(self, head: bytes) -> None:
        self._learned: list[re.Pattern[str]] = [*filter(None, [common(head)])]

    def stripped(self, text: str) -> Stripped:
        """A line without its prefixes."""
        line = stripped(text)
        for number, known in enumerate(self._learned):
            if match := known.match(line.text):
                # A file-specific prefix may precede a prefix with the rank.
                inner = stripped(line.text[match.end() :])
                rank = line.rank if inner.rank is None else inner.rank
                return Stripped(inner.text, rank, f"{line.stream} {number} {inner.stream}")
        return self.stripped(text) if self._learn(line.text) else line

    def _learn(self, text: str) -> bool:
        """Learns a new prefix from a traceback's first line; returns whether it did."""
        header = HEADER.search(text)
        if not header or not header.start() or len(self._learned) >= MOST_LEARNED:
            return False
        pattern = learned(text[: header.start()])
        is_drawn = boxes.TOP.match(text.strip()) or NOTEBOOK.match(text) or groups.is_edge(text)
        if pattern is None or is_drawn or not pattern.match(text):
            return False
        self._learned.append(pattern)
        return True
