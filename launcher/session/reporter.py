"""What the loop has to tell, as events; who shows them, and how, is another matter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..catalogue.entry import Diagnosis
from ..checkpoints.resume_point import Start
from ..core.refused import Refused
from ..diagnosis.attempt import Attempt
from ..diagnosis.suspect_corrections import SuspectCorrection
from ..planning.plan import NoPlan, Plan
from .decision import End, RunState
from .suspect_lines import SuspectLine


class Reporter(Protocol):
    """Whom a run tells what happens, one call for each event."""

    def planned(self, plan: Plan, suspects: Sequence[SuspectLine]) -> None:
        """The plan of the first attempt, and lines of the user's that may fail under it."""

    def suggested(self, asked: Plan, better: Plan, suspects: Sequence[SuspectLine]) -> None:
        """`--fix suggest`: what is launched unchanged, and what would be changed."""

    def no_plan(self, refused: NoPlan) -> None:
        """Nothing is left to launch."""

    def attempt_failed(
        self, attempt: Attempt, diagnosis: Diagnosis, suspect: SuspectCorrection | None
    ) -> None:
        """An attempt has failed, and this is why."""

    def relaunching(self, following: Plan, state: RunState, start: Start) -> None:
        """Another attempt is made, with this plan, from there."""

    def not_relaunched(self, following: Plan, state: RunState, refused: Refused) -> None:
        """There is another plan, which may not be launched."""

    def note(self, sentence: str) -> None:
        """Anything else that the user should know at once."""

    def finished(self, state: RunState, end: End, run: Path) -> None:
        """The run is over; its records are in the folder."""
