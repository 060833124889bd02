"""Answers to workers' questions, and whether their attempt may continue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.core.errors import Refused
from safe_launch.core.request import Fix, Limits
from safe_launch.core.settings import Fact, Setting, Value
from safe_launch.diagnosis.attempt import Attempt
from safe_launch.evidence.worker_messages import Answer, Ask, Boundary
from safe_launch.planning.estimates.estimate import ranks_of
from safe_launch.planning.plan import Change, NoPlan, Plan
from safe_launch.planning.planner import planned
from safe_launch.planning.search import Rules, as_asked
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.session import judgement, settling
from safe_launch.session.settling import Settling
from support.attempts import Recorder
from support.models import HARDWARE as GPUS
from support.models import QWEN2_7B, model_of, workload_of
from support.worlds import CURRENT, HARDWARE, REQUEST, ZERO2, known_rules, rule, rules_under, world

RULES = rules_under(known_rules(CURRENT))
ATTEMPT = Attempt(0, as_asked(REQUEST, world(ZERO2), HARDWARE), Path())
FAILS = {"block_runs_twice": True}


def settling_of(attempt: Attempt, rules: Rules) -> Settling:
    """Settles an attempt, whose events nobody reads."""
    return Settling(attempt, rules, set(), Recorder(), lambda _: None)


def row(rank: int, step: int) -> RankProgress:
    """A rank's progress."""
    return RankProgress(rank, 1, 1, Phase.TRAINING, step, 0.0, 0.0, 0.0)


ZERO3 = {
    "engine": "deepspeed",
    "zero_stage": 3,
    "offload": "none",
    "gradient_checkpointing": "reentrant",
    "block_runs_twice": True,
}
AUTO = Limits()
MODE_KEPT = Limits(never_changed=((Setting.GRADIENT_CHECKPOINTING, "/etc/config.yaml"),))
CHECKPOINTING = ["gradient_checkpointing"]


@dataclass
class World:
    """Answers for one attempt, and the messages about them."""

    settling: Settling
    notices: list[str]
    told: list[tuple[str, dict[str, Value], bool]]

    def ask(self, rank: int, question: Ask) -> Answer | None:
        """A rank's question before any observation."""
        return self.settling.answer(rank, question, {}, None)

    def allows(self, observed: Mapping[str, Value] = {}) -> bool:
        """Whether the attempt may continue."""
        return self.settling.allows(observed, None)


def world_of(
    folder: Path, limits: Limits = AUTO, nodes: tuple[int, ...] = (2,), *unreached: str
) -> World:
    """An attempt as requested by an unknown script."""
    request = replace(REQUEST, limits=limits, workers=nodes)
    plan = as_asked(request, world({}), HARDWARE)
    told: list[tuple[str, dict[str, Value], bool]] = []

    def tell(where: str, _plan: Plan, changes: Sequence[Change], *, is_made: bool) -> None:
        told.append((where, {change.setting.value: change.new for change in changes}, is_made))

    notices: list[str] = []
    reporter = SimpleNamespace(note=notices.append, settled=tell)
    settling = Settling(Attempt(0, plan, folder), RULES, {*unreached}, reporter, lambda _: None)
    return World(settling, notices, told)


def asked(
    boundary: Boundary = Boundary.INITIALIZE,
    changeable: Sequence[str] = CHECKPOINTING,
    **facts: Value,
) -> Ask:
    """A question; equal boundaries are equal questions."""
    return Ask(f"{boundary}#1", boundary, list(changeable), {**ZERO3, **facts}, frame="train.py:7")


def test_what_is_known_to_fail_is_settled(tmp_path: Path) -> None:
    """At the first rank's question, the same for all, without a relaunch."""
    there = world_of(tmp_path)
    first, second = (there.ask(rank, asked()) for rank in (1, 0))
    assert first == second
    assert first == Answer(
        "deepspeed.initialize#1",
        {"gradient_checkpointing": "non_reentrant"},
        {"gradient_checkpointing": "reentrant"},
    )
    assert there.told == [
        ("deepspeed.initialize, train.py:7", {"gradient_checkpointing": "non_reentrant"}, True)
    ]
    assert there.allows()
    assert there.settling.pause() is None
    plan = there.settling.attempt.plan
    assert plan.overrides == {Setting.GRADIENT_CHECKPOINTING: "non_reentrant"}
    assert json.loads((tmp_path / "plan.json").read_text())["changes"]
    known = dict(there.settling.seen({}, None).asked)
    assert known[Setting.GRADIENT_CHECKPOINTING].value == "reentrant"
    assert known[Setting.ZERO_STAGE].source == "deepspeed.initialize, train.py:7"


