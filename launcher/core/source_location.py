"""A line in a file of the user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a user's source file: path, line number and the text of the line.

    Attributes:
        change: the corrected line, if it follows from the line alone.
    """

    file: str
    line: int
    text: str
    change: str | None = None
