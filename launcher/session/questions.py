"""A worker's question: where it was asked, and what is expected there."""

from __future__ import annotations

from ..core.choices import Adapter
from ..core.settings import Fact
from ..core.workload import Known, Origin, Statement, Workload
from ..evidence.worker_messages import Ask, Boundary

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
