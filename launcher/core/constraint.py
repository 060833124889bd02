"""Constraints: combinations that can't hold, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .settings import Name, Value

Point = Mapping[Name, Value]
"""A candidate's settings together with the facts; absent names are unknown."""


@dataclass(frozen=True, slots=True)
class Term:
    """A name and those of its values that are part of a contradiction.

    Attributes:
        name: of a setting or a fact.
        least: from this number on, all values are part of it as well; None for none.
    """

    name: Name
    values: frozenset[Value]
    least: int | None = None

    def holds(self, point: Point) -> bool:
        """Whether the point is known to have one of the values; False if it is unknown."""
        value = point.get(self.name)
        if value is None:
            return False
        beyond = self.least is not None and isinstance(value, int) and value >= self.least
        return beyond or value in self.values

    def __str__(self) -> str:
        texts = sorted(map(str, self.values))
        texts += [] if self.least is None else [f">={self.least}"]
        return f"{self.name}={'|'.join(texts)}"


class CauseKind(StrEnum):
    """The kind of a cause."""

    KNOWN_FAILURE = "known failure"
    ATTEMPT = "attempt"
    LESSON = "lesson"
    MEMORY = "memory"
    HARDWARE = "hardware"
    REQUEST = "request"
    MEASUREMENT = "measurement"
    """The sweep has shown it wrong: no change leads into it, but the requested value stays."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something is forbidden.

    Attributes:
        name: id of the known failure (also of a lesson's), or the attempt's number.
        summary: the reason as a phrase, e.g. a known failure's title.
        reference: where to read more; may be empty.
        is_silent: it raises no error, so nothing reveals it later.
    """

    kind: CauseKind
    name: str
    summary: str
    reference: str = ""
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """Terms that can't hold together, and the cause."""

    terms: tuple[Term, ...]
    cause: Cause

    def forbids(self, point: Point) -> bool:
        """Whether all terms are known to hold at the point."""
        return all(term.holds(point) for term in self.terms)
