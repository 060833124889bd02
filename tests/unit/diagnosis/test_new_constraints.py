"""New facts and constraints after a failure, or the reason for none."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Finding, Role
from safe_launch.core.choices import Framework
from safe_launch.core.constraint import Cause, CauseKind, Constraint
from safe_launch.core.errors import Refused
from safe_launch.core.hardware import Hardware
from safe_launch.core.preset import Preset
from safe_launch.core.settings import Fact, Setting
from safe_launch.core.workload import Workload
from safe_launch.diagnosis.attempt import Attempt, Seen
from safe_launch.diagnosis.new_constraints import Learned, is_hopeless, learned_from
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.planning.estimates.estimate import ranks_of
from safe_launch.planning.plan import Change, Plan
from safe_launch.planning.search import Rules, as_asked, resolve
from support.attempts import entry_of
from support.models import HARDWARE as GPUS
from support.models import QWEN2_7B, model_of, workload_of
from support.worlds import (
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
