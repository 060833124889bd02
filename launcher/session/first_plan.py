"""The plan before anything is launched, or why nothing may be launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..catalogue.entry import KnownFailure
from ..core.constraint import Constraint
from ..core.errors import ExitCode
from ..core.hardware import Hardware
from ..core.request import Fix, LaunchRequest
from ..core.workload import Workload
from ..nodes.messages import RunEnded
from ..planning.plan import NoPlan, Plan
from ..planning.planner import planned, refused_by_strict
from ..planning.search import as_asked
from ..report import pod_status
from ..report.explain_plan import NOTHING_LEFT
from .fault_warnings import fault_warnings
from .suspect_lines import suspect_lines

if TYPE_CHECKING:
    from .console import Reporter


def first_plan(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    known: Sequence[Constraint],
    entries: Sequence[KnownFailure],
    reporter: Reporter,
    *,
    has_learnt: bool = False,
) -> Plan | RunEnded:
    """Makes and reports the first plan; or returns why nothing may be launched."""
    plan = planned(request, workload, hardware, known, has_failed=has_learnt)
    if isinstance(plan, NoPlan):
        reporter.no_plan(plan, None)
        return RunEnded(ExitCode.NO_PLAN, NOTHING_LEFT, pod_status.dead_end_line(plan))
    if request.limits.fix is Fix.SUGGEST:
        asked = as_asked(request, workload, hardware)
        reporter.suggested(asked, plan, suspect_lines(asked, entries))
        _warn(asked, entries, reporter)
        return asked
    reporter.planned(plan, suspect_lines(plan, entries))
    _warn(plan, entries, reporter)
    refused = refused_by_strict(request, plan)
    if refused is not None:
        reporter.note(f"not launched: {refused.sentence}")
        return RunEnded(ExitCode.NO_PLAN, refused.sentence)
    return plan


def _warn(plan: Plan, entries: Sequence[KnownFailure], reporter: Reporter) -> None:
    for text in fault_warnings(plan, entries):
        reporter.note(text)