def test_what_may_go_on_is_as_asked(tmp_path: Path) -> None:
    """There is no message and no wait."""
    there = world_of(tmp_path)
    answer = there.ask(0, asked(block_runs_twice=False))
    assert answer == Answer("deepspeed.initialize#1")
    assert there.told == []
    assert there.settling.pause() is None
    assert not (tmp_path / "plan.json").exists()


BATCH = ["micro_batch", "accumulation"]


def test_what_a_change_is_compared_with(tmp_path: Path) -> None:
    """The attempt whose failure it corrects, unless that ran with the same settings."""
    there = world_of(tmp_path)
    first = there.settling.attempt
    assert there.settling.replaced() is None
    known = world({Setting.MICRO_BATCH: 8, Setting.ACCUMULATION: 1})
    halved = planned(REQUEST, known, HARDWARE, [rule(micro_batch=8)])
    assert isinstance(halved, Plan)
    there.settling.attempt = Attempt(1, halved, tmp_path)
    assert isinstance(there.settling.replaced(), Refused)
    there.settling.attempt = Attempt(1, halved, tmp_path / "2", first)
    assert there.settling.replaced() == tmp_path
    there.settling.attempt = Attempt(2, halved, tmp_path, there.settling.attempt)
    assert there.settling.replaced() is None
    silent = rule(micro_batch=8)
    silent = replace(silent, cause=replace(silent.cause, is_silent=True))
    right = planned(REQUEST, known, HARDWARE, [silent])
    assert isinstance(right, Plan)
    there.settling.attempt = Attempt(1, right, tmp_path / "2", first)
    assert there.settling.replaced() == Refused("the requested settings are known to train wrongly")


@pytest.mark.parametrize(
    ("micro", "overrides"),
    [
        (8, {}),
        (16, {"micro_batch": 16, "accumulation": 1}),
        (2, {"micro_batch": 2, "accumulation": 1}),
    ],
)
def test_a_change_that_rests_on_what_is_not_so(
    tmp_path: Path, micro: int, overrides: dict[str, Value]
) -> None:
    """The plan halved a micro batch of 8 that the script doesn't use: its own stays."""
    there = world_of(tmp_path)
    believed = world({Setting.MICRO_BATCH: 8, Setting.ACCUMULATION: 1})
    halved = planned(REQUEST, believed, HARDWARE, [rule(micro_batch=8)])
    assert isinstance(halved, Plan)
    assert halved.overrides == {Setting.MICRO_BATCH: 4, Setting.ACCUMULATION: 2}
    there.settling.attempt = Attempt(0, halved, tmp_path)
    question = Ask(
        *("TrainingArguments#1", Boundary.TRAINING_ARGUMENTS, BATCH),
        {"micro_batch": micro, "accumulation": 1},
    )
    answer = there.ask(0, question)
    assert answer
    assert dict(answer.overrides) == overrides
    assert [changes for _, changes, _ in there.told] == [{}] * bool(overrides)


def test_only_what_can_be_changed_there_is(tmp_path: Path) -> None:
    """Another setting is chosen, or the attempt ends and the next has the plan at once."""
    there = world_of(tmp_path)
    assert there.ask(0, asked(changeable=["micro_batch"])) is None
    assert not there.allows()
    assert there.told == []


@pytest.mark.parametrize(
    ("limits", "answer"),
    [
        (Limits(Fix.SUGGEST), Answer("deepspeed.initialize#1")),
        (Limits(strict=True), None),
        (Limits(asks=False), Answer("deepspeed.initialize#1")),
    ],
)
def test_what_the_user_allows(tmp_path: Path, limits: Limits, answer: Answer | None) -> None:
    """`suggest` reports once, `strict` ends the attempt, `--ask off` ignores it."""
    there = world_of(tmp_path, limits)
    assert there.ask(0, asked()) == answer
    assert there.ask(0, asked(Boundary.DATA_PARALLEL)) == (
        answer and Answer("DistributedDataParallel#1")
    )
    assert [made for *_, made in there.told] == ([False] if limits.fix is Fix.SUGGEST else [])
    assert there.allows() is not limits.strict


