"""Plans, changes and dead ends in plain words: values in, rows of text out."""

from __future__ import annotations

from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.row import Row
from ..evidence.failure_record import FailureRecord
from ..planning.budget import capacity, gib
from ..planning.estimates.ranks import ranks_of
from ..planning.plan import Change, Doubt, NoPlan, Plan
from ..planning.search import contradiction
from .costs import cost_text
from .plan_table import memory_text


def plan_rows(plan: Plan) -> list[Row]:
    """What will be launched, and every change from what was asked for."""
    request, hardware = plan.request, plan.hardware
    ranks = ranks_of(request, hardware)
    rows = [*where_rows(request, hardware), ("preset", preset_text(plan))]
    if plan.chosen.estimate is not None:
        rows.append(("memory", memory_text(plan.chosen.estimate, hardware, ranks)))
    rows += [("change", change_text(change)) for change in plan.changes]
    rows += [("propose", text) for text in plan.proposals]
    if plan.doubt is not None:
        rows.append(("doubt", doubt_text(plan, plan.doubt)))
    if plan.changes and plan.chosen.is_tight:
        rows.append(("note", "tight: the expected memory fits, but without the safety margin"))
    rows += [("note", note) for note in (*plan.workload.notes, *hardware.notes)]
    return rows


def doubt_text(plan: Plan, doubt: Doubt) -> str:
    """What isn't done because of memory, and which facts are missing for it."""
    usable = gib(capacity(plan.hardware, ranks_of(plan.request, plan.hardware)))
    changes = ", ".join(
        f"{change.setting.value} {change.old} -> {change.new}" for change in doubt.withheld
    )
    would = f"; {changes} would make it fit" if changes else ""
    return (
        f"it may not fit into {usable} GiB{would}. Launched as asked, since that hangs on what is "
        f"only assumed: {', '.join(doubt.missing)}. The workers will tell before the first step"
    )


def where_rows(request: LaunchRequest, hardware: Hardware) -> list[Row]:
    """What is run, and on which hardware."""
    device = hardware.accelerator
    size = f", {gib(device.memory)} GiB each" if device.memory else ""
    source = "" if hardware.source == "detected" else f"{hardware.source}; "
    host = f"{hardware.cores} cores, {gib(hardware.host_memory)} GiB of host memory"
    how = f"{source}{request.nproc_source}; {host}"
    option = request.worker_options.local_rank_option
    local = f"{option}=N before its arguments, as it declares that option (off: --no_local_rank)"
    return [
        ("run", request.command),
        *([("gets", local)] if option else []),
        (
            "on",
            f"{_count_text(request)} x {device.name}{size} ({how})",
        ),
        *request.placement.sources,
    ]


def _count_text(request: LaunchRequest) -> str:
    """The number of workers on each node."""
    nodes = request.nodes
    if request.placement.beside > 1 or len(nodes) == 1:
        return str(request.world)
    if len(set(nodes)) == 1:
        return f"{len(nodes)} nodes x {nodes[0]}"
    return " + ".join(str(workers) for workers in nodes)


def preset_text(plan: Plan) -> str:
    """The preset with its global batch; unknown settings are left to the script."""
    text = str(plan.preset)
    if not text:
        return "as the script has it: its arguments name no setting"
    if plan.preset.micro_batch and plan.preset.accumulation:
        whole = plan.preset.micro_batch * plan.preset.accumulation * plan.request.world
        text += f"; global batch {whole}"
    return text


def change_text(change: Change) -> str:
    """A change: old -> new, who asked for the old value, the cause, where to read more."""
    cause = change.constraint.cause
    if change.old is None:
        text = f"{change.setting.value}: {change.new} (not set by the script)\n{cause.summary}"
    else:
        text = (
            f"{change.setting.value}: {change.old} -> {change.new} "
            f"(asked for by {change.source})\n{cause.summary}"
        )
    return f"{text}\n{cause.reference}" if cause.reference else text


def suggestion_rows(plan: Plan) -> list[Row]:
    """The changes that would be made, where none may be."""
    return [("suggest", change_text(change)) for change in plan.changes]


def correction_rows(plan: Plan, before: Plan, record: FailureRecord) -> list[Row]:
    """How the next attempt differs from the failed attempt, and what that costs."""
    rows = []
    for setting, new in plan.preset.settings().items():
        old = {**plan.workload.asked, **before.overrides}.get(setting)
        if old == new:
            continue
        reason = next(
            (change.constraint for change in plan.changes if change.setting is setting), None
        )
        text = f"{setting.value}: {old} -> {new}"
        if reason is not None and reason.cause.reference:
            text += f"\n{reason.cause.reference}"
        rows.append(("change", text))
        rows.append(("costs", cost_text(setting, old, new, record, plan.request.world)))
    return rows


def dead_end_rows(refused: NoPlan) -> list[Row]:
    """Why there is no plan: the smallest set of constraints that contradict each other."""
    rows = where_rows(refused.request, refused.hardware)
    count = len(refused.rejected)
    rows.append(("tried", f"{count} presets; none is known to work. Ruled out by:"))
    for constraint in contradiction(refused):
        terms = ", ".join(str(term) for term in constraint.terms)
        text = f"{terms}: {constraint.cause.summary}\n{constraint.cause.reference}"
        rows.append(("because", text.rstrip()))
    rows += [("would do", text) for text in refused.remedies]
    return rows
