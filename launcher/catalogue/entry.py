"""The known failures, and the diagnosis that joins them with the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.settings import Fact, Value
from ..evidence.failure_record import FailureRecord
from .signature import Signature


class Role(StrEnum):
    """The place of a failure in the chain of events."""

    INITIATING = "initiating"
    """It is where the trouble began."""
    CASCADE = "cascade"
    """It is another rank's death, seen from here."""
    TEARDOWN = "teardown"
    """It comes from stopping the workers."""


class Kind(StrEnum):
    """What cures a failure."""

    PRESET = "preset"
    """Another preset cures it."""
    TRANSIENT = "transient"
    """The same preset may be tried again, a bounded number of times."""
    USER = "user"
    """The code, the data or the environment must change."""
    HARDWARE = "hardware"
    """It needs another node."""
    MEMORY = "memory"
    """A smaller plan cures it; which one, the memory model computes."""
    SILENT = "silent"
    """It raises nothing and trains wrongly: refused before the launch."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One file of `presets/failures/`.

    Attributes:
        id: the file's name; names the pattern, never the remedy.
        title: what a person would search for.
        role: its place in the chain of events.
        kind: what cures it (`class` in the file).
        signatures: the ways that it shows itself.
        when: version ranges of the distributions that have it, by name; all must hold.
        proves: facts that are known once it has been seen.
        forbids: conjunctions of terms that lead to it.
        points_at: name of the search that finds the user's own line, see
            `workload/script/line_searches.py`.
        proof: how it is known to be true.
        sources: where to read on, the best first.
        sections: the prose, by heading.
        path: the file.
    """

    id: str
    title: str
    role: Role
    kind: Kind
    signatures: tuple[Signature, ...]
    when: Mapping[str, str]
    proves: Mapping[Fact, Value]
    forbids: tuple[tuple[Term, ...], ...]
    points_at: str | None
    proof: tuple[str, ...]
    sources: tuple[str, ...]
    sections: Mapping[str, str]
    path: Path

    def matches(self, record: FailureRecord) -> bool:
        """Whether any signature is shown by the record."""
        return any(signature.matches(record) for signature in self.signatures)


@dataclass(frozen=True, slots=True)
class Finding:
    """One rank's record, its role, and the entry that explains it, if any."""

    record: FailureRecord
    role: Role
    entry: KnownFailure | None

    @property
    def name(self) -> str:
        """What distinguishes it from another cause: its entry, else its exception."""
        if self.entry is not None:
            return self.entry.id
        text = " ".join(self.record.message.split())[:80]
        return f"{self.record.exception.rpartition('.')[2]}: {text}".rstrip(": ")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of a failed attempt.

    Attributes:
        findings: every failed rank, the root first.
    """

    findings: tuple[Finding, ...]

    @property
    def root(self) -> Finding:
        """What began it."""
        return self.findings[0]

    def rows(self) -> list[dict[str, object]]:
        """The findings in the terms of JSON but for their records, each entry by its id."""
        return [
            {
                "record": finding.record,
                "role": finding.role,
                "entry": finding.entry and finding.entry.id,
            }
            for finding in self.findings
        ]

    @property
    def others(self) -> tuple[Finding, ...]:
        """Causes beside the root that don't come from it, each once."""
        if self.root.role is not Role.INITIATING:
            return ()
        causes = {
            finding.name: finding
            for finding in reversed(self.findings)
            if finding.role is self.root.role
        }
        return tuple(
            finding for name, finding in reversed(causes.items()) if name != self.root.name
        )


def constraints_of(entry: KnownFailure) -> tuple[Constraint, ...]:
    """What an entry forbids."""
    reference = entry.sources[0] if entry.sources else ""
    cause = Cause(CauseKind.KNOWN_FAILURE, entry.id, entry.title, reference)
    return tuple(Constraint(terms, cause) for terms in entry.forbids)
