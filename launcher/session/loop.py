"""The loop of a run: launch, diagnose, learn, plan, until it trains or no plan is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..catalogue.entry import Diagnosis, KnownFailure
from ..catalogue.prefilter import prefilter
from ..checkpoints.resume_point import Start
from ..core.constraint import Constraint
from ..core.errors import ExitCode, Refused
from ..core.hardware import Hardware
from ..core.request import Fix, LaunchRequest
from ..core.workload import Workload
from ..diagnosis.attempt import Attempt, Failed, Outcome
from ..diagnosis.new_constraints import SuspectCorrection, suspect_correction
from ..diagnosis.root_cause import diagnose, spots_of
from ..nodes.messages import RunEnded
from ..planning.plan import NoPlan, Plan
from ..planning.planner import planned, refused_by_strict
from ..planning.search import Rules, as_asked, rules_of
from ..report import plan_table, pod_status, summary
from ..report.explain_failure import diagnosis_rows
from ..report.explain_plan import NOTHING_LEFT
from ..system import run_directory
from .console import Reporter
from .decision import (
    End,
    RunState,
    decide,
    exit_code,
    next_restart,
    no_correction_left,
    relaunch_refused,
)
from .launch_warnings import fault_warnings, suspect_lines

PAUSE = 10.0
"""Seconds before each attempt after a transient failure: devices and ports are released later than
their process ends (CANN asks for ten seconds, its error EJ0001)."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The side effects of the loop; tests use fakes.

    Attributes:
        run_attempt: runs an attempt on all nodes.
        prepare: prepares on disk the checkpoint that an attempt with this plan resumes from.
        known_failures: reads those for the installed versions.
        pause: see `PAUSE`.
    """

    run_attempt: Callable[[Attempt, Start, Rules], Outcome]
    prepare: Callable[[Plan, Sequence[Outcome]], Start | Refused]
    known_failures: Callable[[], Sequence[KnownFailure]]
    reporter: Reporter
    run: Path
    pause: float = PAUSE


def first_plan(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    known: Sequence[Constraint],
    entries: Sequence[KnownFailure],
    reporter: Reporter,
    *,
    has_learnt: bool = False,
) -> Plan | RunEnded:
    """Makes and reports the first plan; or returns why nothing may be launched."""
    plan = planned(request, workload, hardware, known, has_failed=has_learnt)
    if isinstance(plan, NoPlan):
        reporter.no_plan(plan, None)
        return RunEnded(ExitCode.NO_PLAN, NOTHING_LEFT, pod_status.dead_end_line(plan))
    if request.limits.fix is Fix.SUGGEST:
        asked = as_asked(request, workload, hardware)
        reporter.suggested(asked, plan, suspect_lines(asked, entries))
        _warn(asked, entries, reporter)
        return asked
    reporter.planned(plan, suspect_lines(plan, entries))
    _warn(plan, entries, reporter)
    refused = refused_by_strict(request, plan)
    if refused is not None:
        reporter.note(f"not launched: {refused.sentence}")
        return RunEnded(ExitCode.NO_PLAN, refused.sentence)
    return plan


def _warn(plan: Plan, entries: Sequence[KnownFailure], reporter: Reporter) -> None:
    for text in fault_warnings(plan, entries):
        reporter.note(text)


def run_attempts(
    state: RunState, plan: Plan, hardware: Hardware, effects: Effects
) -> tuple[RunState, End]:
    """Runs attempts until the run ends; returns the final state and the end."""
    start = Start(None)
    while True:
        number = len(state.outcomes)
        folder = run_directory.attempt_folder(effects.run, number)
        attempt = Attempt(number, plan, folder, _corrected_by_next(state))
        document = plan_table.document(plan.request, plan.workload, plan.hardware, plan)
        summary.write_or_warn(attempt.folder / "plan.json", document)
        rules = rules_of(state.request, hardware, state.constraints, has_failed=state.has_failed)
        outcome = effects.run_attempt(attempt, start, rules)
        summary.write_or_warn(attempt.folder / "observed.json", outcome.seen.document())
        diagnosis = _diagnosis(outcome, effects)
        state = state.after(outcome, diagnosis.root if diagnosis else None)
        suspect = _suspect(state)
        decision = decide(state, rules, suspect)
        if diagnosis:
            follows = isinstance(decision, RunState)
            effects.reporter.attempt_failed(attempt, diagnosis, suspect, follows=follows)
        step: tuple[Plan, Start] | End
        if isinstance(decision, RunState):
            state = decision
            _wait(state, effects)
            step = _relaunch(state, hardware, effects)
        else:
            step = decision
            if step.note:
                effects.reporter.note(step.note)
        if isinstance(step, End):
            ran = outcome.attempt.plan  # with what was settled while it ran
            restart = _restart(state, ran, effects) if step.standing is None else None
            if restart is None:
                return state, step
            state = replace(state, restarts=state.restarts + 1, standing=None)
            step = restart
        plan, start = step


def _diagnosis(outcome: Outcome, effects: Effects) -> Diagnosis | None:
    """The diagnosis of a failure, which is recorded; None for another outcome."""
    if not isinstance(outcome, Failed):
        return None
    from ..logs.last_output import completed  # upon a failure alone

    entries = effects.known_failures()
    records = completed(outcome.records, entries)
    diagnosis = diagnose(records, entries, prefilter(entries, len(records)))
    path = outcome.attempt.folder / "failures.json"
    spots = spots_of(diagnosis.root, outcome.attempt.plan.request)
    rows = diagnosis_rows(diagnosis, outcome.attempt, spots, follows=False, whole=True)
    summary.write_or_warn(path, {"findings": diagnosis.findings_as_json(), "rows": rows})
    return diagnosis


def _corrected_by_next(state: RunState) -> Attempt | None:
    """The attempt whose failure the next one corrects, as `suspect_correction` counts it."""
    if state.standing is not None:
        return state.outcomes[state.standing].attempt
    failed = (outcome.attempt for outcome in state.outcomes[::-1] if isinstance(outcome, Failed))
    return next(failed, None)


def _suspect(state: RunState) -> SuspectCorrection | None:
    """The correction that may have caused the last failure; none if nodes were lost."""
    if not isinstance(state.last, Failed) or state.last.lost:
        return None
    return suspect_correction(state.outcomes, state.findings, state.standing)


def _wait(state: RunState, effects: Effects) -> None:
    """Waits before an attempt if the one before began too recently."""
    if state.retried:
        known = ", ".join(sorted(state.retried))
        effects.reporter.note(f"waiting {effects.pause:g} s: {known} is transient")
        time.sleep(effects.pause)


def _relaunch(state: RunState, hardware: Hardware, effects: Effects) -> tuple[Plan, Start] | End:
    """The next plan from what is known now, and its start; or the end if there is none."""
    following = planned(
        state.request, state.workload, hardware, state.constraints, has_failed=state.has_failed
    )
    if isinstance(following, NoPlan):
        effects.reporter.no_plan(following, state.root)
        return no_correction_left(state, ExitCode.NO_PLAN)
    refused = relaunch_refused(state) or refused_by_strict(state.request, following)
    start = refused or effects.prepare(following, state.outcomes)
    if isinstance(start, Refused):
        effects.reporter.not_relaunched(following, state, start)
        code = ExitCode.NO_PLAN if state.root is None else exit_code(state.root)
        return no_correction_left(state, code)
    effects.reporter.relaunching(following, state, start)
    return following, start


def _restart(state: RunState, plan: Plan, effects: Effects) -> tuple[Plan, Start] | None:
    """The same plan and its next start, if --max-restarts permits it."""
    limit = plan.request.limits.max_restarts
    if not limit or not isinstance(state.last, Failed) or state.last.lost:
        return None
    roots = [state.findings[number] for number in sorted(state.findings)]
    number = next_restart(limit, state.restarts, roots)
    start = number if isinstance(number, Refused) else effects.prepare(plan, state.outcomes)
    option = f"--max-restarts {limit}"
    if isinstance(start, Refused):
        effects.reporter.note(f"not restarted ({option}): {start.sentence}")
        return None
    begins = f"; {start.sentence}" if start.sentence else ""
    effects.reporter.note(f"{option}: restarting with the same plan, {number} of {limit}{begins}")
    _wait(state, effects)
    return plan, start
