"""The prefixes of one file: those that all launchers know, and those that it alone has."""

from __future__ import annotations

import re

from .prefixes import Stripped, common, learned, stripped
from .tracebacks import BOX_TOP, HEADER, NOTEBOOK

MOST_LEARNED = 8


class FilePrefixes:
    """Strips the lines of one file, and learns the prefixes that nobody else has.

    A prefix is learned from what nearly all lines of the file's beginning have in common, and from
    what stands before the first line of a traceback.
    """

    def __init__(self, head: bytes) -> None:
        self._learned: list[re.Pattern[str]] = [*filter(None, [common(head)])]

    def stripped(self, text: str) -> Stripped:
        """A line without its prefixes."""
        line = stripped(text)
        for number, known in enumerate(self._learned):
            if found := known.match(line.text):
                # Behind a prefix of the file's own may stand one that names the rank.
                inner = stripped(line.text[found.end() :])
                rank = line.rank if inner.rank is None else inner.rank
                return Stripped(inner.text, rank, f"{line.stream} {number} {inner.stream}")
        return self.stripped(text) if self._learn(line.text) else line

    def _learn(self, text: str) -> bool:
        """Whether the line is a traceback's first behind a prefix that is new."""
        header = HEADER.search(text)
        if not header or not header.start() or len(self._learned) >= MOST_LEARNED:
            return False
        pattern = learned(text[: header.start()])
        is_drawn = BOX_TOP.match(text.strip()) or NOTEBOOK.match(text)
        if pattern is None or is_drawn or not pattern.match(text):
            return False
        self._learned.append(pattern)
        return True
