"""Plans a launch with proposals, or returns the reasons against it with remedies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..core.constraint import Constraint
from ..core.errors import Refused
from ..core.hardware import Hardware
from ..core.preset import Preset
from ..core.request import LaunchRequest
from ..core.workload import Workload
from .estimates.training_states import Candidate
from .plan import Doubt, NoPlan, Plan
from .proven import proof_of, wrong_cells
from .remedies import proposals, remedies
from .search import FREE, resolve, rules_of
from .shipped_sweeps import shipped_sweeps
from .uncertain import doubt_of

STRICT = "--strict allows no change"


def planned(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    constraints: Sequence[Constraint],
    *,
    has_failed: bool = False,
    fixed: Candidate = FREE,
) -> Plan | NoPlan:
    """Plans a launch; the arguments are those of `resolve`.

    If the memory estimate depends on an assumption, or the installed version isn't proven to train
    the same with the estimate's changes, the original settings are launched, unless something else
    forbids them.
    """
    constraints = (*constraints, *wrong_cells(workload, shipped_sweeps()))
    search = partial(resolve, constraints=constraints, has_failed=has_failed, fixed=fixed)
    result = search(request, workload, hardware)
    doubt = doubt_of(result, search, fixed) or (None if has_failed else unproven(result))
    if doubt is not None:
        launched = search(request, workload, hardware, by_memory=False)
        if isinstance(launched, Plan):
            return replace(launched, doubt=doubt)
    rules = rules_of(request, hardware, constraints, has_failed=has_failed)
    if isinstance(result, NoPlan):
        barred = _barred(result, search)
        return replace(result, remedies=remedies(result, rules), barred=barred)
    return replace(result, proposals=proposals(result, rules))


def unproven(plan: Plan | NoPlan) -> Doubt | None:
    """The changes made only for memory, if the version is unproven with them."""
    if not isinstance(plan, Plan) or not (changes := plan.changed_for_memory):
        return None
    proof = proof_of(plan.preset.settings(), plan.workload, shipped_sweeps())
    if proof is None or proof.verdict is not None:
        return None
    return Doubt(changes, (), f"{proof.library} {proof.installed}")


def _barred(refused: NoPlan, search: Callable[..., Plan | NoPlan]) -> Preset | None:
    """The preset without `--never-change`; None if that changes nothing."""
    limits = refused.request.limits
    if not limits.never_changed:
        return None
    free = replace(refused.request, limits=replace(limits, never_changed=()))
    plan = search(free, refused.workload, refused.hardware)
    return plan.preset if isinstance(plan, Plan) else None


def refused_by_strict(request: LaunchRequest, plan: Plan) -> Refused | None:
    """The reason for which `--strict` refuses a plan, if any."""
    return Refused(STRICT) if request.limits.strict and plan.changes else None
