"""What an attempt teaches: facts, constraints, and corrections that did harm."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Finding, KnownFailure, Role
from safe_launch.core.choices import Framework
from safe_launch.core.constraint import Cause, CauseKind, Constraint
from safe_launch.core.errors import Refused
from safe_launch.core.hardware import Hardware
from safe_launch.core.preset import Preset
from safe_launch.core.settings import Fact, Setting, Value
from safe_launch.core.workload import Workload
from safe_launch.diagnosis.attempt import Attempt, Failed, Outcome, Seen, Superseded
from safe_launch.diagnosis.new_constraints import (
    Learned,
    is_hopeless,
    learned_from,
    suspect_correction,
)
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.planning.estimates.estimate import ranks_of
from safe_launch.planning.plan import Change, Plan
from safe_launch.planning.search import Rules, as_asked, resolve
from support.attempts import entry_of
from support.models import HARDWARE as GPUS
from support.models import QWEN2_7B, model_of, workload_of
from support.worlds import (
    CATALOGUE,
    CURRENT,
    HARDWARE,
    LORA_DDP,
    REQUEST,
    TWICE,
    ZERO2,
    known_rules,
    rules_under,
    world,
)

NOTHING = Seen({})


def finding(name: str, **record: object) -> Finding:
    """A root cause explained by an entry."""
    own = FailureRecord(0, 1.0, "builtins.RuntimeError", "words", exit_code=1)
    return Finding(replace(own, **record), Role.INITIATING, entry_of(name))  # type: ignore[arg-type]


def learned(
    workload: Workload, root: Finding, hardware: Hardware = HARDWARE, seen: Seen = NOTHING
) -> Learned | Refused:
    """The lesson of a first attempt that failed without changes."""
    attempt = Attempt(0, as_asked(REQUEST, workload, hardware), Path())
    rules = Rules(tuple(known_rules(CURRENT)), hardware, ranks_of(REQUEST, hardware))
    return learned_from(workload, attempt, seen, root, rules)


def test_what_the_workers_saw_and_the_failure_proves_is_known() -> None:
    """With these facts the catalogue's own rules suffice."""
    found = learned(
        world(ZERO2),
        finding("zero2-gradient-reduced-twice", observed={"find_unused_parameters": True}),
        seen=Seen({"frozen_parameters": True}),
    )
    assert isinstance(found, Learned)
    assert found.workload.value(TWICE) is True
    assert found.workload.value(Fact.FROZEN_PARAMETERS) is True
    assert found.workload.value(Setting.FIND_UNUSED_PARAMETERS) is True
    assert found.constraints == tuple(known_rules(CURRENT))


@pytest.mark.parametrize(
    ("workload", "root", "words"),
    [
        (
            world(LORA_DDP),
            finding("zero3-weight-not-gathered"),
            "the settings that are known to cure it are for another engine than this run's",
        ),
        (
            world(ZERO2),
            finding("accelerator-out-of-memory"),
            "the model's shape isn't known, so no smaller plan can be computed",
        ),
        (
            replace(world({Fact.ENGINE: "fsdp"}), model=model_of(QWEN2_7B)),
            finding("accelerator-out-of-memory"),
            "isn't modelled, so no smaller plan can be computed",
        ),
    ],
)
def test_why_nothing_follows(workload: Workload, root: Finding, words: str) -> None:
    """The reason is given in words."""
    refused = learned(workload, root)
    assert isinstance(refused, Refused)
    assert refused.sentence.endswith(words)


KILLED = {"signal": signal.SIGKILL, "oom_kills": 1, "exit_code": 137}


@pytest.mark.parametrize(
    ("offload", "forbidden"),
    [
        ("none", None),
        ("optimizer", {"optimizer", "optimizer_and_parameters"}),
        ("optimizer_and_parameters", {"optimizer_and_parameters"}),
    ],
)
def test_a_host_that_runs_out_of_memory(offload: str, forbidden: set[str] | None) -> None:
    """Offloading in use is forbidden, and so is more of it."""
    workload = workload_of(model_of(QWEN2_7B), {Setting.ZERO_STAGE: 3, Setting.OFFLOAD: offload})
    found = learned(workload, finding("host-out-of-memory-killed", **KILLED), GPUS)
    if forbidden is None:
        assert isinstance(found, Refused)
        assert found.sentence.startswith("no setting keeps less in host memory")
        return
    assert isinstance(found, Learned)
    (term,) = found.constraints[-1].terms
    assert (term.name, term.values) == (Setting.OFFLOAD, forbidden)
    assert found.constraints[-1].cause.summary == "attempt 1 ran out of host memory with it"


def test_an_accelerator_that_runs_out_of_memory_is_measured() -> None:
    """The need is recorded, and the attempt's plan is forbidden."""
    workload = workload_of(
        model_of(QWEN2_7B),
        {Setting.ZERO_STAGE: 2, Setting.MICRO_BATCH: 4, Setting.ACCUMULATION: 1},
    )
    message = "CUDA out of memory. Tried to allocate 9.00 GiB. 70.00 GiB is allocated by PyTorch"
    found = learned(workload, finding("accelerator-out-of-memory", message=message), GPUS)
    assert isinstance(found, Learned)
    (measured,) = found.workload.measured
    assert measured.settings[Setting.MICRO_BATCH] == 4
    attempt = Attempt(0, as_asked(REQUEST, workload, GPUS), Path())
    rules = Rules(found.constraints, GPUS, ranks_of(REQUEST, GPUS))
    assert is_hopeless(attempt, found.workload, rules)


def test_only_what_is_expected_not_to_fit_stops_a_running_attempt() -> None:
    """Without a reason against its plan an attempt continues."""
    workload = world(ZERO2, Framework.NONE)
    attempt = Attempt(0, as_asked(REQUEST, workload, HARDWARE), Path())
    rules = rules_under(known_rules(CURRENT))
    assert not is_hopeless(attempt, workload, rules)
    assert is_hopeless(attempt, world({**ZERO2, TWICE: True}), rules)


def test_a_tight_attempt_is_not_stopped() -> None:
    """The estimate fits; only the upper bound doesn't."""
    batch = {Setting.MICRO_BATCH: 64, Setting.ACCUMULATION: 1}
    workload = workload_of(model_of(QWEN2_7B), {Setting.ZERO_STAGE: 3, **batch})
    plan = resolve(REQUEST, workload, GPUS, [])
    assert isinstance(plan, Plan)
    rules = Rules((), GPUS, ranks_of(REQUEST, GPUS))
    judged = {
        candidate.is_tight: is_hopeless(attempt_with(candidate.preset), workload, rules)
        for candidate in plan.considered
        if candidate.constraint is not None
    }
    assert judged == {True: False, False: True}


def attempt_with(preset: Preset) -> Attempt:
    """An attempt that enforces all settings of a preset."""
    plan = as_asked(REQUEST, Workload(), GPUS)
    cause = Constraint((), Cause(CauseKind.ATTEMPT, "1", "it has failed"))
    changes = [Change(name, None, "", value, cause) for name, value in preset.settings().items()]
    return Attempt(0, replace(plan, changes=tuple(changes)), Path())


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
