"""Which failures are attributed to the launcher's own correction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Finding, KnownFailure, Role
from safe_launch.core.constraint import Cause, CauseKind, Constraint
from safe_launch.core.settings import Setting, Value
from safe_launch.diagnosis.attempt import Attempt, Failed, Outcome, Seen, Superseded
from safe_launch.diagnosis.suspect_corrections import suspect_correction
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.planning.plan import Change, Plan
from safe_launch.planning.search import resolve
from support.worlds import CATALOGUE, CURRENT, HARDWARE, REQUEST, ZERO2, known_rules, world

TO_OTHER = {Setting.GRADIENT_CHECKPOINTING: "non_reentrant"}
TO_STAGE_1 = {Setting.ZERO_STAGE: 1}


def attempt(number: int, enforced: Mapping[Setting, Value]) -> Attempt:
    """An attempt at ZeRO-2 with reentrant checkpointing, with these corrections."""
    asked = {**ZERO2, Setting.GRADIENT_CHECKPOINTING: "reentrant"}
    plan = resolve(REQUEST, world(asked), HARDWARE, known_rules(CURRENT))
    assert isinstance(plan, Plan)
    cause = Constraint((), Cause(CauseKind.ATTEMPT, "1", "it has failed"))
    changes = [Change(name, None, "", value, cause) for name, value in enforced.items()]
    return Attempt(number, replace(plan, changes=tuple(changes)), Path())


def entry(name: str) -> KnownFailure:
    """A shipped entry."""
    return next(one for one in CATALOGUE if one.id == name)


FIRST = (attempt(0, {}), "zero2-gradient-reduced-twice", 5)


def history(
    *failures: tuple[Attempt, str | None, int | None],
) -> tuple[list[Outcome], dict[int, Finding]]:
    """Failed attempts, each with the explaining entry, if any, and its step."""
    outcomes: list[Outcome] = []
    findings = {}
    for one, name, step in failures:
        record = FailureRecord(0, 1.0, "builtins.TypeError", "odd", step=step)
        outcomes.append(Failed(one, (record,)))
        known = None if name is None else entry(name)
        findings[one.number] = Finding(record, Role.INITIATING, known)
    return outcomes, findings


@pytest.mark.parametrize(
    ("name", "step", "is_suspect"),
    [
        (None, 5, True),
        (None, 0, True),
        (None, None, True),  # steps weren't counted: it failed early
        (None, 6, False),  # it reached new code
        ("checkpoint-recompute-differs", 0, True),  # the entry has advice only
        ("zero3-parameter-reduced-twice", 0, False),  # another plan is known to fix it
        ("accelerator-out-of-memory", 0, False),
    ],
)
def test_what_nothing_cures_and_comes_no_later(
    name: str | None, step: int | None, is_suspect: bool
) -> None:
    """The correction is forbidden, and the first failure is remembered."""
    found = suspect_correction(*history(FIRST, (attempt(1, TO_OTHER), name, step)), None)
    assert (found is not None) == is_suspect
    if found is not None:
        assert found.first == 0
        assert dict(found.changed) == {
            Setting.GRADIENT_CHECKPOINTING: ("reentrant", "non_reentrant")
        }
        assert found.constraint.forbids(dict(TO_OTHER))
        assert not found.constraint.forbids({Setting.GRADIENT_CHECKPOINTING: "reentrant"})


def test_the_first_failure_and_what_was_run_as_before_are_the_scripts_own() -> None:
    """Without a correction there is nothing to suspect."""
    assert suspect_correction(*history(FIRST), None) is None
    assert suspect_correction(*history(FIRST, (attempt(1, {}), None, 0)), None) is None


def test_the_next_remedy_is_held_against_the_first_failure() -> None:
    """The remedy's own settings are forbidden, not those that were reverted."""
    failures = (FIRST, (attempt(1, TO_OTHER), None, 0), (attempt(2, TO_STAGE_1), None, 0))
    found = suspect_correction(*history(*failures), 0)
    assert found is not None
    assert found.first == 0
    assert dict(found.changed) == {Setting.ZERO_STAGE: (2, 1)}


def test_an_attempt_that_was_stopped_in_between_changes_nothing() -> None:
    """The correction answered the last attempt that failed."""
    outcomes, findings = history(FIRST, (attempt(2, TO_OTHER), None, 0))
    outcomes.insert(1, Superseded(attempt(1, TO_STAGE_1), Seen({})))
    found = suspect_correction(outcomes, findings, None)
    assert found is not None
    assert found.first == 0
    assert found.constraint.forbids(dict(TO_OTHER))
