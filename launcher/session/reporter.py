"""The events of a run, as an interface; its implementation decides how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..catalogue.entry import Diagnosis, Finding
from ..checkpoints.resume_point import Start
from ..core.refused import Refused
from ..diagnosis.attempt import Attempt
from ..diagnosis.suspect_corrections import SuspectCorrection
from ..hangs.report import HangReport
from ..planning.plan import Change, NoPlan, Plan
from .decision import End, RunState
from .suspect_lines import SuspectLine


class Reporter(Protocol):
    """Receives the events of a run, one call for each."""

    def planned(self, plan: Plan, suspects: Sequence[SuspectLine]) -> None:
        """The plan of the first attempt, and lines of the user's that may fail under it."""

    def suggested(self, asked: Plan, better: Plan, suspects: Sequence[SuspectLine]) -> None:
        """`--fix suggest`: the plan that is launched unchanged, and the plan with the changes."""

    def no_plan(self, refused: NoPlan, root: Finding | None) -> None:
        """No plan is left to launch, after this failure."""

    def attempt_failed(
        self,
        attempt: Attempt,
        diagnosis: Diagnosis,
        suspect: SuspectCorrection | None,
        *,
        follows: bool,
    ) -> None:
        """An attempt has failed, with this diagnosis; another is planned if it `follows`."""

    def relaunching(self, following: Plan, state: RunState, start: Start) -> None:
        """Another attempt follows, with this plan and start."""

    def not_relaunched(self, following: Plan, state: RunState, refused: Refused) -> None:
        """There is another plan, but it may not be launched."""

    def settled(self, where: str, plan: Plan, changes: Sequence[Change], *, is_made: bool) -> None:
        """Reports the changes made at a boundary, or only wanted there if not `is_made`."""

    def hung(self, attempt: Attempt, report: HangReport) -> None:
        """No rank of an attempt moves, or somebody has asked where the ranks stand."""

    def note(self, sentence: str) -> None:
        """Anything else that the user should know at once."""

    def finished(self, state: RunState, end: End, run: Path) -> None:
        """The run is over; its records are in the folder."""