def test_what_is_never_changed_is_not_settled(tmp_path: Path) -> None:
    """Another changeable setting is chosen, else the attempt ends."""
    there = world_of(tmp_path / "one", MODE_KEPT)
    assert there.ask(0, asked()) is None
    assert not there.allows()
    other = world_of(tmp_path / "other", MODE_KEPT)
    (tmp_path / "other").mkdir()
    answer = other.ask(0, asked(changeable=["zero_stage", "gradient_checkpointing"]))
    assert answer
    assert answer.overrides.keys() == {"zero_stage"}


def test_another_object_of_the_kind_is_settled_as_well(tmp_path: Path) -> None:
    """The first object's settings don't apply to it; shared ones are sent to each."""
    there = world_of(tmp_path)
    first = there.ask(0, asked(Boundary.TRAINING_ARGUMENTS))
    other = replace(asked(Boundary.TRAINING_ARGUMENTS), key="other#1", frame="train.py:9")
    second = there.ask(0, other)
    assert first
    assert second
    assert first.overrides == second.overrides == {"gradient_checkpointing": "non_reentrant"}
    engine = there.ask(0, asked(Boundary.INITIALIZE))  # one of the two engines
    assert engine == Answer("deepspeed.initialize#1")
    assert [where for where, *_ in there.told] == [
        "TrainingArguments, train.py:7",
        "TrainingArguments, train.py:9",
    ]


def test_a_later_training_ends_nothing(tmp_path: Path) -> None:
    """It is settled if possible, but the steps before it aren't discarded."""
    there = world_of(tmp_path)
    later = replace(asked(), step=40)
    settled = there.ask(0, later)
    assert settled
    assert settled.overrides == {"gradient_checkpointing": "non_reentrant"}
    assert there.told[0][0] == "deepspeed.initialize, train.py:7, in a later training"
    assert there.settling.attempt.plan.changes == ()
    there.settling.look([row(0, 40), row(1, 40)])
    assert there.allows()
    there = world_of(tmp_path)
    assert there.ask(0, replace(later, changeable=[])) == Answer("deepspeed.initialize#1")
    assert there.allows()


def checkpointed(**facts: Value) -> Ask:
    """A question at a checkpointed block, under ZeRO-2."""
    values: dict[str, Value] = {
        "engine": "deepspeed",
        "zero_stage": 2,
        "gradient_checkpointing": "reentrant",
        **facts,
    }
    key = f"{Boundary.CHECKPOINT}#{len(facts)}"
    return Ask(key, Boundary.CHECKPOINT, CHECKPOINTING, values, frame="train.py:7")


@pytest.mark.parametrize(
    ("limits", "facts", "probes"),
    [
        (AUTO, {}, True),
        (AUTO, {"zero_stage": 1}, False),
        (AUTO, {"gradient_checkpointing": "non_reentrant"}, False),
        (AUTO, {"block_runs_twice": False}, False),
        (Limits(strict=True), {}, False),
        (Limits(Fix.SUGGEST), {}, False),
        (MODE_KEPT, {}, False),
    ],
)
def test_a_probe_where_it_decides(
    tmp_path: Path, limits: Limits, facts: dict[str, Value], *, probes: bool
) -> None:
    """Only if a block that runs twice would fail and may be changed."""
    there = world_of(tmp_path, limits)
    answer = there.ask(0, checkpointed(**facts))
    assert answer
    assert answer.overrides == {}
    assert answer.probes is probes


def test_checkpointing_is_not_given_up_where_it_is_done(tmp_path: Path) -> None:
    """A new attempt has remedies that need less memory."""
    there = world_of(tmp_path)
    there.settling.rules = rules_under(
        [*known_rules(CURRENT), rule(gradient_checkpointing="non_reentrant")]
    )
    assert there.ask(0, checkpointed(block_runs_twice=True)) is None
    assert there.told == []


def test_no_probe_by_what_fails_itself(tmp_path: Path) -> None:
    """The probe runs blocks non-reentrant, which must not be known to fail."""
    there = world_of(tmp_path)
    there.settling.rules = rules_under(
        [*known_rules(CURRENT), rule(gradient_checkpointing="non_reentrant")]
    )
    answer = there.ask(0, checkpointed())
    assert answer
    assert not answer.probes


def test_once_is_enough_for_a_block_that_runs_twice(tmp_path: Path) -> None:
    """Another rank may already run as requested, so the attempt ends."""
    there = world_of(tmp_path)
    assert there.ask(0, checkpointed(block_runs_twice=True)).overrides
    other = replace(checkpointed(block_runs_twice=False), key="other#1")
    assert there.ask(1, other) == Answer("other#1")
    assert dict(there.settling.seen({}, None).asked)[Fact.BLOCK_RUNS_TWICE].value is True
    there.settling.look([row(0, 1), row(1, 1)])
    assert not there.allows()


