"""A run that is kept, for `safe-launch runs` and its page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ..core.errors import meaning
from .run_status import RunStatus, span

HEAD = ("begun", "took", "attempts", "ended", "run", "changed")
"""The columns of `cells`."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run as it is listed, with its last plan's changes, as in `zero_stage: 3 -> 2`."""

    status: RunStatus
    changes: tuple[str, ...]

    @property
    def begun(self) -> float | None:
        """When it began, in seconds of the wall clock; None if no launcher left a record."""
        return min((launcher.begun for launcher in self.status.launchers), default=None)

    @property
    def seconds(self) -> float | None:
        """The run's duration so far; None if unknown."""
        ends = [launcher.ended for launcher in self.status.launchers[:1]]
        if self.begun is None or (not self.status.is_running and None in ends):
            return None
        return (ends[0] or time.time()) - self.begun

    @property
    def ended(self) -> str:
        """The run's end, in a few words."""
        if self.status.outcome is None:
            return "runs" if self.status.is_running else "cut off"
        code = self.status.outcome["exit_code"]
        failures = [text for text in self.status.failures.values() if text]
        if not code:
            return "trained"
        return f"{code}: {failures[-1] if failures else meaning(code)}"

    def cells(self) -> tuple[str, ...]:
        """The cells of a row, in the order of `HEAD`."""
        begun = "" if self.begun is None else time.strftime("%F %H:%M", time.localtime(self.begun))
        took = "" if self.seconds is None else span(self.seconds)
        number = str(len(self.status.failures) or "")
        changes = ", ".join(self.changes)
        return begun, took, number, self.ended, self.status.folder.name, changes

    def document(self) -> dict[str, Any]:
        """For programs; times in seconds."""
        return {**self.status.document(), "begun": self.begun, "seconds": self.seconds} | {
            "changes": list(self.changes)
        }
