"""Reads an exception group's traceback as that of its first exception."""

from __future__ import annotations

import re
from dataclasses import dataclass

WHOLE = "Traceback (most recent call last)"
OF_GROUP = f"Exception Group {WHOLE}"
OPENS = f"+ {OF_GROUP}"
MARGIN = re.compile(r"\s*(?:\| ?|(?P<next>\+-\+?)-*)")
"""The left edge of a group's lines, as `traceback` draws it."""
GROUP_LINE = re.compile(r"(?:[\w.]+\.)?(?:Base)?ExceptionGroup: .* \(\d+ sub-exceptions?\)$")
"""The message of a group itself, which only counts its exceptions."""


def is_edge(header: str) -> bool:
    """Whether a traceback's first line is within a group or begins one."""
    return OPENS in header or header.lstrip().startswith((f"| {WHOLE}", f"| {OF_GROUP}"))


@dataclass(slots=True)
class Group:
    """The exception group that is being read.

    Attributes:
        is_open: whether the lines read last belong to a group.
        is_over: whether its first exception is complete.
    """

    is_open: bool = False
    is_over: bool = False

    def plain(self, text: str) -> str | None:
        """A line without the group's margin; None if it adds nothing to the first exception.

        The frames that lead to the group come before those within it.
        """
        if OPENS in text:
            self.is_open, self.is_over = True, False
            return text.replace(OPENS, WHOLE, 1)
        if not self.is_open:
            return text
        margin = MARGIN.match(text)
        if margin is None:  # a launcher's prefix may have hidden the outermost
            self.is_open = not (self.is_over or text.startswith(WHOLE))
            return None if GROUP_LINE.match(text) else text
        inner = text[margin.end() :]
        self.is_over = self.is_over or margin["next"] == "+-"
        is_noise = margin["next"] or inner.startswith((WHOLE, OF_GROUP)) or GROUP_LINE.match(inner)
        return None if self.is_over or is_noise else inner
