"""From the records of a failed attempt to its root cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..catalogue.entry import Diagnosis, Finding, KnownFailure, Role
from ..evidence.failure_record import FailureRecord, Raised


def diagnose(
    records: Sequence[FailureRecord],
    catalogue: Sequence[KnownFailure],
    prefilter: Callable[[FailureRecord], Sequence[KnownFailure]] | None = None,
) -> Diagnosis:
    """The judgement on all ranks' records: the root first.

    What initiates comes before its consequences, an exception before a signal or an exit code,
    then the earlier before the later. An exception that no entry explains counts as initiating,
    so that a user's bug is never taken for one of its consequences.

    Args:
        records: what is known of each death.
        catalogue: the known failures.
        prefilter: the few of them that a record may show at all, where that is known quickly.
    """
    findings = [
        finding_of(record, catalogue if prefilter is None else prefilter(record))
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
    _, entry = min(shown, key=lambda match: match[0])
    return Finding(record, entry.role, entry)
