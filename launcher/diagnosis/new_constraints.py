"""Learns from attempts: facts, constraints, measured memory, and corrections that did harm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..catalogue.entry import Finding, Kind, KnownFailure
from ..core.choices import Offload
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.errors import Refused
from ..core.hardware import Hardware
from ..core.settings import Fact, Name, Setting, Value
from ..core.workload import Known, Measured, Origin, Statement, Workload
from ..evidence.failure_record import OWN_CHANGE, FailureRecord
from ..planning.budget import capacity
from ..planning.estimates.estimate import ranks_of
from ..planning.estimates.model_sizes import model_sizes_of
from ..planning.search import Rules, evaluate_candidate
from .allocator_message import allocation_of, is_of_host
from .attempt import Attempt, Failed, Outcome, Seen, Succeeded
from .observed import observed_statements, tried_settings, with_seen

NOT_MODELLED = (
    "the memory of FSDP 1, and of tensor, pipeline or sequence parallelism, isn't modelled"
)


@dataclass(frozen=True, slots=True)
class Learned:
    """Workload and constraints after a failure."""

    workload: Workload
    constraints: tuple[Constraint, ...]


def learned_from(
    workload: Workload, attempt: Attempt, seen: Seen, root: Finding, rules: Rules
) -> Learned | Refused:
    """Workload and constraints after an explained failure.

    Refused if there are none: without a memory estimate, or without one for this engine.
    """
    now = with_seen(workload, attempt, seen)
    assert root.entry is not None, "only an explained failure teaches"
    observed = observed_statements(attempt, root.record.observed)
    if root.entry.kind is Kind.MEMORY:
        if is_of_host(root.record) and rules.hardware.accelerator.memory:
            return _forbid_offload(now, attempt, rules)
        if model_sizes_of(now) is None:
            why = "the model's shape isn't known" if now.model is None else NOT_MODELLED
            return Refused(f"{why}, so no smaller plan can be computed")
        now = now.informed(observed)
        measured = measured_of(attempt, root.record, now, rules.hardware)
        now = replace(now, measured=(*now.measured, measured))
    elif not is_about(root.entry, now.informed(observed)):
        return Refused(
            "the settings that are known to cure it are for another engine than this run's"
        )
    return _explained(now, attempt, root.entry, observed, rules)


def _forbid_offload(workload: Workload, attempt: Attempt, rules: Rules) -> Learned | Refused:
    """Forbids the tried offload after a host with accelerators ran out of memory.

    Calibrates nothing, as the offload's and the data loaders' shares of host memory are unknown.
    """
    tried = tried_settings(attempt, workload).get(Setting.OFFLOAD, Offload.NONE.value)
    if tried == Offload.NONE:
        return Refused(
            "no setting keeps less in host memory: ask for more, or load with fewer processes"
        )
    places = list(Offload)
    at_least_as_much = places[places.index(Offload(str(tried))) :]
    number = str(attempt.number + 1)
    constraint = Constraint(
        (Term(Setting.OFFLOAD, frozenset(str(place.value) for place in at_least_as_much)),),
        Cause(CauseKind.ATTEMPT, number, f"attempt {number} ran out of host memory with it"),
    )
    return Learned(workload, (*rules.constraints, constraint))


def is_about(entry: KnownFailure, workload: Workload) -> bool:
    """Whether an entry's constraint may apply to a workload with these facts.

    The same message may come from another engine.
    """
    known: dict[Name, Value] = {
        name: statement.value
        for name, statement in workload.known.items()
        if isinstance(name, Fact)
    }
    known |= dict[Name, Value](entry.proves.items())
    return any(
        all(term.name not in known or term.holds(known) for term in terms)
        for terms in entry.forbids
    )


def _explained(
    workload: Workload,
    attempt: Attempt,
    entry: KnownFailure,
    observed: tuple[Statement, ...],
    rules: Rules,
) -> Learned:
    """Workload and constraints after a failure of an entry, which forbid the attempt's plan.

    First adds the facts that the entry proves, with which the catalogue may already forbid the
    attempt's plan. Otherwise, e.g. if the supposed cure was in force, forbids the attempt's values
    of the entry's settings.
    """
    number = str(attempt.number + 1)
    source = f"proven by attempt {number}: {entry.id}"
    proven = ((fact, Known(value, Origin.LESSON, source)) for fact, value in entry.proves.items())
    workload = workload.informed((*observed, *proven))
    if is_hopeless(attempt, workload, rules):
        return Learned(workload, rules.constraints)
    tried = tried_settings(attempt, workload)
    concerned = {term.name for terms in entry.forbids for term in terms} & tried.keys()
    terms = tuple(
        Term(setting, frozenset({value}))
        for setting, value in tried.items()
        if setting in concerned or not concerned
    )
    reference = entry.sources[0] if entry.sources else ""
    cause = Cause(
        CauseKind.ATTEMPT, number, f"attempt {number} failed with it: {entry.subject}", reference
    )
    return Learned(workload, (*rules.constraints, Constraint(terms, cause)))


def is_hopeless(attempt: Attempt, workload: Workload, rules: Rules) -> bool:
    """Whether the attempt is bound to fail, given all known facts.

    A running attempt ends early only if the expected memory doesn't fit. An excess of only the
    upper bound is a reason not to start, but not to stop.
    """
    candidate = evaluate_candidate(tried_settings(attempt, workload), workload, rules)
    return candidate.constraint is not None and not candidate.is_tight


def measured_of(
    attempt: Attempt, record: FailureRecord, workload: Workload, hardware: Hardware
) -> Measured:
    """Converts the allocator's or the host's numbers to terms of the memory model.

    The context is the device's memory outside the framework's allocator, or on a CPU the process's
    memory before the model.
    """
    there = capacity(hardware, ranks_of(attempt.plan.request, hardware))
    seen = allocation_of(record)
    settings = tried_settings(attempt, workload)
    limit = there if seen.capacity is None else min(seen.capacity, there)
    held = seen.allocated if seen.process is None else seen.process
    needed = limit if held is None else held + (seen.requested or 0)
    context = record.memory.get("before_model") if seen.process is not None else None
    if seen.capacity is not None and seen.free is not None and seen.reserved is not None:
        context = max(seen.capacity - seen.free - seen.reserved, 0)
    return Measured(settings, needed, context, limit)


def trained_of(outcome: Succeeded, workload: Workload, hardware: Hardware) -> Measured | None:
    """Memory of the rank with the most; None if not measured."""
    attempt = outcome.attempt
    most = max(outcome.seen.rows, key=lambda row: row.peak, default=None)
    if most is None or not most.peak:
        return None
    there = capacity(hardware, ranks_of(attempt.plan.request, hardware))
    # Other processes may have used device memory too: the training still fitted.
    return Measured(
        tried_settings(attempt, workload), min(most.peak, there), min(most.context, there), there
    )


@dataclass(frozen=True, slots=True)
class SuspectCorrection:
    """A correction that may have caused the following failure.

    Attributes:
        first: number of the corrected attempt, whose failure is reported if no remedy is left.
        changed: old and new value of each corrected setting.
        constraint: forbids the correction.
    """

    first: int
    changed: Mapping[Setting, tuple[Value | None, Value]]
    constraint: Constraint


def suspect_correction(
    outcomes: Sequence[Outcome], findings: Mapping[int, Finding], standing: int | None
) -> SuspectCorrection | None:
    """The correction that may have caused the last failure; None if the script did.

    Suspects a correction if no known remedy exists and the failure came no later in training than
    the corrected failure: beyond that step the script runs code it hadn't reached before.

    Args:
        outcomes: the outcomes of all attempts; the last failed.
        findings: the root cause of each failed attempt, by its number.
        standing: number of the attempt whose correction was suspected earlier.
    """
    *earlier, last = (outcome.attempt for outcome in outcomes if isinstance(outcome, Failed))
    if not earlier:
        return None
    first = earlier[-1].number if standing is None else standing
    before, now = findings[first], findings[last.number]
    is_curable = now.entry is not None and now.entry.kind is not Kind.USER
    is_later = (now.record.step or 0) > (before.record.step or 0)
    if is_curable or (is_later and now.record.exception != OWN_CHANGE):
        return None
    changed = changed_since(outcomes[first].attempt, last)
    if not changed:
        return None
    number = str(last.number + 1)
    summary = f"attempt {number} failed with it in another way: {now.name}"
    terms = tuple(Term(setting, frozenset({new})) for setting, (_, new) in changed.items())
    constraint = Constraint(terms, Cause(CauseKind.ATTEMPT, number, summary))
    return SuspectCorrection(first, changed, constraint)


def changed_since(before: Attempt, last: Attempt) -> dict[Setting, tuple[Value | None, Value]]:
    """Old and new value of each differing setting, by current facts about the script."""
    old = tried_settings(before, last.plan.workload)
    return {
        setting: (old.get(setting), value)
        for setting, value in tried_settings(last, last.plan.workload).items()
        if old.get(setting) != value
    }
