"""What an outcome leads to: a failure is diagnosed, explained and learnt from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..catalogue.entry import Diagnosis, Finding, Kind, KnownFailure
from ..catalogue.prefilter import narrowing
from ..checkpoints.resume_point import Start
from ..core.constraint import Constraint
from ..core.errors import ExitCode
from ..core.refused import Refused
from ..core.request import LaunchRequest
from ..core.row import Row
from ..core.workload import Workload
from ..diagnosis import suspect_corrections
from ..diagnosis.attempt import Attempt, Failed, Interrupted, Outcome, Succeeded, Superseded
from ..diagnosis.new_constraints import learnt_from, with_seen
from ..diagnosis.root_cause import diagnose
from ..diagnosis.user_lines import spots_of
from ..evidence.failure_record import FailureRecord
from ..planning import fewer_nodes
from ..planning.plan import Plan
from ..planning.search import Rules
from ..report import explain_failure, explain_plan, summary
from ..system import terminal

PAUSE = 10.0
"""Seconds before what passes by itself is tried again: devices and ports are let go of later than
their process ends (CANN asks for ten seconds, its error EJ0001)."""


@dataclass(frozen=True, slots=True)
class Next:
    """What an outcome leads to: another attempt with what is known now, or an end.

    Attributes:
        exit_code: the launcher's exit code, or None for another attempt.
        request: with the nodes that are left.
        workload: what is known now.
        learnt: what is forbidden: by the catalogue, the hardware and the attempts so far.
        retried: ids of transient failures that have been tried again.
        restarts: how often the same plan was tried again because the user asked for that.
        verdict: number of the attempt whose failure stands if no correction is left, because the
            corrections so far have only led to others; None for the last attempt's.
    """

    exit_code: int | None
    request: LaunchRequest
    workload: Workload
    learnt: tuple[Constraint, ...] = ()
    retried: frozenset[str] = frozenset()
    restarts: int = 0
    verdict: int | None = None

    def end(self, code: int) -> Next:
        """No further attempt; what the last one ended in is the run's end."""
        return replace(self, exit_code=code, verdict=None)

    def given_up(self, code: int, findings: Mapping[int, Finding]) -> Next:
        """No further attempt, since no correction is left; an earlier failure may stand."""
        stands = None if self.verdict is None else findings[self.verdict]
        return replace(self, exit_code=code if stands is None else _exit_code(stands))


def judge(
    outcomes: Sequence[Outcome],
    entries: Sequence[KnownFailure],
    rules: Rules,
    state: Next,
    findings: dict[int, Finding],
) -> Next:
    """What the last outcome leads to; a failure is diagnosed, explained and learnt from."""
    match outcome := outcomes[-1]:
        case Succeeded():
            return state.end(ExitCode.SUCCESS)
        case Interrupted(signal=number):
            return state.end(128 + number)
        case Superseded(attempt=attempt, seen=seen):
            workload = with_seen(state.workload, attempt, seen)
            return replace(state, workload=workload)
        case Failed(attempt=attempt, records=records, seen=seen):
            diagnosis = diagnose(records, entries, narrowing(entries, len(records)))
            summary.keep(attempt.folder / "failures.json", {"findings": diagnosis.rows()})
            root = findings[attempt.number] = diagnosis.root
            suspicion = (
                None
                if outcome.lost
                else suspect_corrections.suspicion(outcomes, findings, state.verdict)
            )
            _say_end(attempt, _rows(diagnosis, attempt, suspicion))
            if suspicion is not None:
                return replace(
                    state,
                    workload=with_seen(state.workload, attempt, seen),
                    learnt=(*state.learnt, suspicion.constraint),
                    verdict=suspicion.first,
                )
            if root.entry is None:
                return state.end(_exit_code(root))
            if outcome.lost:
                request = fewer_nodes.left(attempt.plan.request, state.workload, outcome.lost)
                if isinstance(request, str):
                    terminal.say(request)
                    return state.end(ExitCode.RETRY_ELSEWHERE)
                state = replace(state, request=request)
                if root.record.rank is None:
                    return state
            if root.entry.kind is Kind.TRANSIENT and root.entry.id not in state.retried:
                terminal.say(f"waiting {PAUSE:g} s: the failure passes by itself")
                time.sleep(PAUSE)
                return replace(state, retried=state.retried | {root.entry.id})
            if root.entry.kind not in (Kind.PRESET, Kind.MEMORY):
                return state.end(_exit_code(root))
            learnt = learnt_from(state.workload, attempt, seen, root, rules)
            if isinstance(learnt, str):
                terminal.say(learnt)
                return state.given_up(_exit_code(root), findings)
            workload, after = learnt
            return replace(state, workload=workload, learnt=after.constraints)


def _rows(
    diagnosis: Diagnosis, attempt: Attempt, suspicion: suspect_corrections.Suspicion | None
) -> list[Row]:
    root = diagnosis.root
    if root.entry is None:
        log = attempt.folder / f"rank-{root.record.rank}.log"
        rows = explain_failure.unexplained_rows(diagnosis, log, is_suspect=suspicion is not None)
    else:
        found = spots_of(root, attempt.plan.request)
        rows = explain_failure.failure_rows(root, attempt.number, found, attempt.plan.overrides)
    rows += explain_failure.other_rows(diagnosis)
    if suspicion is not None:
        rows.append(explain_failure.suspect_row(suspicion.changed, suspicion.first))
    return rows


def _say_end(attempt: Attempt, rows: Sequence[Row]) -> None:
    terminal.say(f"attempt {attempt.number + 1} failed", *terminal.table(rows))


def _exit_code(root: Finding) -> int:
    """The worker's own code; a node at fault has a code of its own."""
    if root.entry is not None and root.entry.kind is Kind.HARDWARE:
        return ExitCode.RETRY_ELSEWHERE
    return root.record.exit_code or 1


def announce(
    following: Plan,
    attempt: Attempt,
    outcome: Outcome,
    findings: Mapping[int, Finding],
    start: Start,
) -> None:
    """Says what the next attempt changes."""
    if isinstance(outcome, Superseded):
        terminal.say("stopped before a failure: what the workers reported is known to fail")
        rows = [("change", explain_plan.change_text(change)) for change in following.changes]
    else:
        record = findings[attempt.number].record
        rows = explain_plan.correction_rows(following, attempt.plan, record)
    again = [] if rows else [("change", "none: the failure passes by itself")]
    begins = [("start", start.sentence)] if start.sentence else []
    number = attempt.number + 2
    terminal.say(*terminal.table([*rows, *again, *begins]), f"relaunching: attempt {number}")


def refuse(
    following: Plan,
    attempt: Attempt,
    findings: Mapping[int, Finding],
    refused: Refused,
    state: Next,
) -> Next:
    """Ends where no further relaunch is allowed, with what would have been changed."""
    finding = findings.get(attempt.number)
    record = FailureRecord(0, 0.0) if finding is None else finding.record
    rows = explain_plan.correction_rows(following, attempt.plan, record)
    terminal.say(
        *terminal.table([("suggest", text) for label, text in rows if label == "change"]),
        f"not relaunched: {refused.sentence}",
    )
    code = ExitCode.NO_PLAN if finding is None else _exit_code(finding)
    return state.given_up(code, findings)
