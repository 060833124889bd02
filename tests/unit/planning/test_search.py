"""The resolver keeps requests, avoids known failures, and changes the cheapest setting first."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as some
from safe_launch.core.choices import Framework
from safe_launch.core.constraint import Constraint
from safe_launch.core.request import LaunchRequest, Limits
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.planner import planned
from safe_launch.planning.preferences import PREFERENCES, departure
from safe_launch.planning.search import KEPT, candidates, contradiction, forbidden_by, resolve
from support.stacks import TESTS
from support.tables import table
from support.worlds import (
    CURRENT,
    ENGINE,
    HARDWARE,
    LORA3,
    LORA_DDP,
    MODE,
    OLDER,
    OUTSIDE,
    REQUEST,
    STAGE,
    STATIC,
    TWICE,
    UNUSED,
    ZERO2,
    ZERO3,
    known_rules,
    rule,
    rules_under,
    world,
)

MICRO, STEPS = Setting.MICRO_BATCH, Setting.ACCUMULATION


def changed(values: dict[Name, Value], versions: dict[str, str]) -> dict[Setting, Value]:
    """The plan's changes to the values under the shipped catalogue."""
    plan = resolve(REQUEST, world(values), HARDWARE, known_rules(versions))
    assert isinstance(plan, Plan)
    return {change.setting: change.new for change in plan.changes}


OFFLOADED = {**ZERO2, Setting.OFFLOAD: "optimizer", MICRO: 1, STEPS: 8}
STAGE0 = {ENGINE: "deepspeed", STAGE: 0, MODE: "reentrant", Setting.PRECISION: "bf16"}


@table(
    ("values", "versions", "expected"),
    [
        (ZERO2, CURRENT, {}),
        ({**ZERO2, TWICE: True}, CURRENT, {MODE: "non_reentrant"}),
        ({**ZERO2, TWICE: True}, OLDER, {MODE: "non_reentrant"}),
        ({**ZERO3, TWICE: True}, CURRENT, {MODE: "non_reentrant"}),
        ({**ZERO2, STAGE: 1, TWICE: True}, CURRENT, {}),
        ({**ZERO3, OUTSIDE: True}, CURRENT, {STAGE: 2}),
        ({**ZERO3, OUTSIDE: True, TWICE: True}, CURRENT, {STAGE: 2, MODE: "non_reentrant"}),
        (LORA3, CURRENT, {}),
        (LORA3, OLDER, {MODE: "reentrant"}),
        # One failure's remedy causes another failure: only both together give the answer.
        ({**LORA3, TWICE: True}, OLDER, {STAGE: 2}),
        ({**LORA3, TWICE: True}, CURRENT, {}),
        (LORA_DDP, CURRENT, {MODE: "non_reentrant"}),
        ({**LORA_DDP, UNUSED: False}, CURRENT, {}),
        ({**LORA_DDP, UNUSED: False, TWICE: True}, CURRENT, {MODE: "non_reentrant"}),
        ({**LORA_DDP, UNUSED: False, TWICE: True, STATIC: True}, CURRENT, {}),
        (
            {**LORA_DDP, UNUSED: False, Fact.UNUSED_PARAMETERS: True},
            CURRENT,
            {UNUSED: True, MODE: "non_reentrant"},
        ),
        (OFFLOADED, OLDER, {STAGE: 1}),
        (OFFLOADED, CURRENT, {}),
        ({**OFFLOADED, STEPS: 2}, OLDER, {}),
        ({**OFFLOADED, Setting.OFFLOAD: "none"}, OLDER, {}),
        (STAGE0, OLDER, {MODE: "non_reentrant"}),
        (STAGE0, CURRENT, {}),
        (STAGE0, {**OLDER, "deepspeed": "0.18.0"}, {STAGE: 1}),
        ({**STAGE0, Setting.PRECISION: "fp32"}, OLDER, {}),
        (
            {**STAGE0, STAGE: 1, Fact.FP32_ACCUMULATION: True},
            OLDER,
            {MODE: "non_reentrant"},
        ),
    ],
)
def test_the_catalogue_leads_to_the_remedy(
    values: dict[Name, Value], versions: dict[str, str], expected: dict[Setting, Value]
) -> None:
    """The resolver finds each failure's remedy, alone and combined."""
    assert changed(values, versions) == expected


def test_what_was_asked_is_kept() -> None:
    """Without constraints the plan equals the request."""
    plan = resolve(REQUEST, world(ZERO3), HARDWARE, [])
    assert isinstance(plan, Plan)
    assert plan.changes == ()
    assert plan.preset.settings() == {STAGE: 3, MODE: "reentrant"}