def test_ranks_that_differ_in_what_is_changed(tmp_path: Path) -> None:
    """One plan can't suit both."""
    there = world_of(tmp_path)
    assert there.ask(0, asked())
    assert there.ask(1, asked(gradient_checkpointing="off")) is None
    assert not there.allows()
    (notice,) = there.notices
    assert notice == (
        "the settings changed at deepspeed.initialize, train.py:7 don't reach every rank: rank 1 "
        "has a different gradient_checkpointing"
    )
    assert there.settling.unreached == {"deepspeed.initialize#1"}


def test_a_rank_without_an_answer(tmp_path: Path) -> None:
    """It trains as requested, so the others must do the same."""
    there = world_of(tmp_path)
    there.settling.note_unanswered(1, "deepspeed.initialize#1")
    assert there.allows()  # all ranks are alike
    there = world_of(tmp_path)
    there.ask(0, asked())
    there.ask(1, asked())
    there.settling.note_unanswered(1, "deepspeed.initialize#1")
    assert not there.allows()


def test_a_rank_that_comes_another_way(tmp_path: Path) -> None:
    """At a later boundary, in its first step, or never."""
    there = world_of(tmp_path)
    there.ask(0, asked(Boundary.TRAINING_ARGUMENTS))
    there.ask(1, asked(Boundary.INITIALIZE))
    assert not there.allows()
    for rows in ((row(0, 3), row(1, 1)), (row(0, 3), row(1, 0))):
        there = world_of(tmp_path)
        there.ask(0, asked())
        assert there.settling.pause() is not None
        there.settling.look(rows)
        assert there.allows() is (rows[1].step == 0)


def test_a_rank_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank may be on another node."""
    monkeypatch.setattr(settling, "REACH", -1.0)
    there = world_of(tmp_path, nodes=(1, 1))
    there.ask(0, asked())
    there.settling.look([])
    assert not there.allows()
    assert "rank 1 hasn't reached it" in there.notices[0]


def test_what_reached_only_some_is_not_settled_again(tmp_path: Path) -> None:
    """The next attempt has it from the start, else it runs as requested."""
    there = world_of(tmp_path, Limits(), (2,), "deepspeed.initialize#1")
    assert there.ask(0, asked()) == Answer("deepspeed.initialize#1")
    assert there.told == []


def test_what_is_known_to_fail_may_not_go_on() -> None:
    """All others may."""
    allows = settling_of(ATTEMPT, RULES).allows
    assert allows({}, None)
    assert allows({"block_runs_twice": False}, None)
    assert not allows(FAILS, None)


def test_suggest_changes_nothing() -> None:
    """For any observation."""
    request = replace(REQUEST, limits=Limits(Fix.SUGGEST))
    attempt = replace(ATTEMPT, plan=replace(ATTEMPT.plan, request=request))
    assert settling_of(attempt, RULES).allows(FAILS, None)


def test_the_same_report_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker sends it, and each search is slow."""
    judged = []
    monkeypatch.setattr(
        judgement, "is_hopeless", lambda _attempt, workload, _rules: judged.append(workload)
    )
    allows = settling_of(ATTEMPT, RULES).allows
    for _ in range(3):
        allows(FAILS, None)
    assert len(judged) == 1
    allows({}, None)
    allows({}, {"config": {}})
    assert len(judged) == 3


TOO_LARGE = {
    Fact.OPTIMIZER: "adamw",
    Setting.OFFLOAD: "none",
    Setting.PRECISION: "bf16",
    Setting.GRADIENT_CHECKPOINTING: "off",
    Fact.ADAPTER_HINTED: True,
    Setting.ZERO_STAGE: 0,
    Setting.MICRO_BATCH: 1,
    Setting.ACCUMULATION: 1,
}


LOADED = {
    "engine": "deepspeed",
    "zero_stage": 2,
    "offload": "none",
    "micro_batch": 1,
    "accumulation": 1,
    "precision": "bf16",
    "optimizer": "adamw",
    "loaded_precision": "bf16",
}
CHANGEABLE = ["zero_stage", "offload", "gradient_checkpointing", "micro_batch", "accumulation"]


