"""From the records of a failed attempt to its root cause, and from that to a lesson."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..catalogue.entry import Diagnosis, Finding, KnownFailure, Role
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.settings import Fact, Name, Origin, Setting, Value, name_of, parse_value
from ..core.workload import Known, Statement, Workload
from ..evidence.failure_record import FailureRecord, Raised
from ..planning.search import Rules, judged_for
from .attempt import Attempt


def diagnose(
    records: Sequence[FailureRecord],
    catalogue: Sequence[KnownFailure],
    narrowed: Callable[[FailureRecord], Sequence[KnownFailure]] | None = None,
) -> Diagnosis:
    """The judgement on all ranks' records: the root first.

    What initiates comes before its consequences, an exception before a signal or an exit code,
    then the earlier before the later. An exception that no entry explains counts as initiating,
    so that a bug of the user's is never taken for one of its consequences.

    Args:
        records: what is known of each death.
        catalogue: the known failures.
        narrowed: those of them that a record may show at all, where that is quickly known.
    """
    findings = [
        finding_of(record, catalogue if narrowed is None else narrowed(record))
        for record in records
    ]
    return Diagnosis(tuple(sorted(findings, key=urgency)))


def urgency(finding: Finding) -> tuple[int, bool, float]:
    """What findings are sorted by: role, whether nothing but a signal or a code tells, time."""
    record, entry = finding.record, finding.entry
    is_bare = not record.exception and not (
        entry and any(sign.log and sign.matches(record) for sign in entry.signatures)
    )
    return list(Role).index(finding.role), is_bare, record.at


def finding_of(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> Finding:
    """One record with the entry that explains it best, if any does.

    What initiates before its consequences, the exception raised first before those that it led
    to, the signature with more parts before the wider one.
    """
    roles = list(Role)
    raised: list[Raised | None] = list(record.raised()) or [None]
    shown = [
        ((roles.index(entry.role), -depth, -sign.weight(raised[depth])), entry)
        for entry in catalogue
        for sign in entry.signatures
        if (depth := sign.depth(record)) is not None
    ]
    if not shown:
        return Finding(record, Role.INITIATING, None)
    _, entry = min(shown, key=lambda one: one[0])
    return Finding(record, entry.role, entry)


def is_about(entry: KnownFailure, workload: Workload) -> bool:
    """Whether what an entry forbids can concern a workload, by the facts that are known of it.

    The same message may come from another engine than the one that the remedy is for.
    """
    known: dict[Name, Value] = {
        name: one.value for name, one in workload.known.items() if isinstance(name, Fact)
    }
    known |= dict[Name, Value](entry.proves.items())
    return any(
        all(term.name not in known or term.holds(known) for term in terms)
        for terms in entry.forbids
    )


@dataclass(frozen=True, slots=True)
class Lesson:
    """What an attempt taught.

    Attributes:
        statements: facts that are now known, and settings that were seen in force.
        constraint: what the attempt forbids beyond the catalogue; None where the catalogue, with
            the new facts, already forbids the attempt's own plan.
    """

    statements: tuple[Statement, ...]
    constraint: Constraint | None


def observed_statements(attempt: Attempt, observed: Mapping[str, Value]) -> tuple[Statement, ...]:
    """What a worker saw, as statements on the workload.

    Settings that the plan itself overrides are left out: what is in force there is the plan's, not
    what was asked for.
    """
    statements: list[Statement] = []
    for raw, value in observed.items():
        name = name_of(raw)
        if isinstance(name, Setting) and name in attempt.plan.overrides:
            continue
        source = f"the script, as seen in attempt {attempt.number + 1}"
        statements.append((name, Known(parse_value(name, value), Origin.OBSERVED, source)))
    return tuple(statements)


def learn(attempt: Attempt, finding: Finding, rules: Rules, workload: Workload) -> Lesson:
    """The lesson of a failure that an entry explains; it forbids the attempt's own plan.

    The entry's general terms come first: the facts that it proves, under which the catalogue may
    already forbid what was tried. Where it doesn't, e.g. because the failure came back under the
    setting that should have cured it, the attempt's values of the settings that the entry is about
    are forbidden themselves.
    """
    entry = finding.entry
    assert entry is not None, "only an explained failure teaches"
    source = f"proven by attempt {attempt.number + 1}: {entry.id}"
    statements = (
        *observed_statements(attempt, finding.record.observed),
        *((fact, Known(value, Origin.LESSON, source)) for fact, value in entry.proves.items()),
    )
    workload = workload.informed(statements)
    tried = tried_settings(attempt, workload)
    one = judged_for(tried, workload, rules)
    if one.constraint is not None and not one.is_tight:
        return Lesson(statements, None)
    concerned = {term.name for terms in entry.forbids for term in terms} & tried.keys()
    terms = tuple(
        Term(setting, frozenset({value}))
        for setting, value in tried.items()
        if setting in concerned or not concerned
    )
    summary = f"attempt {attempt.number + 1} failed with it: {entry.title}"
    cause = Cause(CauseKind.ATTEMPT, str(attempt.number + 1), summary, _reference(entry))
    return Lesson(statements, Constraint(terms, cause))


def _reference(entry: KnownFailure) -> str:
    return entry.sources[0] if entry.sources else ""


def tried_settings(attempt: Attempt, workload: Workload) -> dict[Setting, Value]:
    """What the attempt really ran with, as far as the workload knows it now."""
    return {**workload.asked, **attempt.plan.overrides}