def test_unknown_settings_stay_the_scripts_own() -> None:
    """No candidate has an unknown setting, and no term on it holds."""
    plan = resolve(REQUEST, world({ENGINE: "deepspeed"}), HARDWARE, [rule(zero_stage=2)])
    assert isinstance(plan, Plan)
    assert plan.preset.settings() == {}


@pytest.mark.parametrize(
    ("steps", "unsynced", "expected"),
    [
        (1, {Fact.UNSYNCED_PASSES: True}, {STATIC: True}),
        (2, {}, {STATIC: True}),
        (2, {Fact.UNSYNCED_PASSES: True}, {MODE: "off"}),
    ],
)
def test_no_static_graph_where_the_first_pass_is_not_synchronized(
    steps: int, unsynced: dict[Name, Value], expected: dict[Setting, Value]
) -> None:
    """It would fail a torch assertion, so the next remedy is taken."""
    asked = {ENGINE: "ddp", MODE: "reentrant", TWICE: True, STATIC: False, STEPS: steps}
    rules = [*known_rules(CURRENT), rule(gradient_checkpointing="non_reentrant")]
    plan = resolve(REQUEST, world({**asked, **unsynced}), HARDWARE, rules)
    assert isinstance(plan, Plan)
    assert {change.setting: change.new for change in plan.changes} == expected


EVERYTHING = {
    STAGE: 3,
    Setting.OFFLOAD: "none",
    MODE: "reentrant",
    MICRO: 8,
    STEPS: 1,
    Setting.PRECISION: "fp32",
    STATIC: False,
    UNUSED: True,
}
LADDER = (
    {Setting.PRECISION: "bf16"},
    {Setting.OFFLOAD: "optimizer"},
    {MODE: "off"},
    {STAGE: 2},
    {MICRO: 4, STEPS: 2},
    {STATIC: True},
    {UNUSED: False},
    {MODE: "non_reentrant"},
)


@pytest.mark.parametrize("step", range(len(LADDER) - 1))
def test_a_dearer_setting_is_kept_by_giving_up_all_cheaper_ones(step: int) -> None:
    """Any number of cheaper settings changes before an expensive one."""
    cheaper: dict[Setting, Value] = {}
    for one in reversed(LADDER[step + 1 :]):
        cheaper |= one
    given_up = departure({**EVERYTHING, **cheaper}, EVERYTHING)
    assert given_up < departure({**EVERYTHING, **LADDER[step]}, EVERYTHING)


@pytest.mark.parametrize(
    ("asked", "conflict", "expected"),
    [
        ({STATIC: False, UNUSED: True}, (STATIC, UNUSED), {UNUSED: False}),
        ({STATIC: False, MODE: "reentrant"}, (STATIC, MODE), {MODE: "non_reentrant"}),
        ({UNUSED: True, MODE: "reentrant"}, (UNUSED, MODE), {MODE: "non_reentrant"}),
        ({STAGE: 3, MODE: "reentrant"}, (STAGE, MODE), {MODE: "non_reentrant"}),
        ({STAGE: 3, MODE: "off"}, (STAGE, MODE), {STAGE: 2}),
        # Between two equally near stages the one with less communication.
        ({STAGE: 2, MODE: "off"}, (STAGE, MODE), {STAGE: 1}),
        ({STAGE: 3, MICRO: 8, STEPS: 1}, (STAGE, MICRO), {MICRO: 4, STEPS: 2}),
        ({MODE: "off", MICRO: 8, STEPS: 1}, (MODE, MICRO), {MICRO: 4, STEPS: 2}),
        ({MODE: "reentrant", MICRO: 8, STEPS: 1}, (MODE, MICRO), {MODE: "non_reentrant"}),
    ],
)
def test_of_two_that_conflict_the_cheaper_goes(
    asked: dict[Setting, Value],
    conflict: tuple[Setting, Setting],
    expected: dict[Setting, Value],
) -> None:
    """The resolver changes the cheaper of two conflicting settings."""
    engine = "deepspeed" if STAGE in asked else "ddp"
    forbidden = rule(**{setting.value: asked[setting] for setting in conflict})
    plan = resolve(REQUEST, world({ENGINE: engine, **asked}), HARDWARE, [forbidden])
    assert isinstance(plan, Plan)
    assert {change.setting: change.new for change in plan.changes} == expected
    causes = {change.setting: change.constraint for change in plan.changes}
    assert causes.pop(STEPS, forbidden) in (forbidden, KEPT)
    assert set(causes.values()) == {forbidden}


