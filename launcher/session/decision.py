"""What follows from the end of an attempt: pure reasoning over frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..catalogue.entry import Finding, Kind
from ..core.constraint import Constraint
from ..core.errors import ExitCode
from ..core.refused import Refused
from ..core.request import Fix, LaunchRequest
from ..core.workload import Workload
from ..diagnosis.attempt import Failed, Interrupted, Outcome, Succeeded, Superseded
from ..diagnosis.new_constraints import learned_from
from ..diagnosis.observed import with_seen
from ..diagnosis.suspect_corrections import SuspectCorrection
from ..planning.fewer_nodes import on_survivors
from ..planning.search import Rules

PAUSE = 10.0
"""Seconds before a transient failure is retried: devices and ports are let go of later than their
process ends (CANN asks for ten seconds, its error EJ0001)."""
RELAUNCHES = {Fix.AUTO: 6, Fix.ONCE: 1, Fix.SUGGEST: 0}
"""How often the workers may be relaunched with a corrected plan."""


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run carries from one attempt to the next.

    Attributes:
        request: what is launched, on the nodes that are left.
        workload: what is known of the training.
        constraints: what is forbidden: by the catalogue, the hardware and the attempts so far.
        outcomes: how each attempt has ended, by its number.
        findings: root cause of each attempt that failed, by its number.
        retried: ids of transient failures that have been retried.
        restarts: how often the same plan was restarted because of --max-restarts.
        standing: number of the attempt whose failure is the run's if no correction is left, because
            its corrections so far have only led to other failures; None for the last attempt's.
    """

    request: LaunchRequest
    workload: Workload
    constraints: tuple[Constraint, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    findings: Mapping[int, Finding] = field(default_factory=lambda: MappingProxyType({}))
    retried: frozenset[str] = frozenset()
    restarts: int = 0
    standing: int | None = None

    @property
    def last(self) -> Outcome:
        """How the last attempt has ended."""
        return self.outcomes[-1]

    @property
    def root(self) -> Finding | None:
        """Root cause of the last attempt's failure; None where it did not fail."""
        return self.findings.get(self.last.attempt.number)

    def after(self, outcome: Outcome, root: Finding | None) -> RunState:
        """The state when one more attempt has ended."""
        found = {} if root is None else {outcome.attempt.number: root}
        findings = MappingProxyType({**self.findings, **found})
        return replace(self, outcomes=(*self.outcomes, outcome), findings=findings)


@dataclass(frozen=True, slots=True)
class End:
    """The run ends.

    Attributes:
        code: the launcher's exit code.
        standing: number of the earlier attempt whose failure is the run's; None for the last one's.
        note: why, where the diagnosis doesn't say it.
    """

    code: int
    standing: int | None = None
    note: str = ""

    def outcome_of(self, state: RunState) -> Outcome:
        """The outcome that is the run's."""
        return state.last if self.standing is None else state.outcomes[self.standing]


@dataclass(frozen=True, slots=True)
class Replan:
    """Another attempt follows.

    Attributes:
        state: what is known now.
        pause: seconds to wait first.
        note: why to wait.
    """

    state: RunState
    pause: float = 0.0
    note: str = ""


Decision = End | Replan


def decide(
    state: RunState, rules: Rules, suspect: SuspectCorrection | None, pause: float = PAUSE
) -> Decision:
    """What follows from how the last attempt has ended.

    Args:
        state: with the last outcome and its root cause.
        rules: what the last attempt was planned under.
        suspect: the correction that may have caused the failure.
        pause: seconds before a transient failure is retried.
    """
    match state.last:
        case Succeeded():
            return End(ExitCode.SUCCESS)
        case Interrupted(signal=number):
            return End(128 + number)
        case Superseded(attempt=attempt, seen=seen):
            return Replan(replace(state, workload=with_seen(state.workload, attempt, seen)))
        case Failed() as failed if suspect is not None:
            workload = with_seen(state.workload, failed.attempt, failed.seen)
            constraints = (*state.constraints, suspect.constraint)
            return Replan(
                replace(state, workload=workload, constraints=constraints, standing=suspect.first)
            )
        case Failed() as failed:
            return _after_failure(state, failed, rules, pause)


def _after_failure(state: RunState, failed: Failed, rules: Rules, pause: float) -> Decision:
    """What follows from a failure that no correction of ours is suspected of."""
    root = state.findings[failed.attempt.number]
    if root.entry is None:
        return End(exit_code(root))
    if failed.lost:
        request = on_survivors(failed.attempt.plan.request, state.workload, failed.lost)
        if isinstance(request, Refused):
            return End(ExitCode.RETRY_ELSEWHERE, note=request.sentence)
        state = replace(state, request=request)
        if root.record.rank is None:  # nothing but the loss of the node has failed
            return Replan(state)
    name, kind = root.entry.id, root.entry.kind
    if kind is Kind.TRANSIENT and name not in state.retried:
        waiting = f"waiting {pause:g} s: the failure passes by itself"
        return Replan(replace(state, retried=state.retried | {name}), pause, waiting)
    if kind not in (Kind.PRESET, Kind.MEMORY):
        return End(exit_code(root))
    learned = learned_from(state.workload, failed.attempt, failed.seen, root, rules)
    if isinstance(learned, Refused):
        return no_correction_left(state, exit_code(root), learned.sentence)
    return Replan(replace(state, workload=learned.workload, constraints=learned.constraints))


def no_correction_left(state: RunState, code: int, note: str = "") -> End:
    """The end where nothing more can be corrected; an earlier failure may stand."""
    if state.standing is None:
        return End(code, note=note)
    return End(exit_code(state.findings[state.standing]), state.standing, note)


def relaunch_refused(state: RunState) -> Refused | None:
    """Why no corrected plan may be launched any more; restarts of the same plan don't count."""
    fix = state.request.limits.fix
    if len(state.outcomes) - state.restarts > RELAUNCHES[fix]:
        return Refused(f"--fix {fix} allows {RELAUNCHES[fix]}")
    return None


def exit_code(root: Finding) -> int:
    """The worker's own code; a node at fault has a code of its own."""
    if root.entry is not None and root.entry.kind is Kind.HARDWARE:
        return ExitCode.RETRY_ELSEWHERE
    return root.record.exit_code or 1
