"""The prefixes in a file: common ones, and those that are specific to it."""

from __future__ import annotations

import re

from . import boxes
from .prefixes import Stripped, common, learned, stripped
from .traceback_lines import HEADER, NOTEBOOK

MOST_LEARNED = 8


class FilePrefixes:
    """Strips prefixes from the lines of a file, and learns those that are specific to it.

    A prefix is learned from what nearly all lines at the file's beginning have in common, and from
    the text before the first line of a traceback.
    """

    def __init__(self, head: bytes) -> None:
        self._learned: list[re.Pattern[str]] = [*filter(None, [common(head)])]

    def stripped(self, text: str) -> Stripped:
        """A line without its prefixes."""
        line = stripped(text)
        for number, known in enumerate(self._learned):
            if found := known.match(line.text):
                # The file's own prefix may be followed by a prefix that names the rank.
                inner = stripped(line.text[found.end() :])
                rank = line.rank if inner.rank is None else inner.rank
                return Stripped(inner.text, rank, f"{line.stream} {number} {inner.stream}")
        return self.stripped(text) if self._learn(line.text) else line

    def _learn(self, text: str) -> bool:
        """Learns a new prefix from a traceback's first line; returns whether it did."""
        header = HEADER.search(text)
        if not header or not header.start() or len(self._learned) >= MOST_LEARNED:
            return False
        pattern = learned(text[: header.start()])
        is_drawn = boxes.TOP.match(text.strip()) or NOTEBOOK.match(text)
        if pattern is None or is_drawn or not pattern.match(text):
            return False
        self._learned.append(pattern)
        return True
