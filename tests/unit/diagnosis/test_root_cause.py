"""The root cause of a failed attempt, and its lesson."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from safe_launch.catalogue.entry import Finding, Kind, Role, constraints_of
from safe_launch.catalogue.reader import concerns
from safe_launch.core.choices import Framework
from safe_launch.core.constraint import Constraint
from safe_launch.core.settings import Fact, Setting
from safe_launch.core.workload import Origin
from safe_launch.diagnosis.attempt import Attempt, Seen
from safe_launch.diagnosis.new_constraints import Learned, is_about, learned_from
from safe_launch.diagnosis.observed import observed_statements, tried_settings
from safe_launch.diagnosis.root_cause import diagnose
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.search import as_asked, forbidden_by, resolve
from support.tables import table
from support.worlds import (
    CATALOGUE,
    CURRENT,
    HARDWARE,
    LORA3,
    LORA_DDP,
    OLDER,
    REQUEST,
    TOLD,
    ZERO2,
    ZERO3,
    known_rules,
    rules_under,
    world,
)

UNSEEN = Seen({})
"""Nothing from the workers."""

GLOO = (
    "[third_party/gloo/gloo/transport/tcp/pair.cc:553] "
    "Connection closed by peer [127.0.0.1]:17612. This is typically caused by a crash"
)
READY = "Expected to mark a variable ready only once. This error is caused by ..."


def record(rank: int, at: float, exception: str, message: str = "") -> FailureRecord:
    """A record of a rank that raised an exception."""
    return FailureRecord(rank=rank, at=at, exception=exception, message=message)


def entry(name: str):
    """A shipped entry."""
    return next(one for one in CATALOGUE if one.id == name)


def test_the_earliest_initiating_failure_is_the_root() -> None:
    """A lost peer isn't the root if any rank failed by itself, even later."""
    lost = record(0, 10.00, "builtins.RuntimeError", GLOO)
    known = record(1, 10.02, "builtins.RuntimeError", READY)
    later = record(2, 10.04, "builtins.RuntimeError", READY)
    findings = diagnose([lost, later, known], CATALOGUE).findings
    assert [one.record.rank for one in findings] == [1, 2, 0]
    assert [one.role for one in findings] == [Role.INITIATING, Role.INITIATING, Role.CASCADE]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_arrival_is_no_matter(order: tuple[int, ...]) -> None:
    """Roles and times decide, not the order of the reports."""
    records = [
        record(0, 10.00, "builtins.RuntimeError", GLOO),
        record(1, 10.02, "builtins.KeyError", "'label'"),
        record(2, 10.04, "builtins.RuntimeError", READY),
    ]
    findings = diagnose([records[index] for index in order], CATALOGUE).findings
    assert [one.record.rank for one in findings] == [1, 2, 0]


def test_among_consequences_alone_the_earliest_is_the_root() -> None:
    """No rank failed by itself, so the first lost peer is the root."""
    lost = [record(rank, 1.0 - rank / 10, "builtins.RuntimeError", GLOO) for rank in range(3)]
    root = diagnose(lost, CATALOGUE).root
    assert root.record.rank == 2
    assert root.entry is not None
    assert root.entry.id == "gloo-peer-lost"


def test_a_death_without_evidence_is_initiating() -> None:
    """A killed rank precedes those that lost it, even if they report earlier."""
    killed = FailureRecord(rank=1, at=2.0, signal=9, exit_code=137)
    lost = record(0, 1.0, "builtins.RuntimeError", GLOO)
    root = diagnose([lost, killed], CATALOGUE).root
    assert (root.record.rank, root.role, named(root)) == (1, Role.INITIATING, "worker-killed")


def test_an_unexplained_exception_is_no_consequence() -> None:
    """A user's bug precedes a known failure that follows it."""
    bug = record(3, 1.0, "builtins.KeyError", "'label'")
    known = record(0, 1.1, "builtins.RuntimeError", READY)
    root = diagnose([known, bug], CATALOGUE).root
    assert (root.record.rank, root.entry) == (3, None)


