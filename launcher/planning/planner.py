"""The plan of a launch with proposals, or why there is no plan, with remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.constraint import Constraint
from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.workload import Workload
from .plan import NoPlan, Plan
from .remedies import proposals, remedies
from .search import resolve, rules_of
from .unstated import doubts


def planned(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    constraints: Sequence[Constraint],
) -> Plan | NoPlan:
    """The plan, or why there is none.

    Where the memory estimate depends on unstated values, what was asked for is launched, unless
    something else forbids it.
    """
    found = resolve(request, workload, hardware, constraints)
    unsure = doubts(found, constraints)
    if unsure:
        trusting = resolve(request, workload, hardware, constraints, by_memory=False)
        if isinstance(trusting, Plan):
            return replace(trusting, doubts=unsure)
    rules = rules_of(request, hardware, constraints)
    if isinstance(found, NoPlan):
        return replace(found, remedies=remedies(found, rules))
    return replace(found, proposals=proposals(found, rules))
