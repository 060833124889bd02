"""Callbacks of an attempt's supervisor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..core.errors import Refused
from ..core.settings import Value
from ..evidence.worker_messages import Answer, Ask
from ..hangs.report import HangReport
from ..progress.board import RankProgress

Model = Mapping[str, Any]


class Judge(Protocol):
    """Decides on node 0 how the plan reacts to workers' reports."""

    def replaced(self) -> Path | Refused | None:
        """The folder of the attempt that the workers' settings are corrections of.

        Why there is none, or None if nothing is changed.
        """

    def allows(self, observed: Mapping[str, Value], model: Model | None) -> bool:
        """Whether the attempt may continue, given the settings, facts and model observed."""

    def answer(
        self, rank: int, question: Ask, observed: Mapping[str, Value], model: Model | None
    ) -> Answer | None:
        """The answer to a rank at a boundary; None if the attempt ends instead."""

    def note_unanswered(self, rank: int, key: str) -> None:
        """Notes that a rank got no answer in time, and trains with its own settings."""

    def look(self, rows: Iterable[RankProgress]) -> None:
        """Looks for ranks that passed a boundary without the others' changes there."""

    def pause(self) -> float | None:
        """Seconds until the next look; None if there is nothing to look for."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks of the supervisor.

    Attributes:
        judge: decides on what the workers report; None on any node but node 0, which decides for
            all.
        notice: called with a line that the user should see at once.
        imported: called with a worker's imports (`extra_imports.Report`).
        hung: called with where every rank stands, when none moves or a user has asked.
    """

    judge: Judge | None
    notice: Callable[[str], None]
    imported: Callable[[dict[str, Any]], None]
    hung: Callable[[HangReport], None]