def test_words_in_another_exception_dont_match() -> None:
    """The same message under another exception type doesn't match."""
    quoted = record(0, 1.0, "builtins.ValueError", READY)
    assert diagnose([quoted], CATALOGUE).root.entry is None


def test_a_death_without_exception_isnt_matched_by_messages() -> None:
    """A killed worker's log may quote a known message."""
    killed = FailureRecord(rank=0, at=1.0, signal=9, exit_code=137, log_tail=(READY,))
    assert named(diagnose([killed], CATALOGUE).root) == "worker-killed"


def test_what_the_users_code_raises_itself_is_not_known() -> None:
    """User code's own exception matches no entry; a re-raised known failure does."""
    own = Frame("/home/me/train.py", 3, "main", f"raise RuntimeError({READY!r})")
    said = replace(
        record(0, 1.0, "builtins.RuntimeError", READY), frames=(own,), user_files=(own.file,)
    )
    assert diagnose([said], CATALOGUE).root.entry is None
    again = replace(said, chain=(Raised("builtins.RuntimeError", READY),))
    assert named(diagnose([again], CATALOGUE).root) == "ddp-parameter-ready-twice"


def test_who_is_stopped_began_nothing() -> None:
    """A worker ended by SIGTERM is never the root, however early it ended."""
    stopped = FailureRecord(rank=1, at=1.0, signal=15, exit_code=143)
    lost = record(0, 2.0, "builtins.RuntimeError", GLOO)
    findings = diagnose([stopped, lost], CATALOGUE).findings
    assert [named(one) for one in findings] == ["gloo-peer-lost", "stopped-from-outside"]


def named(finding: Finding) -> str | None:
    """The id of the entry that explains a finding, if any."""
    return None if finding.entry is None else finding.entry.id


def attempt_of(plan: Plan, number: int) -> Attempt:
    """An attempt with a plan."""
    return Attempt(number, plan, Path())


SITUATIONS = [
    ("zero2-gradient-reduced-twice", ZERO2, CURRENT),
    ("zero3-parameter-reduced-twice", ZERO3, OLDER),
    ("zero3-parameter-outside-forward", ZERO3, CURRENT),
    ("zero3-weight-not-gathered", ZERO3, CURRENT),
    (
        "checkpoint-inputs-without-gradient",
        {**LORA_DDP, Setting.FIND_UNUSED_PARAMETERS: False},
        CURRENT,
    ),
    (
        "ddp-static-graph-changed",
        {**LORA_DDP, Setting.STATIC_GRAPH: True, Setting.FIND_UNUSED_PARAMETERS: False},
        CURRENT,
    ),
    (
        "ddp-static-graph-no-sync",
        {
            Fact.ENGINE: "ddp",
            Setting.STATIC_GRAPH: True,
            Setting.FIND_UNUSED_PARAMETERS: False,
            Setting.ACCUMULATION: 2,
        },
        CURRENT,
    ),
    (
        "fsdp-reentrant-blocks-in-one-unit",
        {
            Fact.ENGINE: "fsdp",
            Fact.FSDP_VERSION: 1,
            Setting.GRADIENT_CHECKPOINTING: "reentrant",
        },
        CURRENT,
    ),
    ("zero3-recompute-of-released-parameters", {**LORA3, Fact.FROZEN_PARAMETERS: True}, OLDER),
    ("ddp-parameter-ready-twice", LORA_DDP, CURRENT),
    (
        "ddp-unused-parameters",
        {**LORA_DDP, Setting.FIND_UNUSED_PARAMETERS: False},
        CURRENT,
    ),
]


def test_a_remedy_for_another_engine_is_none() -> None:
    """ZeRO-3's remedy isn't used for the same message under DDP."""
    gathered = entry("zero3-weight-not-gathered")
    assert is_about(gathered, world(ZERO3))
    assert is_about(gathered, world({}))
    assert not is_about(gathered, world(LORA_DDP))


