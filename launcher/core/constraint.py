"""What can't be together, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .settings import Name, Value

Point = Mapping[Name, Value]
"""A candidate's settings together with the facts; what is absent is unknown."""


@dataclass(frozen=True, slots=True)
class Term:
    """One name and the values of it that take part in a contradiction."""

    name: Name
    values: frozenset[Value]

    def holds(self, point: Point) -> bool:
        """Whether the point is known to have one of the values; the unknown never holds."""
        return self.name in point and point[self.name] in self.values

    def __str__(self) -> str:
        values = sorted(self.values, key=str)
        return f"{self.name}={'|'.join(str(value) for value in values)}"


class CauseKind(StrEnum):
    """What sort of thing forbids."""

    KNOWN_FAILURE = "known failure"
    ATTEMPT = "attempt"
    MEMORY = "memory"
    HARDWARE = "hardware"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something is forbidden.

    Attributes:
        kind: what sort of thing forbids.
        name: id of the known failure, or the attempt's number.
        summary: the reason as half a sentence, e.g. a known failure's title.
        reference: where to read on; empty where there is nothing to read.
    """

    kind: CauseKind
    name: str
    summary: str
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Constraint:
    """Terms that can't hold together, and the cause."""

    terms: tuple[Term, ...]
    cause: Cause

    def forbids(self, point: Point) -> bool:
        """Whether all terms are known to hold at the point."""
        return all(term.holds(point) for term in self.terms)
