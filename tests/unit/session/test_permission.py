"""Whether a running attempt may go on, given what its workers see before the first step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.core.request import Fix, Limits
from safe_launch.core.settings import Fact, Setting
from safe_launch.diagnosis.attempt import Attempt
from safe_launch.planning.estimates.ranks import ranks_of
from safe_launch.planning.search import Rules, as_asked
from safe_launch.session import all_nodes
from support.models import HARDWARE as GPUS
from support.models import QWEN2_7B, model_of, workload_of
from support.worlds import CURRENT, HARDWARE, REQUEST, ZERO2, known_rules, rules_under, world

RULES = rules_under(known_rules(CURRENT))
ATTEMPT = Attempt(0, as_asked(REQUEST, world(ZERO2), HARDWARE), Path())
FAILS = {"block_runs_twice": True}


def test_what_is_known_to_fail_may_not_go_on() -> None:
    """Anything else may."""
    allowed = all_nodes.permission(ATTEMPT, RULES)
    assert allowed({}, None)
    assert allowed({"block_runs_twice": False}, None)
    assert not allowed(FAILS, None)


def test_suggest_changes_nothing() -> None:
    """Whatever is seen."""
    request = replace(REQUEST, limits=Limits(Fix.SUGGEST))
    attempt = replace(ATTEMPT, plan=replace(ATTEMPT.plan, request=request))
    assert all_nodes.permission(attempt, RULES)(FAILS, None)


def test_the_same_report_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker reports it, and each search takes its time."""
    judged = []
    monkeypatch.setattr(
        all_nodes, "_may_go_on", lambda _attempt, seen, _rules: judged.append(seen) or True
    )
    allowed = all_nodes.permission(ATTEMPT, RULES)
    for _ in range(3):
        allowed(FAILS, None)
    assert len(judged) == 1
    allowed({}, None)
    allowed({}, {"config": {}})
    assert len(judged) == 3


@pytest.mark.parametrize("adapter", [None, "none"])
def test_memory_stops_an_attempt_only_where_all_is_stated(adapter: str | None) -> None:
    """Where something speaks of adapters, the estimate forbids nothing until the model is seen."""
    facts = {
        Fact.OPTIMIZER: "adamw",
        Setting.OFFLOAD: "none",
        Setting.PRECISION: "bf16",
        Setting.GRADIENT_CHECKPOINTING: "off",
        Fact.ADAPTER_HINTED: True,
        Setting.ZERO_STAGE: 0,
        Setting.MICRO_BATCH: 1,
        Setting.ACCUMULATION: 1,
    }
    workload = workload_of(model_of(QWEN2_7B), dict(facts))
    attempt = Attempt(0, as_asked(REQUEST, workload, GPUS), Path())
    allowed = all_nodes.permission(attempt, Rules((), GPUS, ranks_of(REQUEST, GPUS)))
    observed = {} if adapter is None else {"adapter": adapter}
    assert allowed(observed, None) is (adapter is None)
