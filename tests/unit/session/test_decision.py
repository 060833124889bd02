"""Decisions after an attempt: pure values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from safe_launch.catalogue.entry import Finding, Role
from safe_launch.core.constraint import Cause, CauseKind, Constraint, Term
from safe_launch.core.errors import ExitCode, Refused
from safe_launch.core.request import Fix, Limits
from safe_launch.core.settings import Fact, Setting
from safe_launch.diagnosis.attempt import Attempt, Failed, Interrupted, Seen, Succeeded, Superseded
from safe_launch.diagnosis.new_constraints import SuspectCorrection
from safe_launch.evidence.failure_record import FailureRecord, ToldBy
from safe_launch.planning.search import as_asked
from safe_launch.session.decision import (
    ONLY_PRINTED,
    End,
    RunState,
    decide,
    exit_code,
    no_correction_left,
    relaunch_refused,
)
from support.attempts import entry_of
from support.worlds import (
    CURRENT,
    HARDWARE,
    LORA_DDP,
    REQUEST,
    ZERO2,
    known_rules,
    rules_under,
    world,
)

RULES = rules_under(known_rules(CURRENT))
WORKLOAD = world(ZERO2)
ATTEMPT = Attempt(0, as_asked(REQUEST, WORKLOAD, HARDWARE), Path())
NOTHING = Seen({})
NEW = RunState(REQUEST, WORKLOAD, RULES.constraints)


def root(name: str | None, code: int | None = 3) -> Finding:
    """A root cause, explained by the entry if given."""
    record = FailureRecord(0, 1.0, "builtins.RuntimeError", "words", exit_code=code)
    return Finding(record, Role.INITIATING, None if name is None else entry_of(name))


def failed(name: str | None, state: RunState = NEW, seen: Seen = NOTHING) -> RunState:
    """The state after the first attempt's failure."""
    finding = root(name)
    return state.after(Failed(ATTEMPT, (finding.record,), seen), finding)


def test_ends_that_say_all() -> None:
    """A success is 0, a signal 128 plus its number."""
    assert decide(NEW.after(Succeeded(ATTEMPT), None), RULES, None) == End(0)
    assert decide(NEW.after(Interrupted(ATTEMPT, 15), None), RULES, None) == End(143)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (None, 3),
        ("batch-lengths-differ", 3),  # the worker's code
        ("accelerator-hardware-fault", ExitCode.RETRY_ELSEWHERE),
    ],
)
def test_what_no_plan_cures_ends_the_run(name: str | None, code: int) -> None:
    """With the worker's code, or the node failure's code."""
    assert decide(failed(name), RULES, None) == End(code)
    assert exit_code(root(name)) == code


def test_a_death_without_a_code_is_a_failure() -> None:
    """The exit code isn't 0."""
    assert exit_code(root(None, None)) == 1
    assert exit_code(root(None, 0)) == 1


def test_a_cure_is_learned() -> None:
    """The proven facts make the catalogue forbid the tried plan."""
    decision = decide(failed("zero2-gradient-reduced-twice"), RULES, None)
    assert isinstance(decision, RunState)
    assert not decision.retried
    assert decision.workload.value(Fact.BLOCK_RUNS_TWICE) is True
    assert decision.constraints == RULES.constraints


def test_a_cure_that_cured_nothing_is_forbidden_itself() -> None:
    """The tried settings get a constraint."""
    unknown = rules_under([])
    state = failed("zero2-gradient-reduced-twice", replace(NEW, constraints=()))
    decision = decide(state, unknown, None)
    assert isinstance(decision, RunState)
    (constraint,) = decision.constraints
    assert constraint.forbids({**ZERO2, Setting.GRADIENT_CHECKPOINTING: "reentrant"})


def test_what_was_only_printed_is_not_corrected() -> None:
    """A correction needs the worker's record: the run ends with its code and a note."""
    state = failed("zero2-gradient-reduced-twice")
    assert isinstance(decide(state, RULES, None), RunState)
    assert state.root is not None
    printed = replace(state.root, record=replace(state.root.record, told_by=ToldBy.OUTPUT))
    end = decide(replace(state, findings={0: printed}), RULES, None)
    assert isinstance(end, End)
    assert (end.code, end.note) == (3, ONLY_PRINTED)


def test_decide_changes_nothing() -> None:
    """Deciding twice gives the same result; the given state is unchanged."""
    state = failed("zero2-gradient-reduced-twice")
    before = (state.workload, state.constraints, dict(state.findings))
    assert decide(state, RULES, None) == decide(state, RULES, None)
    assert (state.workload, state.constraints, dict(state.findings)) == before
    assert isinstance(state.findings, MappingProxyType)


def test_a_transient_failure_is_retried() -> None:
    """Once for each failure."""
    decision = decide(failed("npu-busy"), RULES, None)
    assert isinstance(decision, RunState)
    assert decision.retried == {"npu-busy"}
    assert decide(failed("npu-busy", decision), RULES, None) == End(3)


def test_what_the_workers_saw_is_known() -> None:
    """If the attempt was stopped for it, and if a correction is suspect."""
    seen = Seen({"frozen_parameters": True})
    superseded = decide(NEW.after(Superseded(ATTEMPT, seen), None), RULES, None)
    constraint = Constraint(
        (Term(Setting.ZERO_STAGE, frozenset({1})),), Cause(CauseKind.ATTEMPT, "1", "odd")
    )
    suspect = SuspectCorrection(0, {}, constraint)
    suspected = decide(failed(None, seen=seen), RULES, suspect)
    for decision in (superseded, suspected):
        assert isinstance(decision, RunState)
        assert decision.workload.value(Fact.FROZEN_PARAMETERS) is True
    assert isinstance(suspected, RunState)
    assert suspected.constraints[-1] is constraint
    assert suspected.standing == 0


def test_a_remedy_for_another_engine_teaches_nothing() -> None:
    """The run ends with this reason."""
    workload = world(LORA_DDP)
    attempt = Attempt(0, as_asked(REQUEST, workload, HARDWARE), Path())
    finding = root("zero3-weight-not-gathered")
    state = RunState(REQUEST, workload).after(Failed(attempt, (finding.record,)), finding)
    decision = decide(state, RULES, None)
    assert isinstance(decision, End)
    assert "another engine" in decision.note


def test_an_earlier_failure_stands() -> None:
    """If corrections only led to others, the run has the first failure's code."""
    state = replace(failed(None), standing=0)
    assert no_correction_left(state, 9, "why") == End(3, 0, "why")
    assert no_correction_left(replace(state, standing=None), 9) == End(9)


@pytest.mark.parametrize(
    ("fix", "attempts", "restarts", "sentence"),
    [
        (Fix.AUTO, 6, 0, None),
        (Fix.AUTO, 7, 0, "--fix auto allows 6"),
        (Fix.AUTO, 7, 1, None),
        (Fix.ONCE, 1, 0, None),
        (Fix.ONCE, 2, 0, "--fix once allows 1"),
        (Fix.SUGGEST, 1, 0, "--fix suggest allows 0"),
    ],
)
def test_how_often_a_plan_may_be_corrected(
    fix: Fix, attempts: int, restarts: int, sentence: str | None
) -> None:
    """Restarts of the same plan don't count."""
    request = replace(REQUEST, limits=Limits(fix))
    outcomes = (Superseded(ATTEMPT, Seen({})),) * attempts
    state = replace(NEW, request=request, outcomes=outcomes, restarts=restarts)
    expected = None if sentence is None else Refused(sentence)
    assert relaunch_refused(state) == expected
