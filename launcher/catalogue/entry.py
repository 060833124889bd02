"""An entry of the catalogue: a known failure with its prose, and findings that refer to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType

from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.nearest import near
from ..core.settings import Fact, Value
from ..evidence.failure_record import FailureRecord
from ..system.regular_files import text_of
from ..system.typed_files import DocumentError
from .signature import Signature
from .situation import Trait, required
from .variant import Variant

SECTIONS = ("What happens", "What to do", "What it costs", "Seen as", "Not to be confused with")
"""Allowed headings of an entry; the first two are required."""
FRONT_MATTER = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
"""The front matter before the prose."""
QUOTED = re.compile(r' \(".*\)$')
"""Quoted messages at the end of a title, for searches."""
PROOFS = ("reproduced", "read in source", "reported")
"""Prefixes of an entry's proofs, strongest first."""


@cache
def sections_of(path: Path) -> Mapping[str, str]:
    """The text under each second-level heading of an entry's file.

    Raises:
        LaunchError: the file can't be read.
    """
    prose = FRONT_MATTER.sub("", text_of(path), count=1)
    parts = re.split(r"^## +(.+)$", prose, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return MappingProxyType({heading.strip(): body.strip() for heading, body in pairs})


def check_prose(path: Path) -> None:
    """Refuses prose with an unknown heading, without advice, or with a section for no run.

    Raises:
        DocumentError: the prose is invalid.
    """
    text, sections = text_of(path), sections_of(path)
    for heading in sections:
        if heading not in SECTIONS:
            line = _line_of(text, f"## {heading}")
            hint = near(heading, SECTIONS)
            raise DocumentError(path, line, f"unknown heading `{heading}`", hint)
    for heading in SECTIONS[:2]:
        if not sections.get(heading):
            match = FRONT_MATTER.match(text)
            line = text.count("\n", 0, 0 if match is None else match.end()) + 1
            raise DocumentError(path, line, f"no section `{heading}`")
        for paragraph in sections[heading].split("\n\n"):
            try:
                required(paragraph)
            except ValueError as error:
                hint = near(str(error), [trait.value for trait in Trait])
                problem = f"unknown kind of run: `{error}`"
                raise DocumentError(path, _line_of(text, paragraph), problem, hint) from None


def _line_of(text: str, part: str) -> int:
    """The line of a part of a text; 1 if not found."""
    return text.count("\n", 0, max(text.find(part), 0)) + 1


class Role(StrEnum):
    """The role of a failure in the chain of events."""

    INITIATING = "initiating"
    """The failure started the chain."""
    CASCADE = "cascade"
    """The failure is a consequence of another rank's."""
    TEARDOWN = "teardown"
    """The failure results from stopping the workers."""


class Kind(StrEnum):
    """The remedy for a failure."""

    PRESET = "preset"
    """Another preset cures it."""
    TRANSIENT = "transient"
    """The same preset may be retried a limited number of times."""
    USER = "user"
    """The code, the data or the environment must change."""
    HARDWARE = "hardware"
    """Another node is needed."""
    MEMORY = "memory"
    """A smaller plan, computed by the memory model, cures it."""
    SILENT = "silent"
    """Training silently differs from the request: avoided or reported beforehand."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One file of `presets/failures/`.

    Attributes:
        id: the file's name, which describes the pattern, never the remedy.
        title: the text that a user would search for.
        role: its role in the chain of events.
        kind: the kind of remedy (`class` in the file).
        signatures: its possible appearances.
        variants: advice for cases shown by the evidence; the first match counts.
        when: affected version ranges, by distribution; all must apply.
        proves: facts implied by its occurrence.
        forbids: conjunctions of terms that cause it.
        tells: conjunctions of terms that cause it with any settings: reported, not refused.
        is_general: whether the entry is broad and counts only if no other does.
        points_at: name of the search that finds the user's line, see
            `workload/script/line_searches.py`.
        proof: the evidence for the entry.
        sources: further reading, best first.
        path: the file.
    """

    id: str
    title: str
    role: Role
    kind: Kind
    signatures: tuple[Signature, ...]
    variants: tuple[Variant, ...]
    when: Mapping[str, str]
    proves: Mapping[Fact, Value]
    forbids: tuple[tuple[Term, ...], ...]
    tells: tuple[tuple[Term, ...], ...]
    is_general: bool
    points_at: str | None
    proof: tuple[str, ...]
    sources: tuple[str, ...]
    path: Path

    @property
    def sections(self) -> Mapping[str, str]:
        """The prose, by heading."""
        return sections_of(self.path)

    @property
    def subject(self) -> str:
        """The title without quoted messages, as a run's message has other numbers."""
        return QUOTED.sub("", self.title)

    def subject_of(self, record: FailureRecord) -> str:
        """The title for a record: that of the first variant that holds, if it has one."""
        held = (each for each in self.variants if each.advice(record) is not None)
        variant = next(held, None)
        return (variant.title if variant else "") or self.subject

    @property
    def confidence(self) -> str:
        """The strongest kind of proof; empty if none."""
        kinds = (kind for kind in PROOFS if any(proof.startswith(kind) for proof in self.proof))
        return next(kinds, "")

    def matches(self, record: FailureRecord) -> bool:
        """Whether the record matches any signature."""
        return any(signature.matches(record) for signature in self.signatures)


@dataclass(frozen=True, slots=True)
class Finding:
    """One rank's record, its role, and the entry that explains it, if any."""

    record: FailureRecord
    role: Role
    entry: KnownFailure | None

    @property
    def name(self) -> str:
        """Identity of the cause: its entry, or else its exception."""
        if self.entry is not None:
            return self.entry.id
        text = " ".join(self.record.message.split())[:80]
        return f"{self.record.exception.rpartition('.')[2]}: {text}".rstrip(": ")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of a failed attempt."""

    findings: tuple[Finding, ...]

    @property
    def root(self) -> Finding:
        """The root cause."""
        return self.findings[0]

    def findings_as_json(self) -> list[dict[str, object]]:
        """The findings as JSON values without their records, each entry by its id."""
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
        """Further independent causes, each once."""
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
    """The constraints of an entry."""
    reference = entry.sources[0] if entry.sources else ""
    is_silent = entry.kind is Kind.SILENT
    cause = Cause(CauseKind.KNOWN_FAILURE, entry.id, entry.title, reference, is_silent)
    return tuple(Constraint(terms, cause) for terms in entry.forbids)


def known_constraints(entries: Iterable[KnownFailure]) -> tuple[Constraint, ...]:
    """The constraints of all entries."""
    return tuple(constraint for entry in entries for constraint in constraints_of(entry))
