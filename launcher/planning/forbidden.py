"""Whether constraints forbid a candidate, given how certain the script's settings are."""

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
    """The first constraint that forbids a candidate; None if none does.

    Before anything has failed, a known failure doesn't count if it depends on an assumption: the
    workers will report the fact. But no change of ours may lead to a silent failure, even an
    assumed one. Cells that the sweep has shown wrong forbid such changes, and nothing else.
    """
    whole, certain = point_of(candidate, workload), certain_point_of(candidate, workload)
    asked = point_of(workload.asked, workload)

    def forbids(constraint: Constraint) -> bool:
        is_assumed = constraint.cause.kind is CauseKind.KNOWN_FAILURE and not has_failed
        is_entered = constraint.cause.is_silent and not constraint.forbids(asked)
        if constraint.cause.kind is CauseKind.MEASUREMENT and not is_entered:
            return False
        return constraint.forbids(certain if is_assumed and not is_entered else whole)

    return next(filter(forbids, constraints), None)


def point_of(candidate: Candidate, workload: Workload) -> dict[Name, Value]:
    """The candidate's settings together with the facts, as tested by constraints."""
    point = workload.facts
    for setting, value in candidate.items():
        point[setting] = value
    return point


def certain_point_of(candidate: Candidate, workload: Workload) -> dict[Name, Value]:
    """The same without what is only assumed of the script; what a plan changes is certain."""
    asked = workload.asked
    return {
        name: value
        for name, value in point_of(candidate, workload).items()
        if workload.is_certain(name) or (isinstance(name, Setting) and asked.get(name) != value)
    }
