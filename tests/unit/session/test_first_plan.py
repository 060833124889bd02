"""The first plan and its messages: suggested, refused or changed."""

from __future__ import annotations

from dataclasses import replace

from safe_launch.core.choices import Framework
from safe_launch.core.errors import ExitCode, Refused
from safe_launch.core.request import Fix, LaunchRequest, Limits
from safe_launch.core.settings import Setting
from safe_launch.core.workload import Workload
from safe_launch.nodes.messages import RunEnded
from safe_launch.planning.plan import Plan
from safe_launch.planning.planner import STRICT, refused_by_strict
from safe_launch.session.loop import first_plan
from support.attempts import Recorder
from support.worlds import CURRENT, HARDWARE, REQUEST, TWICE, ZERO2, known_rules, rule, world

KNOWN_TO_FAIL = world({**ZERO2, TWICE: True})


def planned(request: LaunchRequest, workload: Workload) -> tuple[Plan | RunEnded, list[str]]:
    """The first plan under the shipped catalogue, and the reporter's calls."""
    reporter = Recorder()
    known = known_rules(CURRENT)
    return first_plan(request, workload, HARDWARE, known, [], reporter), reporter.lines


def limited(limits: Limits) -> LaunchRequest:
    """The tests' common request with other limits."""
    return replace(REQUEST, limits=limits)


def test_what_is_known_to_fail_is_corrected_before_the_launch() -> None:
    """The correction is reported."""
    plan, told = planned(REQUEST, KNOWN_TO_FAIL)
    assert isinstance(plan, Plan)
    assert dict(plan.overrides) == {Setting.GRADIENT_CHECKPOINTING: "non_reentrant"}
    assert told == ["planned gradient_checkpointing=non_reentrant"]


def test_suggest_launches_what_was_asked() -> None:
    """The correction is only reported."""
    plan, told = planned(limited(Limits(Fix.SUGGEST)), KNOWN_TO_FAIL)
    assert isinstance(plan, Plan)
    assert not plan.overrides
    assert told == ["suggested gradient_checkpointing=non_reentrant"]


def test_strict_refuses_a_change_and_nothing_else() -> None:
    """The plan is reported first."""
    strict = limited(Limits(strict=True))
    refused, told = planned(strict, KNOWN_TO_FAIL)
    assert refused == RunEnded(ExitCode.NO_PLAN, STRICT)
    assert told[-1] == "not launched: --strict allows no change"
    plan, told = planned(strict, world(ZERO2))
    assert isinstance(plan, Plan)
    assert told == ["planned"]
    assert refused_by_strict(strict, plan) is None
    changed, _ = planned(REQUEST, KNOWN_TO_FAIL)
    assert isinstance(changed, Plan)
    assert refused_by_strict(strict, changed) == Refused(STRICT)
    assert refused_by_strict(REQUEST, changed) is None


def test_nothing_can_be_launched() -> None:
    """The reason is reported, for a pod's status too."""
    workload = world({Setting.PRECISION: "bf16"}, Framework.NONE)
    reporter = Recorder()
    end = first_plan(REQUEST, workload, HARDWARE, [rule(precision="bf16")], [], reporter)
    assert isinstance(end, RunEnded)
    assert (end.code, end.line) == (ExitCode.NO_PLAN, "nothing is left to launch")
    assert "a rule of this test" in end.diagnosis
    assert reporter.lines == ["no plan"]
