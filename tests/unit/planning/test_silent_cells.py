"""No plan, settled change or correction leads to a training that is silently wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from safe_launch.catalogue.entry import Kind, KnownFailure, constraints_of
from safe_launch.catalogue.reader import concerns
from safe_launch.core.choices import Framework
from safe_launch.core.constraint import Cause, CauseKind, Constraint, Term
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.diagnosis.attempt import Attempt
from safe_launch.evidence.worker_messages import Ask, Boundary
from safe_launch.planning.forbidden import point_of
from safe_launch.planning.plan import Plan
from safe_launch.planning.search import as_asked, resolve
from safe_launch.session.settling import Settling
from support.attempts import Recorder
from support.worlds import CATALOGUE, HARDWARE, REQUEST, known_rules, rules_under, world

RELEASES = (
    *("0.14.0", "0.14.1", "0.14.2", "0.14.3", "0.14.4", "0.14.5", "0.15.0", "0.15.1", "0.15.2"),
    *("0.15.3", "0.15.4", "0.16.0", "0.16.1", "0.16.2", "0.16.3", "0.16.4", "0.16.5", "0.16.6"),
    *("0.16.7", "0.16.8", "0.16.9", "0.17.0", "0.17.1", "0.17.2", "0.17.3", "0.17.4", "0.17.5"),
    *("0.17.6", "0.18.0", "0.18.1", "0.18.2", "0.18.3", "0.18.4", "0.18.5", "0.18.6", "0.18.7"),
    *("0.18.8", "0.18.9", "0.19.0", "0.19.1", "0.19.2", "0.19.3", "0.19.4", "0.19.5", "0.19.6"),
    *("0.19.7", "0.19.8"),
)
"""DeepSpeed's releases (https://pypi.org/project/deepspeed/#history)."""
SILENT = [entry for entry in CATALOGUE if entry.kind is Kind.SILENT]
LEARNT: tuple[dict[Name, Value], ...] = (
    {},
    {Fact.BLOCK_RUNS_TWICE: True},
    {Fact.PARAMETER_OUTSIDE_FORWARD: True},
    {Fact.FROZEN_PARAMETERS: True},
    {Fact.RANKS_DIVERGE: True},
)
"""Facts shown by a failure or a worker."""
FORCED = (None, Setting.ZERO_STAGE, Setting.OFFLOAD, Setting.GRADIENT_CHECKPOINTING)
"""Settings with which an attempt may have failed."""


def versions_of(release: str) -> dict[str, str]:
    """An installation's versions."""
    return {"torch": "2.13.0", "deepspeed": release, "transformers": "4.57.1"}


def silent_of(release: str) -> list[Constraint]:
    """The silent entries for these versions."""
    affected = [entry for entry in SILENT if concerns(entry, versions_of(release))]
    return [rule for entry in affected for rule in constraints_of(entry)]


def groups() -> dict[str, str]:
    """The last release of each range of releases with the same entries."""
    return {str(silent_of(release)): release for release in RELEASES}


def asked() -> Iterator[dict[Name, Value]]:
    """Requests of scripts to DeepSpeed."""
    axes: Mapping[Name, tuple[Value, ...]] = {
        Setting.ZERO_STAGE: (0, 1, 2, 3),
        Setting.OFFLOAD: ("none", "optimizer"),
        Setting.PRECISION: ("bf16", "fp16", "fp32"),
        Fact.FP32_ACCUMULATION: (False, True),
    }
    for values in itertools.product(*axes.values()):
        yield {
            Fact.ENGINE: "deepspeed",
            Setting.ACCUMULATION: 4,
            Setting.MICRO_BATCH: 1,
            Setting.GRADIENT_CHECKPOINTING: "reentrant",
            **dict(zip(axes, values, strict=True)),
        }


def by_script(workload: Workload) -> Workload:
    """The same requests with all but the engine read from the script's source."""
    known = {
        name: each if name is Fact.ENGINE else Known(each.value, Origin.SCRIPT, "train.py:1")
        for name, each in workload.known.items()
    }
    return replace(workload, known=MappingProxyType(known))


def after_failure(values: Mapping[Name, Value], setting: Setting | None) -> list[Constraint]:
    """The constraints after an attempt failed with a setting."""
    if setting is None:
        return []
    cause = Cause(CauseKind.ATTEMPT, "1", "attempt 1 failed with it")
    return [Constraint((Term(setting, frozenset({values[setting]})),), cause)]


