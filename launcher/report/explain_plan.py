"""Plans, changes and dead ends in plain words: values in, rows of text out."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ..core.choices import Engine, Framework
from ..core.constraint import CauseKind
from ..core.hardware import Hardware
from ..core.preset import Preset, preset_of
from ..core.quantities import count_of
from ..core.request import LaunchRequest
from ..core.settings import BATCH, OF_DDP, Fact, Setting, Value
from ..core.workload import Origin
from ..evidence.failure_record import FailureRecord
from ..planning.budget import capacity, gib
from ..planning.estimates.estimate import ranks_of
from ..planning.plan import Change, Doubt, NoPlan, Plan
from ..planning.proven import MEASURED, PAGE, proof_of, shipped_sweeps
from ..planning.search import contradiction
from ..system import terminal
from ..system.terminal import Row
from .plan_table import components_text

DECIDED_BY_SCRIPTS = {*BATCH, *OF_DDP}
"""Settings that scripts often compute: shown only if known for certain."""
REPORTED_BY_TRAINERS = (*BATCH, Setting.GRADIENT_CHECKPOINTING, Setting.PRECISION)
"""Settings that a Trainer always has, so that its workers report them."""
NOTHING_LEFT = "nothing is left to launch"
KEEP = "--fix suggest launches the requested settings, even if they are known to fail"


def plan_rows(plan: Plan, *, whole: bool = False) -> list[Row]:
    """The plan: settings, changes to the request, and whether memory suffices."""
    rows = [("plan", verdict_text(plan))]
    rows += [("change", change_text(plan, change, whole=whole)) for change in plan.changes]
    if plan.chosen.estimate is not None:
        rows.append(("memory", memory_text(plan)))
    rows.append(("proof", proof_text(plan)))
    if plan.doubt is not None:
        rows.append(("doubt", doubt_text(plan, plan.doubt)))
    rows.append(("open", open_text(plan)))
    rows += [("propose", text) for text in plan.proposals]
    if any(change.constraint.cause.kind is not CauseKind.REQUEST for change in plan.changes):
        rows.append(("keep", KEEP))
    rows.append(("preset", preset_text(plan)))
    if whole and plan.workload.not_understood:
        rows.append(("note", f"not understood: {', '.join(plan.workload.not_understood)}"))
    rows += [("note", note) for note in (*plan.workload.unmodelled, *_notes(plan))]
    rows += plan.request.placement.sources
    if whole:
        rows += [("command", plan.request.command), on_row(plan.request, plan.hardware)]
        if plan.chosen.estimate is not None:
            rows.append(("largest", components_text(plan.chosen.estimate)))
    return list(dict.fromkeys(row for row in rows if row[1]))


def launch_rows(plan: Plan) -> list[Row]:
    """The rows of `plan_rows` that a launch prints: of a healthy one as asked, a single line.

    That line has the global batch; notes stay.
    """
    if not _is_unchanged(plan):
        return plan_rows(plan)
    placed = (row for row in plan.request.placement.sources if row[0] == "note")
    notes = (("note", note) for note in _notes(plan))
    text = verdict_text(plan) + _batch_text(plan)
    return list(dict.fromkeys([("plan", text), *notes, *placed]))


def _is_unchanged(plan: Plan) -> bool:
    """Whether nothing is changed, in doubt or proposed, and the memory suffices."""
    estimate = plan.chosen.estimate
    usable = capacity(plan.hardware, ranks_of(plan.request, plan.hardware))
    fits = estimate is None or estimate.bound <= usable
    return fits and not (plan.changes or plan.doubt or plan.proposals)


def _notes(plan: Plan) -> tuple[str, ...]:
    """Notes on settings and devices."""
    return *plan.workload.notes, *plan.hardware.notes


def verdict_text(plan: Plan) -> str:
    """Whether anything is changed, and the devices."""
    count = len(plan.changes)
    changed = count_of(count, "change") if count else "as asked: nothing is changed"
    return f"{changed}; on {_count_text(plan.request)} x {plan.hardware.accelerator.name}"


def preset_text(plan: Plan) -> str:
    """The preset with its global batch; unknown settings are left to the script, maybe all."""
    engine = plan.workload.engine
    hidden = () if engine in (None, Engine.DDP) else OF_DDP
    shown = {
        setting: value
        for setting, value in plan.preset.settings().items()
        if setting not in hidden and (setting not in DECIDED_BY_SCRIPTS or _is_known(plan, setting))
    }
    text = str(preset_of(shown))
    if engine is Engine.FSDP:
        version = plan.workload.value(Fact.FSDP_VERSION) or ""
        text = ", ".join(filter(None, (f"FSDP{version}", text)))
    return text + _batch_text(plan)


def open_text(plan: Plan) -> str:
    """The settings that the script decides itself, which its workers are asked for."""
    workload, request = plan.workload, plan.request
    names = [setting for setting in REPORTED_BY_TRAINERS if setting not in workload.known]
    if workload.framework is not Framework.TRANSFORMERS or not (names and request.limits.asks):
        return ""
    return f"{', '.join(names)}: {Path(request.script).name} decides, asked at launch"


def _is_known(plan: Plan, setting: Setting) -> bool:
    """Whether a setting is known by more than an assumption."""
    known = plan.workload.known.get(setting)
    if setting in plan.overrides or setting in plan.workload.wanted:
        return True
    return known is not None and known.origin is not Origin.DEFAULT


def _batch_text(plan: Plan) -> str:
    """The samples of an optimizer step of all workers, never broken; empty if not known."""
    micro, steps = plan.preset.micro_batch, plan.preset.accumulation
    if plan.workload.makes_batches:
        return ""
    if not (micro and steps and all(_is_known(plan, setting) for setting in BATCH)):
        return ""
    text = f"global batch {micro * steps * plan.request.world}"
    return f"; {text.replace(' ', terminal.UNBROKEN)}"


def memory_text(plan: Plan) -> str:
    """Whether the chosen preset fits: the memory that it needs, and the memory available."""
    estimate, chosen = plan.chosen.estimate, plan.chosen
    assert estimate is not None, "only a known model has an estimate"
    usable = capacity(plan.hardware, ranks_of(plan.request, plan.hardware))
    is_measured = bool(plan.workload.measured or plan.workload.trained)
    on_cpu = plan.hardware.accelerator.kind == "cpu"
    most = "at most" if is_measured or not on_cpu else "at most, besides the script's imports"
    fits = "fits" if estimate.bound <= usable else "tight" if chosen.is_tight else "may not fit"
    text = (
        f"{fits}: {gib(estimate.expected)} GiB a rank expected, {gib(estimate.bound)} {most}; "
        f"{gib(usable)} usable"
    )
    return f"{text}; host memory {gib(estimate.host)} GiB a node" if estimate.host else text


def doubt_text(plan: Plan, doubt: Doubt) -> str:
    """Changes withheld for lack of facts about memory, and the missing facts."""
    usable = gib(capacity(plan.hardware, ranks_of(plan.request, plan.hardware)))
    changes = ", ".join(
        f"{change.setting.value} {change.old} -> {change.new}" for change in doubt.withheld
    )
    would = f"; {changes} would make it fit" if changes else ""
    if doubt.unproven:
        return (
            f"it may not fit into {usable} GiB{would}. Launched as asked, since nothing shows yet "
            f"that {doubt.unproven} trains the same so ({PAGE})"
        )
    return (
        f"it may not fit into {usable} GiB{would}. Launched as asked, because this depends on "
        f"assumed values: {', '.join(doubt.missing)}. The workers report them before the first step"
    )


def proof_text(plan: Plan) -> str:
    """The evidence for a plan's changes if the installed version wasn't measured itself."""
    settings, requested = plan.preset.settings(), plan.workload.requested
    if not any(settings.get(name) != requested.get(name) for name in MEASURED):
        return ""
    proof = proof_of(settings, plan.workload, shipped_sweeps())
    if proof is None or proof.is_exact:
        return ""
    version = f"{proof.library} {proof.installed}"
    if proof.verdict is None:
        return f"nothing shows yet that {version} trains the same with these changes ({PAGE})"
    return f"{version} wasn't measured: judged by {' and '.join(proof.measured)} ({PAGE})"


def on_row(request: LaunchRequest, hardware: Hardware) -> Row:
    """The row on the hardware."""
    device = hardware.accelerator
    size = f", {gib(device.memory)} GiB each" if device.memory else ""
    source = "" if hardware.source == "detected" else f"{hardware.source}; "
    host = f"{count_of(hardware.cores, 'core')}, {gib(hardware.host_memory)} GiB of host memory"
    how = f"{source}{request.nproc_source}; {host}"
    return "on", f"{_count_text(request)} x {device.name}{size} ({how})"


def _count_text(request: LaunchRequest) -> str:
    """The number of workers on each node."""
    nodes = request.nodes
    if request.placement.beside > 1 or len(nodes) == 1:
        return str(request.world)
    if len(set(nodes)) == 1:
        return f"{count_of(len(nodes), 'node')} x {nodes[0]}"
    return " + ".join(str(workers) for workers in nodes)


def change_text(plan: Plan, change: Change, *, whole: bool = False) -> str:
    """A change: old -> new, where the old value was read, the cause."""
    if change.old is None:
        text = f"{change.setting.value}: {change.new} (not set by the script)"
    else:
        text = f"{change.setting.value}: {change.old} -> {change.new} (from {change.source})"
    cause = change.constraint.cause
    text = f"{text}: {why_text(plan, change)}"
    return f"{text}\n{cause.reference}" if whole and cause.reference else text


def why_text(plan: Plan, change: Change) -> str:
    """The cause of a change; if it is another setting's, the name of that setting."""
    changed = {other.setting for other in plan.changes} - {change.setting}
    cause = change.constraint.cause
    point = plan.workload.facts
    point.update(plan.preset.settings().items())
    if change.old is not None:
        point[change.setting] = change.old
    if change.constraint.forbids(point) or not changed:
        kept = "if kept, it " if cause.kind is CauseKind.MEMORY else ""
        known = f" [{cause.name}]" if cause.kind is CauseKind.KNOWN_FAILURE else ""
        return f"{kept}{cause.summary}{known}"
    return f"goes with {', '.join(sorted(setting.value for setting in changed))}"


