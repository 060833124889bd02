"""Finds the root cause of a failed attempt, and lines of the user's code that may have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..catalogue.entry import Diagnosis, Finding, KnownFailure, Role
from ..core.request import LaunchRequest
from ..core.script import SourceLocation
from ..evidence.failure_record import FailureRecord, Raised
from ..workload.script.files import user_files
from ..workload.script.line_searches import spots


def diagnose(
    records: Sequence[FailureRecord],
    catalogue: Sequence[KnownFailure],
    prefilter: Callable[[FailureRecord], Sequence[KnownFailure]] | None = None,
) -> Diagnosis:
    """Diagnoses all records and sorts the findings, the root cause first.

    Initiating failures come before consequences, exceptions before signals and exit codes, earlier
    failures before later ones. An unexplained exception counts as initiating, so a user's bug is
    never taken for a consequence.
    """
    findings = [
        finding_of(record, catalogue if prefilter is None else prefilter(record))
        for record in records
    ]
    return Diagnosis(tuple(sorted(findings, key=urgency)))


def urgency(finding: Finding) -> tuple[int, bool, float]:
    """Sort key: role, whether only a signal or exit code is known, time."""
    record, entry = finding.record, finding.entry
    is_bare = not record.exception and not (
        entry and any(sign.log and sign.matches(record) for sign in entry.signatures)
    )
    return list(Role).index(finding.role), is_bare, record.at


def finding_of(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> Finding:
    """The best explanation of a record by an entry, if any.

    General entries count if no other does, or if only consequences do of what they are about;
    initiating entries come before others, the exception raised first before those that it led to,
    signatures with more parts before wider ones. If the log lacks the frame by which several
    entries with the same message differ, none counts.
    """
    roles = list(Role)
    raised: list[Raised | None] = list(record.raised()) or [None]
    kinds = {None, *(error.exception.rpartition(".")[2] for error in raised if error)}
    shown = [
        (
            (entry.is_general, roles.index(entry.role), -depth, -sign.weight(raised[depth])),
            entry,
            sign.is_of_frame and getattr(raised[depth], "frame", None) is None,
        )
        for entry in catalogue
        for sign in entry.signatures
        if sign.exception in kinds and (depth := sign.depth(record)) is not None
    ]
    if not shown:
        return Finding(record, Role.INITIATING, None)
    best, entry, _ = min(shown, key=lambda match: match[0])
    if best[1]:  # a consequence: a general entry on an exception before it counts
        causes = [match for match in shown if not match[0][1] and match[0][2] < best[2]]
        best, entry, _ = min(causes, key=lambda match: match[0], default=(best, entry, False))
    guesses = {other.id for key, other, is_guess in shown if key == best and is_guess}
    if len(guesses) > 1:
        return Finding(record, Role.INITIATING, None)
    return Finding(record, entry.role, entry)


def spots_of(root: Finding, request: LaunchRequest) -> tuple[SourceLocation, ...]:
    """Lines of the user's code related to a failure.

    Of files named by another node, opens only source files of this training.
    """
    if root.entry is None or root.entry.points_at is None:
        return ()
    paths = root.record.user_files
    if root.record.host:
        folders = [Path.cwd(), *(path.resolve().parent for path in user_files(request))]
        paths = tuple(path for path in paths if _is_source(Path(path), folders))
    return spots(root.entry.points_at, paths)


def _is_source(path: Path, folders: Sequence[Path]) -> bool:
    """Whether a path is a Python file below one of the folders."""
    try:
        real = path.resolve()
        return real.suffix == ".py" and real.is_file() and any(map(real.is_relative_to, folders))
    except (OSError, ValueError, RuntimeError):
        return False