def wrong(plan: Plan, release: str) -> list[str]:
    """The entries that apply to a plan after a change, or although they are certain."""
    point = point_of(plan.preset.settings(), plan.workload)
    before = point_of(plan.workload.requested, plan.workload)
    certain = plan.workload.is_certain(Setting.ZERO_STAGE)
    return [
        rule.cause.name
        for rule in silent_of(release)
        if rule.forbids(point) and (certain or not rule.forbids(before))
    ]


@pytest.mark.parametrize("release", groups().values())
def test_no_plan_ends_there(release: str) -> None:
    """For any request, certain or read from source, after any failure."""
    known = known_rules(versions_of(release))
    for values, setting, learnt in itertools.product(asked(), FORCED, LEARNT):
        if setting is not None and learnt:
            continue
        certain = world({**values, **learnt})
        rules = [*known, *after_failure(values, setting)]
        for workload in (certain, by_script(certain)):
            plan = resolve(REQUEST, workload, HARDWARE, rules)
            if isinstance(plan, Plan):
                assert wrong(plan, release) == [], (values, setting, learnt, str(plan.preset))
        corrected = resolve(REQUEST, certain, HARDWARE, rules, has_failed=True)
        if isinstance(corrected, Plan):
            assert wrong(corrected, release) == [], (values, setting, learnt)


@pytest.mark.parametrize("release", groups().values())
def test_no_settled_change_ends_there(release: str, tmp_path: Path) -> None:
    """Workers of a plain loop report what couldn't be read."""
    rules = rules_under(known_rules(versions_of(release)))
    attempt = Attempt(0, as_asked(REQUEST, Workload(Framework.NONE), HARDWARE), tmp_path)
    for number, values in enumerate(asked()):
        facts = {str(name): value for name, value in values.items()}
        settling = Settling(attempt, rules, set(), Recorder(), lambda _: None)
        changeable = ["zero_stage", "offload"]
        question = Ask(str(number), Boundary.INITIALIZE, changeable, facts)
        answer = settling.answer(0, question, {}, None)
        if answer is not None:
            after = {**values, **{Setting(name): new for name, new in answer.overrides.items()}}
            led = [rule.cause.name for rule in silent_of(release) if rule.forbids(after)]
            assert led == [], (values, answer.overrides)


def test_every_cell_has_a_way_out() -> None:
    """In every release each request is right or has a plan that is."""
    for release in groups().values():
        for values in asked():
            found = resolve(REQUEST, world(values), HARDWARE, known_rules(versions_of(release)))
            assert isinstance(found, Plan), (release, values)


PLAIN: dict[Name, Value] = {
    Setting.ZERO_STAGE: 2,
    Setting.OFFLOAD: "none",
    Setting.PRECISION: "bf16",
    Setting.GRADIENT_CHECKPOINTING: "off",
    Setting.ACCUMULATION: 4,
    Setting.MICRO_BATCH: 1,
}
"""Requests besides an entry's own."""


def cells_of(entry: KnownFailure) -> Iterator[dict[Name, Value]]:
    """The combinations that an entry forbids, each with every value named."""
    for terms in entry.forbids:
        for values in itertools.product(*(sorted(term.values, key=str) for term in terms)):
            named = {term.name: value for term, value in zip(terms, values, strict=True)}
            plain = {} if named[Fact.ENGINE] == "ddp" else PLAIN
            yield {**plain, **named}


@pytest.mark.parametrize("entry", [e for e in SILENT if e.forbids], ids=lambda entry: entry.id)
def test_every_cell_of_every_entry_is_left(entry: KnownFailure) -> None:
    """In every affected release, by a plan that no entry forbids."""
    releases = [release for release in groups().values() if concerns(entry, versions_of(release))]
    assert releases != []
    for release in releases:
        rules = known_rules(versions_of(release))
        for values in cells_of(entry):
            assert any(rule.forbids(values) for rule in constraints_of(entry)), values
            plan = resolve(REQUEST, world(values), HARDWARE, rules)
            assert isinstance(plan, Plan), (release, values)
            assert wrong(plan, release) == [], (release, values, str(plan.preset))
