"""Decides what follows from the end of an attempt: pure functions of frozen values."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..catalogue.entry import Finding, Kind
from ..core.constraint import Constraint
from ..core.errors import ExitCode, Refused
from ..core.request import Fix, LaunchRequest
from ..core.workload import Workload
from ..diagnosis.attempt import Failed, Interrupted, Outcome, Succeeded, Superseded
from ..diagnosis.new_constraints import SuspectCorrection, learned_from
from ..diagnosis.observed import with_seen
from ..evidence.failure_record import FailureRecord, ToldBy
from ..planning.fewer_nodes import on_survivors
from ..planning.search import Rules

RELAUNCHES = {Fix.AUTO: 6, Fix.ONCE: 1, Fix.SUGGEST: 0}
"""Relaunches with a corrected plan at most."""

ONLY_PRINTED = "not relaunched: only the worker's output shows the failure"
"""A printed error may have been survived, or be a child's, which no correction would reach."""
SENT = (signal.SIGKILL, signal.SIGTERM)
"""Signals from outside, after which a restart may succeed (docs/using/exit-codes.md)."""


@dataclass(frozen=True, slots=True)
class RunState:
    """The state that a run carries from one attempt to the next.

    Attributes:
        request: the launch, on the nodes that are left.
        constraints: those of the catalogue, the hardware and the attempts so far.
        outcomes: the outcome of each attempt, by its number.
        findings: the root cause of each failed attempt, by its number.
        retried: ids of transient failures that have been retried.
        restarts: how often the same plan was restarted because of --max-restarts.
        standing: number of the attempt whose failure is reported if no correction is left, because
            its corrections have only led to other failures; None to report the last attempt's.
        has_learnt: earlier runs have failed, and left lessons.
    """

    request: LaunchRequest
    workload: Workload
    constraints: tuple[Constraint, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    findings: Mapping[int, Finding] = field(default_factory=lambda: MappingProxyType({}))
    retried: frozenset[str] = frozenset()
    restarts: int = 0
    standing: int | None = None
    has_learnt: bool = False

    @property
    def last(self) -> Outcome:
        """The outcome of the last attempt."""
        return self.outcomes[-1]

    @property
    def root(self) -> Finding | None:
        """Root cause of the last attempt's failure; None if it did not fail."""
        return self.findings.get(self.last.attempt.number)

    @property
    def has_failed(self) -> bool:
        """Whether an attempt of this run, or of one whose lessons it uses, has failed."""
        return self.has_learnt or bool(self.findings)

    def after(self, outcome: Outcome, root: Finding | None) -> RunState:
        """The state after a further attempt."""
        added = {} if root is None else {outcome.attempt.number: root}
        findings = MappingProxyType({**self.findings, **added})
        return replace(self, outcomes=(*self.outcomes, outcome), findings=findings)


@dataclass(frozen=True, slots=True)
class End:
    """The run ends.

    Attributes:
        code: the launcher's exit code.
        standing: number of the earlier attempt whose failure is reported; None for the last one's.
        note: the reason, if the diagnosis doesn't give it.
    """

    code: int
    standing: int | None = None
    note: str = ""

    def outcome_of(self, state: RunState) -> Outcome:
        """The outcome that is reported as the run's."""
        return state.last if self.standing is None else state.outcomes[self.standing]


Decision = End | RunState
"""The end of the run, or the state with which another attempt follows."""


def decide(state: RunState, rules: Rules, suspect: SuspectCorrection | None) -> Decision:
    """Decides what follows from the outcome of the last attempt."""
    match state.last:
        case Succeeded():
            return End(ExitCode.SUCCESS)
        case Interrupted(signal=number):
            return End(128 + number)
        case Superseded(attempt=attempt, seen=seen):
            return replace(state, workload=with_seen(state.workload, attempt, seen))
        case Failed() as failed if suspect is not None:
            workload = with_seen(state.workload, failed.attempt, failed.seen)
            constraints = (*state.constraints, suspect.constraint)
            return replace(
                state, workload=workload, constraints=constraints, standing=suspect.first
            )
        case Failed() as failed:
            return _after_failure(state, failed, rules)


def _after_failure(state: RunState, failed: Failed, rules: Rules) -> Decision:
    """Decides what follows from a failure that isn't attributed to an earlier correction."""
    root = state.findings[failed.attempt.number]
    if root.entry is None:
        return End(exit_code(root))
    if failed.lost:
        request = on_survivors(failed.attempt.plan.request, state.workload, failed.lost)
        if isinstance(request, Refused):
            return End(ExitCode.RETRY_ELSEWHERE, note=request.sentence)
        state = replace(state, request=request)
        if root.record.rank is None:  # the loss of the node is the only failure
            return state
    name, kind = root.entry.id, root.entry.kind
    if kind is Kind.TRANSIENT and name not in state.retried:
        return replace(state, retried=state.retried | {name})
    if kind not in (Kind.PRESET, Kind.MEMORY):
        return End(exit_code(root))
    if root.record.told_by is not ToldBy.WORKER:
        return no_correction_left(state, exit_code(root), ONLY_PRINTED)
    learned = learned_from(state.workload, failed.attempt, failed.seen, root, rules)
    if isinstance(learned, Refused):
        return no_correction_left(state, exit_code(root), learned.sentence)
    return replace(state, workload=learned.workload, constraints=learned.constraints)


def no_correction_left(state: RunState, code: int, note: str = "") -> End:
    """The end if nothing more can be corrected; an earlier failure may be reported."""
    if state.standing is None:
        return End(code, note=note)
    return End(exit_code(state.findings[state.standing]), state.standing, note)


def relaunch_refused(state: RunState) -> Refused | None:
    """Why no further corrected plan may be launched; restarts of the same plan don't count."""
    fix = state.request.limits.fix
    if len(state.outcomes) - state.restarts > RELAUNCHES[fix]:
        return Refused(f"--fix {fix} allows {RELAUNCHES[fix]}")
    return None


def exit_code(root: Finding) -> int:
    """The worker's own exit code; a separate code if the node is at fault."""
    if root.entry is not None and root.entry.kind is Kind.HARDWARE:
        return ExitCode.RETRY_ELSEWHERE
    return root.record.exit_code or 1


def next_restart(limit: int, used: int, roots: Sequence[Finding]) -> int | Refused:
    """The number of the next restart, 1 for the first; or why there is none.

    The `roots` are the root causes of the failed attempts, the latest last.
    """
    *earlier, root = roots
    is_sent = root.record.signal in SENT
    if root.entry is not None and root.entry.kind is Kind.USER and not is_sent:
        return Refused(f"the same input fails with {root.entry.id} every time")
    if any(_failure_key(root.record) == _failure_key(before.record) for before in earlier):
        return Refused("it has ended in the same way twice")
    if used >= limit:
        return Refused("no restart is left")
    return used + 1


def _failure_key(record: FailureRecord) -> tuple[object, ...]:
    """A failure's identity: exception, place and step."""
    frame = record.frames[-1] if record.frames else None
    death = (record.exit_code, record.signal)
    return record.exception, record.message, frame, record.step, death
