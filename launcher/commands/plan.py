"""`safe-launch plan`: the plan in full; nothing is launched."""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Sequence
from dataclasses import replace

from ..catalogue.entry import known_constraints
from ..catalogue.reader import Catalogue
from ..core.errors import ExitCode
from ..core.plain_json import plain
from ..core.script import Ending, ScriptAnswers
from ..core.settings import Fact
from ..core.workload import Origin, Workload
from ..diagnosis.observed import with_model
from ..options.parser import declare
from ..planning.estimates.model_sizes import model_sizes_of
from ..planning.plan import NoPlan, Plan
from ..planning.planner import planned, refused_by_strict
from ..report import explain_answers, explain_plan, plan_table
from ..session.launch_warnings import SuspectLine, fault_warnings, suspect_lines
from ..session.lessons import earlier_runs
from ..system import terminal
from ..system.terminal import Row
from . import training

__all__ = ["declare", "run"]


def run(options: argparse.Namespace) -> int:
    """Prints the plan; returns the exit code.

    Raises:
        LaunchError: no plan is possible.
    """
    return training.run(options, _plan, is_launch=False)


def _plan(options: argparse.Namespace) -> int:
    """Plans for this host; with `--ask`, from the script's own statements."""
    gc.disable()  # the process ends soon, and collecting would take an eighth of its time
    described = training.training_of(options, is_launch=False)
    request, hardware = described.request, described.hardware
    workload = described.workload(request)
    answers = None
    if options.ask is True:
        from ..machine import detect
        from ..session import asking

        here = hardware if options.hardware is None else detect.detect()
        answers = asking.ask(request, hardware, here)
    if answers is not None and answers.ending is Ending.FAILED:
        place = "" if answers.where else f"{answers.script}: "
        terminal.say(f"error: {place}{answers.why}")
        terminal.verbatim(answers.output)
    catalogue = Catalogue(described.site_entries, workload.versions)
    start = earlier_runs.Learnt(workload)
    if not request.limits.forget:
        start = earlier_runs.learnt(request, workload, hardware, catalogue, os.environ)
    known = (*known_constraints(catalogue.on_plans), *start.constraints)
    workload, has_learnt = _informed(start.workload, answers), start.has_failed
    plan = planned(request, workload, hardware, known, has_failed=has_learnt)
    suspects = suspect_lines(plan, catalogue.on_plans) if isinstance(plan, Plan) else ()
    warnings = fault_warnings(plan, catalogue.on_plans) if isinstance(plan, Plan) else ()
    terminal.say(*start.notes, *start.sentences(catalogue), *warnings)
    if options.json:
        document = plan_table.document(request, workload, hardware, plan)
        document["suspicions"] = [
            {"failure": suspect.entry.id, "line": suspect.spot} for suspect in suspects
        ]
        if answers is not None:
            document["asked"] = answers.document()
        terminal.show(json.dumps(document, default=plain, indent=1))
    else:
        terminal.show("\n".join(_text(plan, workload, suspects, answers)))
    if isinstance(plan, NoPlan):
        return ExitCode.NO_PLAN
    refused = refused_by_strict(request, plan)
    if refused is not None:
        terminal.say(f"not launched: {refused.sentence}")
        return ExitCode.NO_PLAN
    return 1 if answers is not None and answers.ending is Ending.FAILED else ExitCode.SUCCESS


def _informed(workload: Workload, answers: ScriptAnswers | None) -> Workload:
    """The workload with the script's answers."""
    if answers is None:
        return workload
    limit = workload.value(Fact.SEQUENCE_LENGTH) if workload.is_length_stated else 0
    informed = workload.informed(
        (name, known)
        for name, known in answers.statements
        # Some samples are shorter than a maximum that is stated.
        if not (name is Fact.SEQUENCE_LENGTH and int(known.value) <= int(limit or 0))
    )
    informed = replace(informed, framework=answers.framework or informed.framework)
    source = f"asked {answers.script}"
    return with_model(informed, answers.shape or {}, source, Origin.OBSERVED)


def _with_answers(rows: list[Row], answers: ScriptAnswers | None) -> list[Row]:
    """The rows of a plan with how the script was asked: first, if that is incomplete."""
    if answers is None:
        return rows
    answer_rows = explain_answers.rows(answers)
    if answers.ending is not Ending.WHOLE:
        return [*answer_rows, *rows]
    return [*rows[:1], *answer_rows, *(row for row in rows[1:] if row[0] != "open")]


def _text(
    plan: Plan | NoPlan,
    workload: Workload,
    suspects: Sequence[SuspectLine],
    answers: ScriptAnswers | None,
) -> list[str]:
    """The plan, or why there is none; with `--verbose`, also the known values and candidates."""
    whole = terminal.is_verbose()
    job = model_sizes_of(workload)
    model = ("model", plan_table.model_text(workload, None if job is None else job.trained))
    if isinstance(plan, NoPlan):
        rows = _with_answers([*explain_plan.dead_end_rows(plan), model], answers)
        lines = [explain_plan.NOTHING_LEFT, *terminal.table(rows, indent=0)]
        table = plan_table.table(plan.rejected, None)
    else:
        rows = explain_plan.plan_rows(plan, whole=whole)
        if suspects:
            from ..session.console import suspect_rows  # which imports all of the session

            rows += suspect_rows(suspects, workload)
        rows.append(model)
        lines = terminal.table(_with_answers(rows, answers), indent=0)
        table = plan_table.table(plan.considered, plan.chosen) if plan.chosen.estimate else []
    if not whole:
        more = "-v before the script: the known values, their sources, the candidates"
        return [*lines, *terminal.table([("more", more)], indent=0)]
    head = "candidates: GiB a rank by component, at most, time of a step against the chosen"
    known = terminal.table(plan_table.known_rows(workload), indent=0)
    return [*lines, *([head, *table] if table else []), *known]
