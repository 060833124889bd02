"""The reporter of a launch: prints every event on the console."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from ..catalogue.entry import Diagnosis, Finding
from ..catalogue.situation import scheduled_by, traits_of
from ..checkpoints.resume_point import Start
from ..core.errors import Refused
from ..core.workload import Workload
from ..diagnosis.attempt import Attempt, Failed, Succeeded, Superseded
from ..diagnosis.new_constraints import SuspectCorrection
from ..diagnosis.root_cause import spots_of
from ..evidence.failure_record import FailureRecord
from ..hangs.report import HangReport
from ..planning.plan import Change, NoPlan, Plan
from ..report import explain_failure, explain_hang, explain_plan, lasting, summary
from ..system import run_directory, terminal
from ..system.terminal import Row
from .decision import End, RunState
from .launch_warnings import SuspectLine

SHOWN_WHEN_QUIET = frozenset(
    ["settled", "asked", "change", "doubt", "suggest", "note", "may end", "do", "run"]
)
"""Labels of the rows that `--quiet` keeps."""


class Reporter:
    """Prints the events of a run on stderr, one call for each."""

    def __init__(self) -> None:
        self._has_settled = False

    def planned(self, plan: Plan, suspects: Sequence[SuspectLine]) -> None:
        """Prints the plan, briefly if as asked; under `--quiet`, only what differs from that."""
        if terminal.is_verbose():
            rows = explain_plan.plan_rows(plan, whole=True)
        else:
            rows = explain_plan.launch_rows(plan)
        _show([*rows, *suspect_rows(suspects, plan.workload)])

    def suggested(self, asked: Plan, better: Plan, suspects: Sequence[SuspectLine]) -> None:
        """Prints the requested plan, and the suggested changes."""
        rows = explain_plan.plan_rows(asked, whole=terminal.is_verbose())
        suggestions = explain_plan.suggestion_rows(better)
        _show([*rows, *suggestions, *suspect_rows(suspects, asked.workload)])

    def no_plan(self, refused: NoPlan, root: Finding | None) -> None:
        """Prints why there is no plan, what would permit one, and what the user can do."""
        rows = explain_plan.dead_end_rows(refused) + _advice(root, refused.workload)
        terminal.say(explain_plan.NOTHING_LEFT, *terminal.table(rows))

    def attempt_failed(
        self,
        attempt: Attempt,
        diagnosis: Diagnosis,
        suspect: SuspectCorrection | None,
        *,
        follows: bool,
    ) -> None:
        """Prints what failed first, where, and why."""
        root, whole = diagnosis.root, terminal.is_verbose()
        spots = spots_of(root, attempt.plan.request)
        rows = [
            *explain_failure.diagnosis_rows(diagnosis, attempt, spots, follows=follows, whole=whole)
        ]
        if self._has_settled:
            rows.append(("note", "settings were changed during this attempt (see above)"))
        if suspect is not None:
            rows.append(explain_failure.suspect_row(suspect.changed, suspect.first))
        head = summary.attempt_line(Failed(attempt, (root.record,)), {attempt.number: root})
        terminal.say(head, *terminal.table(rows))

    def relaunching(self, following: Plan, state: RunState, start: Start) -> None:
        """Prints what the next attempt changes, and where it begins."""
        self._has_settled = False
        if isinstance(state.last, Superseded):
            terminal.say(summary.attempt_line(state.last, state.findings))
            changes = following.changes
            rows = [("change", explain_plan.change_text(following, change)) for change in changes]
        else:
            rows = _corrections(following, state)
        if not rows:
            rows = [("change", "none: the failure is transient")]
        if start.sentence:
            rows.append(("start", start.sentence))
        terminal.say(*terminal.table(rows), f"relaunching: attempt {len(state.outcomes) + 1}")

    def not_relaunched(self, following: Plan, state: RunState, refused: Refused) -> None:
        """Prints the changes that are refused, the user's remedies, and the reason."""
        changes = [text for label, text in _corrections(following, state) if label == "change"]
        rows = [("suggest", text) for text in changes]
        rows += _advice(state.root, following.workload)
        terminal.say(*terminal.table(rows), f"not relaunched: {refused.sentence}")

    def settled(self, where: str, plan: Plan, changes: Sequence[Change], *, is_made: bool) -> None:
        """Prints what is changed in the running attempt, and where; or what would be."""
        self._has_settled |= is_made
        label = "change" if is_made else "suggest"
        rows = [(label, explain_plan.change_text(plan, change)) for change in changes]
        if not rows:
            rows = [(label, "none: as asked; the plan had assumed other values")]
        _show([("settled" if is_made else "asked", f"at {where}, before any step"), *rows])

    def hung(self, attempt: Attempt, report: HangReport) -> None:
        """Prints where every rank stands, and keeps it in the attempt's folder."""
        rows = explain_hang.rows(report)
        terminal.say(explain_hang.headline(report), *terminal.table(rows))
        numbers = itertools.count(1)
        free = (attempt.folder / f"standings-{number}.json" for number in numbers)
        summary.write_or_warn(next(path for path in free if not path.exists()), report)

    def note(self, sentence: str) -> None:
        """Prints the sentence."""
        terminal.say(sentence)

    def finished(self, state: RunState, end: End, run: Path) -> None:
        """Prints how the last attempt ended, the records' path, and a traceback not yet shown.

        After a correction, also the edits that make it permanent.
        """
        has_failed = len(state.outcomes) > 1
        if isinstance(state.last, Succeeded) and (has_failed or self._has_settled):
            edits = lasting.edits(state.last.attempt.plan)
            rows = [("write", str(edit)) for edit in edits]
            if any(edit.is_written for edit in edits):
                rows.append(("patch", f"safe-launch fix {run_directory.named(run)}"))
            if rows:
                terminal.say("to make this permanent:", *terminal.table(rows))
        summary.show_end(state.outcomes, state.findings, run, end.code)
        if end.standing is not None:
            first = end.standing + 1
            terminal.say(
                f"the exit code is that of attempt {first}: its corrections led to other failures"
            )
        summary.show_hidden_output(end.outcome_of(state), state.findings)