def suggestion_rows(plan: Plan) -> list[Row]:
    """The changes that would be made, if none may be."""
    return [("suggest", change_text(plan, change)) for change in plan.changes]


def correction_rows(
    plan: Plan,
    before: Plan,
    record: FailureRecord,
    told: Collection[str] = (),
    *,
    whole: bool = False,
) -> list[Row]:
    """Differences between the next and the failed attempt.

    Causes in `told` were just printed. With `whole`, the rows include each change's cost.
    """
    rows = []
    changes = {change.setting: change for change in plan.changes}
    for setting, new in plan.preset.settings().items():
        old = {**plan.workload.requested, **before.overrides}.get(setting)
        if old == new:
            continue
        text, change = f"{setting.value}: {old} -> {new}", changes.get(setting)
        if change is not None and change.old == old:
            text += f" (from {change.source})"
        if change is not None and change.constraint.cause.name not in told:
            text += f": {why_text(plan, change)}"
        rows.append(("change", text))
        if whole:
            rows.append(("costs", cost_text(setting, old, new, record, plan.request.world)))
    return rows


def cost_text(
    setting: Setting, old: Value | None, new: Value, record: FailureRecord, world: int
) -> str:
    """The cost of a change, with the model's numbers if they are known."""
    cost = setting.row.cost
    return cost if isinstance(cost, str) else cost(old, new, record.model, world)