def test_the_order_of_giving_up() -> None:
    """The order is defined in one place, most expensive first."""
    assert [kept.reason.split(":")[0] for kept, _ in PREFERENCES] == [
        "precision",
        "offload",
        "checkpointing on or off",
        "ZeRO stage",
        "FSDP's parameters freed or kept",
        "micro batch",
        "DDP's static_graph",
        "DDP's find_unused_parameters",
        "checkpointing's implementation",
    ]


def test_a_far_stage_is_dearer_than_a_near_one() -> None:
    """Stage 3 falls back to 2 before 1; checkpointing is disabled last."""
    taken = []
    rules: list[Constraint] = [rule(zero_stage=3)]
    for _ in range(3):
        plan = resolve(REQUEST, world(ZERO3), HARDWARE, rules)
        assert isinstance(plan, Plan)
        taken.append(plan.preset.zero_stage)
        rules.append(rule(zero_stage=plan.preset.zero_stage or 0))
    assert taken == [2, 1, 0]


@given(micro=some.integers(1, 64), steps=some.integers(1, 64))
def test_the_global_batch_never_changes(micro: int, steps: int) -> None:
    """Micro batch x accumulation is constant; no pass exceeds the request."""
    pairs = [(one[MICRO], one[STEPS]) for one in candidates(world({MICRO: micro, STEPS: steps}))]
    whole = micro * steps
    assert pairs == [(size, whole // size) for size in range(1, micro + 1) if whole % size == 0]


def test_a_huge_batch_costs_no_time() -> None:
    """Equal batches are found by divisors, not by trying every number."""
    equals = list(candidates(world({MICRO: 10**9, STEPS: 1})))
    assert len(equals) == 100
    assert equals[-1] == {MICRO: 10**9, STEPS: 1}


def test_a_loop_of_the_users_own_keeps_its_batch() -> None:
    """A plain loop's data loader can't be changed, so its batch isn't either."""
    only = list(candidates(world({MICRO: 4, STEPS: 2}, Framework.NONE)))
    assert only == [{MICRO: 4, STEPS: 2}]


def test_a_batch_that_is_part_of_the_loss_stays() -> None:
    """If the loss compares samples, two half batches are another training."""
    only = list(candidates(world({MICRO: 4, STEPS: 2, Fact.LOSS_SPANS_BATCH: True})))
    assert only == [{MICRO: 4, STEPS: 2}]


def test_checkpointing_isnt_turned_on_where_nobody_can() -> None:
    """A plain loop keeps it off; the Trainer could enable it."""
    own = {one[MODE] for one in candidates(world({MODE: "off"}, Framework.NONE))}
    trainers = {one[MODE] for one in candidates(world({MODE: "off"}))}
    switched_on = {one[MODE] for one in candidates(world({MODE: "reentrant"}, Framework.NONE))}
    assert own == {"off"}
    assert switched_on == {"off", "reentrant", "non_reentrant"}
    assert trainers == {"off", "reentrant", "non_reentrant"}


def test_every_change_names_what_forbids_to_take_it_back() -> None:
    """Each of two changes has its own cause and the old value's source."""
    plan = resolve(
        REQUEST, world({**ZERO3, OUTSIDE: True, TWICE: True}), HARDWARE, known_rules(CURRENT)
    )
    assert isinstance(plan, Plan)
    causes = {change.setting: change.constraint.cause.name for change in plan.changes}
    assert causes == {
        STAGE: "zero3-parameter-outside-forward",
        MODE: "zero2-gradient-reduced-twice",
    }
    assert {change.source for change in plan.changes} == {
        "--zero_stage",
        "--gradient_checkpointing",
    }


def kept_by(*settings: Setting) -> LaunchRequest:
    """The tests' common request with settings that an administrator pins."""
    pairs = tuple((setting, f"/etc/{setting}") for setting in settings)
    return replace(REQUEST, limits=Limits(never_changed=pairs))


@table(
    ("values", "kept", "expected"),
    [
        ({**ZERO2, TWICE: True}, [], {MODE: "non_reentrant"}),
        ({**ZERO2, TWICE: True}, [STAGE], {MODE: "non_reentrant"}),
        ({**ZERO2, TWICE: True}, [MODE], {STAGE: 1}),
        ({**ZERO2, TWICE: True}, [MODE, STAGE], None),
        ({ENGINE: "ddp", MICRO: 4, STEPS: 1}, [STEPS], {}),
    ],
)
def test_what_is_never_changed(
    values: dict[Name, Value], kept: list[Setting], expected: dict[Setting, Value] | None
) -> None:
    """Other settings change, or the launch is refused."""
    found = resolve(kept_by(*kept), world(values), HARDWARE, known_rules(CURRENT))
    changes = dict(found.overrides) if isinstance(found, Plan) else None
    assert changes == expected


def test_a_kept_micro_batch_keeps_the_accumulation() -> None:
    """They change together, so pinning either keeps both."""
    batch = world({ENGINE: "ddp", MICRO: 4, STEPS: 1})
    for kept in (MICRO, STEPS):
        refused = planned(kept_by(kept), batch, HARDWARE, [rule(micro_batch=4)])
        assert isinstance(refused, NoPlan)
        assert refused.barred is not None
        assert (refused.barred.micro_batch, refused.barred.accumulation) == (2, 2)
    dead_end = planned(kept_by(STAGE), batch, HARDWARE, [rule(micro_batch=n) for n in (1, 2, 4)])
    assert isinstance(dead_end, NoPlan)
    assert dead_end.barred is None


def test_what_the_user_asks_for_is_no_change() -> None:
    """`--set` replaces the script's value and is then kept."""
    wanted = {STAGE: Known(1, Origin.FLAG, "--set zero_stage")}
    plan = resolve(
        kept_by(STAGE), replace(world(ZERO2), wanted=MappingProxyType(wanted)), HARDWARE, []
    )
    assert isinstance(plan, Plan)
    assert dict(plan.overrides) == {STAGE: 1}


def test_a_dead_end_names_the_smallest_contradiction() -> None:
    """Redundant constraints are omitted."""
    rules = [
        rule(gradient_checkpointing="off"),
        rule(gradient_checkpointing="reentrant"),
        rule(gradient_checkpointing="non_reentrant", zero_stage=2),
        rule(gradient_checkpointing="non_reentrant"),
    ]
    refused = resolve(REQUEST, world(ZERO2), HARDWARE, rules)
    assert isinstance(refused, NoPlan)
    assert len(refused.rejected) == 12
    assert contradiction(refused) == (rules[1], rules[3], rules[0])


LATTICES = (
    {ENGINE: "deepspeed", STAGE: 3, MODE: "reentrant", MICRO: 4, STEPS: 1},
    {ENGINE: "ddp", MODE: "off", STATIC: False, UNUSED: True, MICRO: 2, STEPS: 3},
)
RULES = some.dictionaries(
    some.sampled_from([STAGE, MODE, STATIC, UNUSED, MICRO]), some.integers(0, 3), min_size=1
).map(
    lambda chosen: rule(
        **{
            setting.value: {
                STAGE: (0, 1, 2, 3),
                MODE: ("off", "reentrant", "non_reentrant", "off"),
                STATIC: (False, True, False, True),
                UNUSED: (False, True, False, True),
                MICRO: (1, 2, 4, 1),
            }[setting][index]
            for setting, index in chosen.items()
        }
    )
)


@given(lattice=some.sampled_from(LATTICES), rules=some.lists(RULES, max_size=12))
def test_under_any_constraints(lattice: dict[Name, Value], rules: list[Constraint]) -> None:
    """The plan is the nearest allowed; a dead end's reasons are sufficient and minimal."""
    workload = world(lattice)
    every = list(candidates(workload))
    allowed = [one for one in every if forbidden_by(one, workload, rules_under(rules)) is None]
    result = resolve(REQUEST, workload, HARDWARE, rules)
    if isinstance(result, Plan):
        chosen = result.preset.settings()
        asked = workload.requested
        assert chosen in allowed
        assert departure(chosen, asked) == min(departure(one, asked) for one in allowed)
        changes = {change.setting: (change.old, change.new) for change in result.changes}
        assert changes == {
            name: (asked[name], new) for name, new in chosen.items() if asked[name] != new
        }
        assert all(change.constraint in (*rules, KEPT) for change in result.changes)
        assert [one for one in result.rejected if one.preset.settings() in allowed] == []
    else:
        assert allowed == []
        reasons = contradiction(result)
        assert all(forbidden_by(one, workload, rules_under(reasons)) for one in every)
        for reason in reasons:
            fewer = [other for other in reasons if other is not reason]
            assert any(forbidden_by(one, workload, rules_under(fewer)) is None for one in every)


def test_the_same_values_give_the_same_plan() -> None:
    """All nodes get the same plan, with any hash seed."""
    program = (
        "from support.worlds import *\n"
        "from safe_launch.planning.search import resolve\n"
        "plan = resolve(REQUEST, world({**LORA3, TWICE: True}), HARDWARE, known_rules(OLDER))\n"
        "print(plan.preset, [(one.setting, one.constraint.cause) for one in plan.changes],\n"
        "      [(one.preset, one.constraint.cause.name) for one in plan.rejected])\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
    assert "ZeRO stage 2" in told.pop()