def test_every_failure_that_a_preset_cures_is_tried_below() -> None:
    """A new entry needs a situation here."""
    cured = {one.id for one in CATALOGUE if one.kind is Kind.PRESET}
    assert {name for name, _, _ in SITUATIONS} == cured


@table(("name", "values", "versions"), SITUATIONS, name=lambda one: one[0])
@pytest.mark.parametrize("framework", [Framework.TRANSFORMERS, Framework.NONE])
def test_every_lesson_forbids_what_was_tried(name, values, versions, framework) -> None:
    """Repeated failures never lead to the same plan twice, and retries end."""
    rules: list[Constraint] = []
    workload = replace(world(values, framework), versions=MappingProxyType(versions))
    visited = []
    plan = resolve(REQUEST, workload, HARDWARE, rules)
    while isinstance(plan, Plan):
        attempt = attempt_of(plan, len(visited))
        tried = tried_settings(attempt, workload)
        assert tried not in visited
        visited.append(tried)
        finding = Finding(record(0, 1.0, "x"), Role.INITIATING, entry(name))
        known = [*known_rules(versions), *rules]
        learned = learned_from(workload, attempt, UNSEEN, finding, rules_under(known))
        assert isinstance(learned, Learned)
        workload, known = learned.workload, list(learned.constraints)
        rules = known[len(known_rules(versions)) :]
        assert forbidden_by(tried, workload, rules_under(known)) is not None
        plan = resolve(REQUEST, workload, HARDWARE, known)
    assert isinstance(plan, NoPlan)
    assert len(visited) > 1


def test_a_failure_that_comes_back_under_its_cure_teaches_something_new() -> None:
    """If the argument has no effect, another candidate follows."""
    workload = world(ZERO2)
    rules = known_rules(CURRENT)
    plan = resolve(REQUEST, workload, HARDWARE, rules)
    seen = []
    for number in range(3):
        assert isinstance(plan, Plan)
        seen.append((plan.preset.zero_stage, str(plan.preset.gradient_checkpointing)))
        finding = Finding(
            record(0, 1.0, "x"), Role.INITIATING, entry("zero2-gradient-reduced-twice")
        )
        attempt = attempt_of(plan, number)
        learned = learned_from(workload, attempt, UNSEEN, finding, rules_under(rules))
        assert isinstance(learned, Learned)
        workload, rules = learned.workload, list(learned.constraints)
        plan = resolve(REQUEST, workload, HARDWARE, rules)
    assert seen == [(2, "reentrant"), (2, "non_reentrant"), (1, "reentrant")]


def test_what_a_worker_saw_outranks_what_was_read() -> None:
    """Observations override the script's text, except for settings made by the plan."""
    name = "zero2-gradient-reduced-twice"
    workload = world({**ZERO2, Fact.BLOCK_RUNS_TWICE: True})
    plan = resolve(REQUEST, workload, HARDWARE, constraints_of(entry(name)))
    assert isinstance(plan, Plan)
    assert dict(plan.overrides) == {Setting.GRADIENT_CHECKPOINTING: "non_reentrant"}
    seen = {"zero_stage": 1, "gradient_checkpointing": "non_reentrant", "frozen_parameters": False}
    statements = dict(observed_statements(attempt_of(plan, 0), seen))
    assert {key: known.value for key, known in statements.items()} == {
        Setting.ZERO_STAGE: 1,
        Fact.FROZEN_PARAMETERS: False,
    }
    assert {known.origin for known in statements.values()} == {Origin.OBSERVED}
    informed = workload.informed(statements.items())
    assert informed.value(Setting.ZERO_STAGE) == 1
    assert informed.value(Setting.GRADIENT_CHECKPOINTING) == "reentrant"
    assert informed.known[Setting.ZERO_STAGE].source == "the script, as seen in attempt 1"


