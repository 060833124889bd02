"""The user's script: a place in its source, and its answers when it is run for its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .choices import Framework
from .workload import Statement


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


class Ending(StrEnum):
    """The end of a script that was only queried."""

    WHOLE = "whole"
    """It reached the boundary at which the plan is complete."""
    CUT = "cut"
    """It needed weights, or a device that the host doesn't have."""
    LATE = "late"
    """The time was over."""
    OVER = "over"
    """It ran to its end without a training."""
    FAILED = "failed"
    """It raised, or was killed."""


@dataclass(frozen=True, slots=True)
class ScriptAnswers:
    """A script's answers.

    Attributes:
        ending: how it ended.
        where: the last boundary, or the user's line at which it ended; empty for none.
        why: the reason for the end, as a part of a sentence; empty if it is complete.
        statements: settings that it asks for, and facts.
        framework: the owner of its training loop; None if unknown.
        shape: its model, see `Seen.model`; None if it has made none.
        output: the last part of its output.
        written: paths of files that were written meanwhile.
        lacking: the planned device if this host has none of its kind, else empty.
    """

    script: str
    ending: Ending
    seconds: float
    where: str = ""
    why: str = ""
    statements: tuple[Statement, ...] = ()
    framework: Framework | None = None
    shape: Mapping[str, Any] | None = None
    output: str = ""
    written: tuple[str, ...] = ()
    lacking: str = ""

    def document(self) -> dict[str, Any]:
        """The query as JSON values; the plan has its answers."""
        return {
            "script": self.script,
            "ending": self.ending.value,
            "seconds": round(self.seconds, 3),
            "where": self.where,
            "why": self.why,
            "written": list(self.written),
            "lacking": self.lacking,
        }