def loading(folder: Path, gib: int, limits: Limits = AUTO, *, trains_all: bool = True) -> World:
    """An attempt on 64 devices of this memory with an unknown model."""
    there = world_of(folder, limits)
    hardware = replace(GPUS, accelerator=replace(GPUS.accelerator, memory=gib * 2**30))
    request = replace(REQUEST, limits=limits, workers=(8,) * 8)
    plan = as_asked(request, replace(world({}), trains_all=trains_all), hardware)
    there.settling.attempt = Attempt(0, plan, folder)
    there.settling.rules = Rules((), hardware, ranks_of(request, hardware))
    return there


def load(there: World) -> list[Answer | None]:
    """A worker's questions when it loads a model of 7.6 billion parameters."""
    boundary = Boundary.FROM_PRETRAINED
    question = Ask("load#1", boundary, CHANGEABLE, LOADED, "transformers", frame="train.py:7")
    answers = [there.ask(0, question)]
    if answers[0] and answers[0].probes:
        weights = model_of(QWEN2_7B).weights
        shape = {
            "config": QWEN2_7B,
            "weights": [[w.name, list(w.shape), True, w.bits, w.count] for w in weights],
        }
        answers.append(there.ask(0, replace(question, key="load#2", shape=shape)))
    return answers


def test_what_does_not_fit_is_settled_before_it_is_loaded(tmp_path: Path) -> None:
    """By the shape of the loaded model, which has no other effect."""
    there = loading(tmp_path, 8)
    first, second = load(there)
    assert first == Answer("load#1", probes=True)
    assert second
    assert second.overrides == {"zero_stage": 3}
    assert there.told[0][0] == "from_pretrained, train.py:7"
    workload = there.settling.attempt.plan.workload
    assert (workload.model, workload.value(Fact.ADAPTER)) == (None, None)
    assert there.settling.shape is None
    assert there.allows()


def test_what_fits_is_loaded_as_asked(tmp_path: Path) -> None:
    """The shape isn't requested if the script names models that it doesn't train."""
    there = loading(tmp_path, 80)
    assert load(there) == [Answer("load#1", probes=True), Answer("load#2")]
    there = loading(tmp_path, 8, trains_all=False)
    assert load(there) == [Answer("load#1")]
    assert there.told == []


@pytest.mark.parametrize("limits", [AUTO, Limits(strict=True), Limits(Fix.SUGGEST)])
def test_loading_ends_nothing(limits: Limits, tmp_path: Path) -> None:
    """Only the finished model is certain not to fit."""
    there = loading(tmp_path, 1, limits)
    assert load(there) == [Answer("load#1", probes=True), Answer("load#2")]
    assert there.allows()


@pytest.mark.parametrize("adapter", [None, "none"])
def test_memory_stops_an_attempt_only_where_all_is_stated(adapter: str | None) -> None:
    """With signs of adapters the estimate forbids no plan before the model is seen."""
    workload = workload_of(model_of(QWEN2_7B), dict(TOO_LARGE))
    attempt = Attempt(0, as_asked(REQUEST, workload, GPUS), Path())
    allows = settling_of(attempt, Rules((), GPUS, ranks_of(REQUEST, GPUS))).allows
    observed = {} if adapter is None else {"adapter": adapter}
    assert allows(observed, None) is (adapter is None)


@pytest.mark.parametrize("adapter", [None, "none"])
def test_an_answer_takes_one_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: str | None
) -> None:
    """It shows either doubt about memory, which prevents changes, or the changes."""
    searches = []

    def counted(*arguments: Any, **options: Any) -> Plan | NoPlan:
        searches.append(options["fixed"])
        return planned(*arguments, **options)

    monkeypatch.setattr(judgement, "planned", counted)
    workload = workload_of(model_of(QWEN2_7B), dict(TOO_LARGE))
    attempt = Attempt(0, as_asked(REQUEST, workload, GPUS), tmp_path)
    told: list[object] = []

    def tell(where: str, _plan: Plan, changes: Sequence[Change], *, is_made: bool) -> None:
        told.extend((where, change.setting, is_made) for change in changes)

    rules = Rules((), GPUS, ranks_of(REQUEST, GPUS))
    there = Settling(attempt, rules, set(), SimpleNamespace(settled=tell), lambda _: None)
    facts = {"zero_stage": 0, **({} if adapter is None else {"adapter": adapter})}
    changeable = ["zero_stage", "offload", "gradient_checkpointing"]
    question = Ask("key", Boundary.TRAINING_ARGUMENTS, changeable, facts)
    answer = there.answer(0, question, {}, None)
    assert answer
    assert bool(answer.overrides) is (adapter is not None)
    assert len(told) == len(answer.overrides)
    assert [fixed.keys() & set(changeable) for fixed in searches] == [set()]
