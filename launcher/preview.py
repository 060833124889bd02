"""The plan before anything is launched: told, refused, or printed in full."""

from __future__ import annotations

import json
from collections.abc import Sequence

from . import explain, plan_report, terminal
from .catalogue import concerns
from .constraint import Constraint
from .diagnose import constraints_of
from .exit_code import ExitCode
from .failure import KnownFailure
from .job import job_of
from .journal import plain
from .machine import Hardware
from .plan import NoPlan, Plan
from .remedies import planned
from .request import Fix, LaunchRequest
from .resolve import as_asked
from .workload import Workload


def known_constraints(
    workload: Workload, catalogue: Sequence[KnownFailure]
) -> tuple[Constraint, ...]:
    """What the catalogue forbids with the installed versions."""
    entries = [entry for entry in catalogue if concerns(entry, workload.versions)]
    return tuple(one for entry in entries for one in constraints_of(entry))


def first_plan(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    known: Sequence[Constraint],
) -> Plan | None:
    """The plan before anything was tried, told to the user; None where nothing may be launched."""
    plan = planned(request, workload, hardware, known)
    if isinstance(plan, NoPlan):
        dead_end(plan)
        return None
    if request.fix is Fix.SUGGEST:
        asked = as_asked(request, workload, hardware)
        _say([*explain.plan_rows(asked), *explain.suggestion_rows(plan)])
        return asked
    _say(explain.plan_rows(plan))
    return plan if _refused(request, plan) is ExitCode.SUCCESS else None


def show_plan(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    catalogue: Sequence[KnownFailure],
    as_json: bool,
) -> int:
    """Tells the plan in full and launches nothing."""
    plan = planned(request, workload, hardware, known_constraints(workload, catalogue))
    if as_json:
        document = plan_report.document(request, workload, hardware, plan)
        terminal.show(json.dumps(plain(document), indent=1))
    elif isinstance(plan, NoPlan):
        _say(_what_is_known(workload))
        terminal.say(*plan_report.table(plan.rejected, None))
        dead_end(plan)
    else:
        _say(_what_is_known(workload))
        if plan.chosen.estimate is not None:
            terminal.say(
                "candidates: GiB a rank by component, at most, time of a step against the chosen",
                *plan_report.table(plan.considered, plan.chosen),
            )
        _say(explain.plan_rows(plan))
    if isinstance(plan, NoPlan):
        return ExitCode.NO_PLAN
    return _refused(request, plan)


def _refused(request: LaunchRequest, plan: Plan) -> ExitCode:
    """What `--strict` says to a plan."""
    if request.strict and plan.changes:
        terminal.say("not launched: --strict allows no change")
        return ExitCode.NO_PLAN
    return ExitCode.SUCCESS


def _what_is_known(workload: Workload) -> list[explain.Row]:
    job = job_of(workload)
    model = plan_report.model_text(workload, 0 if job is None else job.trained)
    return [("model", model), *plan_report.known_rows(workload)]


def dead_end(refused: NoPlan) -> ExitCode:
    """Says that nothing is left, why, and what would change that."""
    terminal.say("nothing is left to launch", *terminal.table(explain.dead_end_rows(refused)))
    return ExitCode.NO_PLAN


def _say(rows: Sequence[explain.Row]) -> None:
    terminal.say(*terminal.table(rows, indent=0))
