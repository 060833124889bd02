"""Derives facts and constraints from a failed attempt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..catalogue.entry import Finding, Kind, KnownFailure
from ..core.choices import Offload
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.errors import Refused
from ..core.settings import Fact, Name, Setting, Value
from ..core.workload import Known, Origin, Statement, Workload
from ..planning.estimates.model_sizes import model_sizes_of
from ..planning.search import Rules, evaluate_candidate
from .allocator_message import is_of_host
from .attempt import Attempt, Seen
from .memory_calibration import measured_of
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
