"""Detects failures caused by the launcher's corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..catalogue.entry import Finding, Kind
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.settings import Setting, Value
from ..evidence.failure_record import OWN_CHANGE
from .attempt import Attempt, Failed, Outcome
from .observed import tried_settings


@dataclass(frozen=True, slots=True)
class SuspectCorrection:
    """A correction that may have caused the following failure.

    Attributes:
        first: number of the corrected attempt, whose failure is reported if no remedy is left.
        changed: old and new value of each corrected setting.
        constraint: forbids the correction.
    """

    first: int
    changed: Mapping[Setting, tuple[Value | None, Value]]
    constraint: Constraint


def suspect_correction(
    outcomes: Sequence[Outcome], findings: Mapping[int, Finding], standing: int | None
) -> SuspectCorrection | None:
    """The correction that may have caused the last failure; None if the script did.

    Suspects a correction if no known remedy exists and the failure came no later in training than
    the corrected failure: beyond that step the script runs code it hadn't reached before.

    Args:
        outcomes: the outcomes of all attempts; the last failed.
        findings: the root cause of each failed attempt, by its number.
        standing: number of the attempt whose correction was suspected earlier.
    """
    *earlier, last = (outcome.attempt for outcome in outcomes if isinstance(outcome, Failed))
    if not earlier:
        return None
    first = earlier[-1].number if standing is None else standing
    before, now = findings[first], findings[last.number]
    is_curable = now.entry is not None and now.entry.kind is not Kind.USER
    is_later = (now.record.step or 0) > (before.record.step or 0)
    if is_curable or (is_later and now.record.exception != OWN_CHANGE):
        return None
    changed = changed_since(outcomes[first].attempt, last)
    if not changed:
        return None
    number = str(last.number + 1)
    summary = f"attempt {number} failed with it in another way: {now.name}"
    terms = tuple(Term(setting, frozenset({new})) for setting, (_, new) in changed.items())
    constraint = Constraint(terms, Cause(CauseKind.ATTEMPT, number, summary))
    return SuspectCorrection(first, changed, constraint)


def changed_since(before: Attempt, last: Attempt) -> dict[Setting, tuple[Value | None, Value]]:
    """Old and new value of each differing setting, by current facts about the script."""
    old = tried_settings(before, last.plan.workload)
    return {
        setting: (old.get(setting), value)
        for setting, value in tried_settings(last, last.plan.workload).items()
        if old.get(setting) != value
    }
