"""A worker's question: its place, whether the attempt may continue, and a better plan for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..core.choices import Adapter, Checkpointing
from ..core.request import Fix
from ..core.settings import Fact, Setting, Value
from ..core.workload import Known, Origin, Statement, Workload
from ..diagnosis.attempt import Attempt
from ..diagnosis.new_constraints import is_hopeless
from ..diagnosis.observed import tried_settings
from ..evidence.worker_messages import Ask, Boundary
from ..planning.plan import NoPlan, Plan
from ..planning.planner import planned
from ..planning.search import Rules, forbidden_by

LOADING = (Boundary.FROM_PRETRAINED, Boundary.FROM_CONFIG)
"""Boundaries at which a model is about to be made."""


def expected(workload: Workload, where: str) -> list[Statement]:
    """The expectation that a model about to be made is trained in full, if nothing contradicts."""
    is_stated = workload.is_certain(Fact.ADAPTER) or not workload.trains_all
    return [] if is_stated else [(Fact.ADAPTER, Known(Adapter.NONE.value, Origin.OBSERVED, where))]


def where_of(question: Ask) -> str:
    """The boundary and the user's line, in words; and which training, if it isn't the first."""
    later = "in a later training" if question.step else ""
    return ", ".join(filter(None, (str(question.boundary), question.frame, later)))


def may_continue(attempt: Attempt, workload: Workload, rules: Rules) -> bool:
    """Whether nothing forbids an attempt."""
    if not is_hopeless(attempt, workload, rules):
        return True
    return is_unsure(attempt, workload, rules, better_plan(attempt, workload, rules))


def is_unsure(attempt: Attempt, workload: Workload, rules: Rules, better: Plan | NoPlan) -> bool:
    """Whether only a memory estimate that rests on assumptions forbids an attempt."""
    if not isinstance(better, Plan) or better.doubt is None:
        return False
    return not is_hopeless(attempt, workload, replace(rules, by_memory=False))


def better_plan(
    attempt: Attempt, workload: Workload, rules: Rules, fixed: Mapping[Setting, Value] = {}
) -> Plan | NoPlan:
    """The plan for what is known by now, with these settings fixed."""
    plan = attempt.plan
    return planned(
        *(plan.request, workload, plan.hardware, rules.constraints),
        has_failed=rules.has_failed,
        fixed=fixed,
    )


def is_mistaken(attempt: Attempt, stated: Iterable[Statement]) -> bool:
    """Whether a change rests on another value than the script asks for.

    A value that was read or learnt may have changed since; the global batch would change with it.
    """
    plan = attempt.plan
    believed = plan.workload.requested
    return any(
        name in plan.overrides and name in believed and believed[name] != known.value
        for name, known in stated
        if isinstance(name, Setting)
    )


def needs_probe(attempt: Attempt, workload: Workload, rules: Rules, question: Ask) -> bool:
    """Whether the attempt depends on the model's shape, or on whether a block runs twice.

    Blocks run non-reentrant meanwhile, which must not be known to fail.
    """
    if question.boundary in LOADING:
        return workload.model is None and workload.trains_all
    limits, name = attempt.plan.request.limits, Fact.BLOCK_RUNS_TWICE
    is_open = question.boundary is Boundary.CHECKPOINT and name not in workload.known
    is_open = is_open and Setting.GRADIENT_CHECKPOINTING not in limits.kept
    if not is_open or question.step or limits.strict or limits.fix is Fix.SUGGEST:
        return False
    twice = workload.informed([(name, Known(True, Origin.OBSERVED, ""))])
    other = Checkpointing.NON_REENTRANT.value
    tried = {**tried_settings(attempt, twice), Setting.GRADIENT_CHECKPOINTING: other}
    rules = replace(rules, by_memory=False)
    return is_hopeless(attempt, twice, rules) and forbidden_by(tried, twice, rules) is None
