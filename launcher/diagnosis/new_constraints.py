"""Facts and constraints that a failed attempt adds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..catalogue.entry import Finding, Kind, KnownFailure
from ..core.certainty import Origin
from ..core.choices import Offload
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.refused import Refused
from ..core.settings import Fact, Name, Setting, Value
from ..core.workload import Known, Statement, Workload
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
class Lesson:
    """The facts and constraints of an explained failure.

    Attributes:
        statements: facts that are now known, and settings that were observed in force.
        constraint: what the attempt forbids beyond the catalogue; None if the catalogue, with
            the new facts, already forbids the attempt's own plan.
    """

    statements: tuple[Statement, ...]
    constraint: Constraint | None


@dataclass(frozen=True, slots=True)
class Learned:
    """Workload and constraints after a failure."""

    workload: Workload
    constraints: tuple[Constraint, ...]


def learned_from(
    workload: Workload, attempt: Attempt, seen: Seen, root: Finding, rules: Rules
) -> Learned | Refused:
    """Workload and constraints after an explained failure.

    Refused if nothing follows: there is no memory estimate, or none for this engine.
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
    lesson = lesson_of(attempt, root, rules, now)
    added = () if lesson.constraint is None else (lesson.constraint,)
    return Learned(now.informed(lesson.statements), (*rules.constraints, *added))


def _forbid_offload(workload: Workload, attempt: Attempt, rules: Rules) -> Learned | Refused:
    """Forbids the tried offload after a host with accelerators ran out of memory.

    It is unknown how much of the host memory was the offload's and how much the data loaders', so
    nothing is calibrated.
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
    """Whether what an entry forbids can apply to a workload, given its known facts.

    The same message may come from another engine than the remedy's.
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


def lesson_of(attempt: Attempt, finding: Finding, rules: Rules, workload: Workload) -> Lesson:
    """The lesson of a failure that an entry explains; it always forbids the attempt's own plan.

    The facts that the entry proves come first: with them the catalogue may already forbid what was
    tried. If it doesn't, e.g. because the failure came back under the setting that should have
    cured it, the attempt's values of the settings that the entry is about are forbidden.
    """
    entry = finding.entry
    assert entry is not None, "only an explained failure teaches"
    number = str(attempt.number + 1)
    source = f"proven by attempt {number}: {entry.id}"
    statements = (
        *observed_statements(attempt, finding.record.observed),
        *((fact, Known(value, Origin.LESSON, source)) for fact, value in entry.proves.items()),
    )
    workload = workload.informed(statements)
    if is_hopeless(attempt, workload, rules):
        return Lesson(statements, None)
    tried = tried_settings(attempt, workload)
    concerned = {term.name for terms in entry.forbids for term in terms} & tried.keys()
    terms = tuple(
        Term(setting, frozenset({value}))
        for setting, value in tried.items()
        if setting in concerned or not concerned
    )
    reference = entry.sources[0] if entry.sources else ""
    summary = f"attempt {number} failed with it: {entry.subject}"
    return Lesson(
        statements, Constraint(terms, Cause(CauseKind.ATTEMPT, number, summary, reference))
    )


def is_hopeless(attempt: Attempt, workload: Workload, rules: Rules) -> bool:
    """Whether the attempt is bound to fail, given what is known now.

    Memory ends a running attempt only if the expected need doesn't fit. If only the bound doesn't
    fit, that is a reason not to start, but not a reason to stop.
    """
    candidate = evaluate_candidate(tried_settings(attempt, workload), workload, rules)
    return candidate.constraint is not None and not candidate.is_tight