def _advice(root: Finding | None, workload: Workload) -> list[Row]:
    """Advice on a failure that isn't corrected."""
    if root is None or root.entry is None:
        return []
    traits = traits_of(root.record, workload) | scheduled_by(os.environ)
    return explain_failure.advice_rows(explain_failure.advice_on(root.entry, root.record, traits))


def _corrections(following: Plan, state: RunState) -> list[Row]:
    """The rows on how the next attempt differs from the last."""
    record = FailureRecord(0, 0.0) if state.root is None else state.root.record
    known = None if state.root is None else state.root.entry
    explained = {str(state.last.attempt.number + 1), *({known.id} if known else ())}
    before, whole = state.last.attempt.plan, terminal.is_verbose()
    return explain_plan.correction_rows(following, before, record, explained, whole=whole)


def suspect_rows(suspects: Sequence[SuspectLine], workload: Workload) -> list[Row]:
    """For each failure that suspect lines may lead to: the lines, the failure, what to do."""
    rows: list[Row] = []
    nothing = FailureRecord(None, 0.0)
    traits = traits_of(nothing, workload) | scheduled_by(os.environ)
    for entry in {suspect.entry.id: suspect.entry for suspect in suspects}.values():
        spots = [suspect.spot for suspect in suspects if suspect.entry.id == entry.id]
        rows += [("note", explain_failure.spot_text(spot)) for spot in spots]
        rows.append(("may end", f"{entry.title}\nsafe-launch explain {entry.id}"))
        advice = explain_failure.advice_on(entry, nothing, traits)
        rows += explain_failure.advice_rows(advice)
    return rows


def _show(rows: Sequence[Row]) -> None:
    """Prints all rows; under `--quiet`, only those with labels in `SHOWN_WHEN_QUIET`."""
    shown = [row for row in rows if not terminal.is_quiet() or row[0] in SHOWN_WHEN_QUIET]
    terminal.say(*terminal.table(shown, indent=0))