def dead_end_rows(refused: NoPlan) -> list[Row]:
    """Why there is no plan: the smallest set of constraints that contradict each other."""
    count = len(refused.rejected)
    tried = f"{count_of(count, 'preset')}; none is known to work. Ruled out by:"
    rows = [("tried", tried if count else "none: each would change a setting that must not change")]
    for constraint in contradiction(refused):
        terms = ", ".join(str(term) for term in constraint.terms)
        text = f"{terms}: {constraint.cause.summary}\n{constraint.cause.reference}"
        rows.append(("because", text.rstrip()))
    rows += [("alternatives", text) for text in refused.remedies]
    rows += [("kept", barred_text(refused, refused.barred))] if refused.barred else []
    return [*rows, on_row(refused.request, refused.hardware), *refused.request.placement.sources]


def barred_text(refused: NoPlan, preset: Preset) -> str:
    """The changes that a `never-change` setting forbids, and where it is stated."""
    requested = refused.workload.requested
    new = {name: value for name, value in preset.settings().items() if requested.get(name) != value}
    changes = ", ".join(f"{name}: {requested.get(name)} -> {value}" for name, value in new.items())
    never = [(name, source) for name, source in refused.request.limits.never_changed if name in new]
    why = "; ".join(f"{name} is never changed ({source})" for name, source in never)
    return f"{changes} would work, but {why}"
