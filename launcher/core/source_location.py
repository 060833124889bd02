"""A line in a file of the user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a user's source file: path, line number and the text of the line.

    Attributes:
        change: the line as it should be, where that follows from it alone.
    """

    file: str
    line: int
    text: str
    change: str | None = None
