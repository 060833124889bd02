"""The plan before anything is launched: told, refused, or printed in full."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..catalogue.entry import KnownFailure, constraints_of
from ..catalogue.reader import concerns
from ..core.constraint import Constraint
from ..core.errors import ExitCode
from ..core.hardware import Hardware
from ..core.plain_json import plain
from ..core.request import Fix, LaunchRequest
from ..core.workload import Workload
from ..nodes.messages import RunEnded
from ..planning.estimates.model_sizes import job_of
from ..planning.plan import NoPlan, Plan
from ..planning.planner import planned
from ..planning.search import as_asked
from ..report import explain, plan_table, pod_status
from ..system import terminal
from .suspect_lines import Suspicion, suspicions

NOTHING_LEFT = "nothing is left to launch"
STRICT = "--strict allows no change"
NEEDED = ("change", "doubt", "suggest", "note", "may end", "do")
"""Labels of the rows that are told in any case."""


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
    entries: Sequence[KnownFailure],
) -> Plan | RunEnded:
    """The plan before anything was tried, told to the user; or why nothing may be launched.

    Args:
        request: what the user asked the launcher for.
        workload: what is known of the training.
        hardware: what it runs on.
        known: what is forbidden.
        entries: the known failures that concern the installed versions.
    """
    plan = planned(request, workload, hardware, known)
    if isinstance(plan, NoPlan):
        return RunEnded(dead_end(plan), NOTHING_LEFT, pod_status.dead_end_line(plan))
    if request.limits.fix is Fix.SUGGEST:
        asked = as_asked(request, workload, hardware)
        feared = suspicion_rows(suspicions(asked, entries))
        _tell([*explain.plan_rows(asked), *explain.suggestion_rows(plan), *feared])
        return asked
    _tell([*explain.plan_rows(plan), *suspicion_rows(suspicions(plan, entries))])
    refused = _refused(request, plan)
    return RunEnded(refused, STRICT) if refused else plan


def show_plan(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    catalogue: Sequence[KnownFailure],
    as_json: bool,
) -> int:
    """Tells the plan in full and launches nothing."""
    plan = planned(request, workload, hardware, known_constraints(workload, catalogue))
    entries = [entry for entry in catalogue if concerns(entry, workload.versions)]
    feared = suspicions(plan, entries) if isinstance(plan, Plan) else ()
    if as_json:
        document = plan_table.document(request, workload, hardware, plan)
        document["suspicions"] = [{"failure": one.entry.id, "line": one.spot} for one in feared]
        terminal.show(json.dumps(document, default=plain, indent=1))
    else:
        terminal.show("\n".join(_text(plan, workload, feared)))
    if isinstance(plan, NoPlan):
        return ExitCode.NO_PLAN
    return _refused(request, plan)


def _text(plan: Plan | NoPlan, workload: Workload, feared: Sequence[Suspicion]) -> list[str]:
    """What is known, the candidates, and the plan; or why there is none."""
    known = terminal.table(_what_is_known(workload), indent=0)
    if isinstance(plan, NoPlan):
        why = terminal.table(explain.dead_end_rows(plan))
        return [*known, *plan_table.table(plan.rejected, None), NOTHING_LEFT, *why]
    table = plan_table.table(plan.considered, plan.chosen)
    head = "candidates: GiB a rank by component, at most, time of a step against the chosen"
    candidates = [] if plan.chosen.estimate is None else [head, *table]
    rows = [*explain.plan_rows(plan), *suspicion_rows(feared)]
    return [*known, *candidates, *terminal.table(rows, indent=0)]


def _refused(request: LaunchRequest, plan: Plan) -> ExitCode:
    """What `--strict` says to a plan."""
    if request.limits.strict and plan.changes:
        terminal.say(f"not launched: {STRICT}")
        return ExitCode.NO_PLAN
    return ExitCode.SUCCESS


def _what_is_known(workload: Workload) -> list[explain.Row]:
    job = job_of(workload)
    model = plan_table.model_text(workload, None if job is None else job.trained)
    return [("model", model), *plan_table.known_rows(workload)]


def suspicion_rows(feared: Sequence[Suspicion]) -> list[explain.Row]:
    """Each line that is feared with the failure it may lead to; once for each, what to do."""
    rows: list[explain.Row] = []
    for entry in dict.fromkeys(one.entry.id for one in feared):
        own = [one for one in feared if one.entry.id == entry]
        rows += [("note", explain.spot_text(one.spot)) for one in own]
        known = own[0].entry
        rows.append(("may end", f"{known.title}\nsafe-launch explain {known.id}"))
        rows.append(("do", explain.first_paragraph(known.sections["What to do"])))
    return rows


def dead_end(refused: NoPlan) -> ExitCode:
    """Says that nothing is left, why, and what would change that."""
    terminal.say(NOTHING_LEFT, *terminal.table(explain.dead_end_rows(refused)))
    return ExitCode.NO_PLAN


def _tell(rows: Sequence[explain.Row]) -> None:
    """All rows; to whom wants quiet, those that aren't as the user has asked for."""
    told = [row for row in rows if not terminal.is_quiet() or row[0] in NEEDED]
    terminal.say(*terminal.table(told, indent=0))
