"""A worker's question: where it was asked, and its consequences for the plan."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.certainty import Origin
from ..core.choices import Adapter
from ..core.settings import Fact, Setting
from ..core.workload import Known, Statement, Workload
from ..diagnosis.attempt import Attempt
from ..evidence.worker_messages import Ask, Boundary

LOADING = (Boundary.FROM_PRETRAINED, Boundary.FROM_CONFIG)
"""Boundaries at which a model is about to be made."""


def expected(workload: Workload, where: str) -> list[Statement]:
    """That all of a model about to be made is trained, unless something else is known."""
    is_stated = workload.is_certain(Fact.ADAPTER) or not workload.trains_all
    return [] if is_stated else [(Fact.ADAPTER, Known(Adapter.NONE.value, Origin.OBSERVED, where))]


def is_mistaken(attempt: Attempt, stated: Iterable[Statement]) -> bool:
    """Whether a change rests on another value than the script asks for.

    A value that was read or learnt may have changed since; the global batch would change with it.
    """
    plan = attempt.plan
    believed = plan.workload.asked
    return any(
        name in plan.overrides and name in believed and believed[name] != known.value
        for name, known in stated
        if isinstance(name, Setting)
    )


def where_of(question: Ask) -> str:
    """The boundary and the user's line, in words; and which training, if it isn't the first."""
    later = "in a later training" if question.step else ""
    return ", ".join(filter(None, (str(question.boundary), question.frame, later)))