def test_what_a_worker_confirms_keeps_the_users_words() -> None:
    """The flag or key is still named; the value is now certain."""
    workload = world({**ZERO2, Setting.PRECISION: "bf16"})
    plan = as_asked(REQUEST, workload, HARDWARE)
    seen = {"zero_stage": 2, "precision": "fp16"}
    stage, precision = (known for _, known in observed_statements(attempt_of(plan, 0), seen))
    assert (stage.origin, stage.source) == (Origin.OBSERVED, "--zero_stage")
    assert (precision.value, precision.source) == ("fp16", "the script, as seen in attempt 1")


@pytest.mark.parametrize(("first", "known"), [(300, 512), (600, 600)])
def test_the_first_batch_is_no_longer_than_the_longest(first: int, known: int) -> None:
    """A stated maximum holds unless the batch exceeds it."""
    workload = world({**ZERO2, Fact.SEQUENCE_LENGTH: 512})
    attempt = attempt_of(as_asked(REQUEST, workload, HARDWARE), 0)
    informed = workload.informed(observed_statements(attempt, {"sequence_length": first}))
    assert informed.value(Fact.SEQUENCE_LENGTH) == known


def test_a_lesson_is_about_the_settings_that_the_failure_depends_on() -> None:
    """The tried settings are forbidden in the entry's terms, at any batch and precision."""
    workload = world(
        {
            **ZERO2,
            Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
            Setting.PRECISION: "bf16",
            Setting.MICRO_BATCH: 4,
            Setting.ACCUMULATION: 1,
        }
    )
    plan = resolve(REQUEST, workload, HARDWARE, [])
    assert isinstance(plan, Plan)
    found = Finding(record(0, 1.0, "x"), Role.INITIATING, entry("zero2-gradient-reduced-twice"))
    rules = rules_under(known_rules(CURRENT))
    learned = learned_from(plan.workload, attempt_of(plan, 2), UNSEEN, found, rules)
    assert isinstance(learned, Learned)
    (lesson,) = learned.constraints[len(rules.constraints) :]
    assert {str(term) for term in lesson.terms} == {
        "zero_stage=2",
        "gradient_checkpointing=non_reentrant",
    }
    assert (lesson.cause.name, lesson.cause.summary) == (
        "3",
        f"attempt 3 failed with it: {entry('zero2-gradient-reduced-twice').subject}",
    )


def test_a_lesson_in_general_terms_comes_first() -> None:
    """If the proven fact makes the catalogue forbid the plan, no other lesson is needed."""
    workload = world(ZERO2)
    rules = known_rules(CURRENT)
    plan = resolve(REQUEST, workload, HARDWARE, rules)
    assert isinstance(plan, Plan)
    first = Finding(record(0, 1.0, "x"), Role.INITIATING, entry("zero2-gradient-reduced-twice"))
    learned = learned_from(plan.workload, attempt_of(plan, 0), UNSEEN, first, rules_under(rules))
    assert isinstance(learned, Learned)
    assert learned.constraints == tuple(rules)
    statement = learned.workload.known[Fact.BLOCK_RUNS_TWICE]
    assert (statement.value, statement.origin) == (True, Origin.LESSON)


def test_preset_entries_apply_to_something() -> None:
    """Every entry with a preset as remedy forbids something and has a source.

    So does every silent entry that can do more than report.
    """
    for one in CATALOGUE:
        is_told = one.id in TOLD or one.tells or (one.points_at and one.kind is Kind.SILENT)
        assert bool(one.forbids) == (one.kind is Kind.PRESET) or one.kind is Kind.SILENT, one.id
        assert one.kind is not Kind.SILENT or one.forbids or is_told, one.id
        assert one.proof, one.id
        assert one.sources, one.id


def test_versions_decide_which_entries_concern_us() -> None:
    """Fixed releases forbid nothing; neither do unknown versions."""
    cured = entry("zero3-recompute-of-released-parameters")
    versions = ("0.16.9", "0.19.2", "0.19.2+cu130", "0.19.2.dev3", "0.19.3")
    assert [concerns(cured, {"deepspeed": version}) for version in versions] == [
        True,
        True,
        True,
        True,
        False,
    ]
    assert not concerns(cured, {})
