"""Tests candidates against constraints, considering the certainty of settings."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.constraint import CauseKind, Constraint
from ..core.settings import Name, Setting, Value
from ..core.workload import Workload
from .estimates.training_states import Candidate


def first_that_forbids(
    candidate: Candidate,
    workload: Workload,
    constraints: Iterable[Constraint],
    *,
    has_failed: bool,
) -> Constraint | None:
    """The first constraint that forbids a candidate, if any.

    Before any failure, known failures that depend on an assumption don't count: the workers will
    report the fact. But no change by the launcher may lead to a silent failure, even an assumed
    one. Cells that the sweep proved wrong forbid only such changes.
    """
    whole, certain = point_of(candidate, workload), certain_point_of(candidate, workload)
    requested = point_of(workload.requested, workload)

    def forbids(constraint: Constraint) -> bool:
        is_assumed = constraint.cause.kind is CauseKind.KNOWN_FAILURE and not has_failed
        is_entered = constraint.cause.is_silent and not constraint.forbids(requested)
        if constraint.cause.kind is CauseKind.MEASUREMENT and not is_entered:
            return False
        return constraint.forbids(certain if is_assumed and not is_entered else whole)

    return next(filter(forbids, constraints), None)


def point_of(candidate: Candidate, workload: Workload) -> dict[Name, Value]:
    """The candidate's settings and the facts, for testing constraints."""
    point = workload.facts
    for setting, value in candidate.items():
        point[setting] = value
    return point


def certain_point_of(candidate: Candidate, workload: Workload) -> dict[Name, Value]:
    """The same without assumptions about the script; a plan's changes are certain."""
    requested = workload.requested
    return {
        name: value
        for name, value in point_of(candidate, workload).items()
        if workload.is_certain(name) or (isinstance(name, Setting) and requested.get(name) != value)
    }
