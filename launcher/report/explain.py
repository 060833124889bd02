"""Plans, failures and dead ends in plain words: values in, rows of text out."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..catalogue.entry import Diagnosis, Finding, Kind, KnownFailure
from ..core.hardware import Hardware
from ..core.preset import describe
from ..core.request import LaunchRequest
from ..core.settings import Checkpointing, Offload, Setting, Value
from ..core.source_location import Spot
from ..core.units import GIB
from ..diagnosis.allocator_message import allocation_of
from ..diagnosis.attempt import Failed, Interrupted, Outcome, Succeeded, Superseded
from ..evidence.exit_reason import death_text
from ..evidence.failure_record import FailureRecord, Frame
from ..planning.budget import capacity, gib
from ..planning.estimates.ranks import ranks_of
from ..planning.plan import Change, NoPlan, Plan
from ..planning.search import contradiction
from .plan_table import memory_text

Row = tuple[str, str]


def plan_rows(plan: Plan) -> list[Row]:
    """What is going to be launched, and every change against what was asked."""
    request, hardware = plan.request, plan.hardware
    ranks = ranks_of(request, hardware)
    rows = [*where_rows(request, hardware), ("preset", preset_text(plan))]
    if plan.chosen.estimate is not None:
        rows.append(("memory", memory_text(plan.chosen.estimate, hardware, ranks)))
    rows += [("change", change_text(change)) for change in plan.changes]
    rows += [("propose", text) for text in plan.proposals]
    if plan.doubts:
        rows.append(("doubt", doubt_text(plan)))
    if plan.changes and plan.chosen.is_tight:
        rows.append(("note", "it is tight: what is expected fits, a safe margin does not"))
    rows += [("note", note) for note in (*plan.workload.notes, *hardware.notes)]
    return rows


def doubt_text(plan: Plan) -> str:
    """That a training is launched though it isn't expected to fit, and what that hangs on."""
    usable = gib(capacity(plan.hardware, ranks_of(plan.request, plan.hardware)))
    hangs = f"it may not fit: {usable} GiB are usable. But that hangs on {', '.join(plan.doubts)}"
    return f"{hangs}. It is launched; what the workers show before the first step decides"


def where_rows(request: LaunchRequest, hardware: Hardware) -> list[Row]:
    """What is run, and on what."""
    device = hardware.accelerator
    size = f", {gib(device.memory)} GiB each" if device.memory else ""
    source = "" if hardware.source == "detected" else f"{hardware.source}; "
    host = f"{hardware.cores} cores, {gib(hardware.host_memory)} GiB of host memory"
    how = f"{source}{request.nproc_source}; {host}"
    option = request.worker_options.local_rank_option
    local = f"{option}=N before its arguments: it declares that (not so with --no_local_rank)"
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
    """The workers, node by node."""
    nodes = request.nodes
    if request.placement.beside > 1 or len(nodes) == 1:
        return str(request.world)
    if len(set(nodes)) == 1:
        return f"{len(nodes)} nodes x {nodes[0]}"
    return " + ".join(str(workers) for workers in nodes)


def preset_text(plan: Plan) -> str:
    """The preset with its global batch; what isn't known is the script's own."""
    text = str(plan.preset)
    if not text:
        return "as the script has it: its arguments name no setting"
    if plan.preset.micro_batch and plan.preset.accumulation:
        whole = plan.preset.micro_batch * plan.preset.accumulation * plan.request.world
        text += f"; global batch {whole}"
    return text


def change_text(change: Change) -> str:
    """One change: old -> new, who asked for the old, why not, where to read on."""
    cause = change.constraint.cause
    if change.old is None:
        text = f"{change.setting.value}: {change.new} (the script says nothing)\n{cause.summary}"
    else:
        text = (
            f"{change.setting.value}: {change.old} -> {change.new} "
            f"(asked for by {change.source})\n{cause.summary}"
        )
    return f"{text}\n{cause.reference}" if cause.reference else text


def suggestion_rows(plan: Plan) -> list[Row]:
    """What would be changed, where nothing may be."""
    return [("suggest", change_text(change)) for change in plan.changes]


def failure_rows(
    finding: Finding, attempt: int, spots: Sequence[Spot], overrides: Mapping[Setting, Value]
) -> list[Row]:
    """A known failure: what, where, why, and where to read on."""
    record, entry = finding.record, finding.entry
    assert entry is not None, "an unexplained failure has no rows"
    died = death_text(record)
    rows = [("what", died if died == record.message else f"{died}: {entry.title}")]
    rows += [("where", text) for text in where_texts(record, spots)]
    rows.append(("why", first_paragraph(entry.sections["What happens"])))
    if record.model:
        rows.append(("model", model_text(record)))
    if entry.kind is Kind.MEMORY:
        rows += [("memory", text) for text in allocation_texts(record)]
    elif entry.kind is not Kind.PRESET or spots:
        rows.append(("do", first_paragraph(entry.sections["What to do"])))
    for setting, value in overrides.items():
        if (in_force := record.observed.get(setting.value, value)) != value:
            wanted = f"{describe(setting, value)} was asked of attempt {attempt + 1}"
            rows.append(("note", f"{wanted}, yet {in_force} was in force"))
    rows.append(("more", f"safe-launch explain {entry.id}"))
    return rows


def allocation_texts(record: FailureRecord) -> list[str]:
    """What was asked for, what was held and what there was, as far as the failure tells."""
    seen = allocation_of(record)
    held = seen.process if seen.process is not None else seen.allocated
    parts = [
        f"{word} {gib(size)} GiB"
        for word, size in (
            ("asked for", seen.asked),
            ("held", held),
            ("free", seen.free),
            ("of at most", seen.capacity),
        )
        if size is not None
    ]
    return [", ".join(parts)] if parts else []


def suspect_row(changed: Mapping[Setting, tuple[Value | None, Value]], first: int) -> Row:
    """That a failure may be our own doing.

    Args:
        changed: old and new value of what was corrected.
        first: the attempt that was corrected, 0 for the first.
    """
    what = ", ".join(f"{setting.value} {old} -> {new}" for setting, (old, new) in changed.items())
    text = f"our own correction of attempt {first + 1} ({what}): this failure came with it"
    return "suspect", f"{text}, at no later step. The next remedy is tried without it"


def correction_rows(plan: Plan, before: Plan, record: FailureRecord) -> list[Row]:
    """How the next attempt differs from the one that failed, and what that costs."""
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


def cost_text(
    setting: Setting, old: Value | None, new: Value, record: FailureRecord, world: int
) -> str:
    """What a change costs, with the model's own numbers where they are known."""
    match setting:
        case Setting.ZERO_STAGE:
            return _stage_cost(int(old or 0), int(new), record, world)
        case Setting.GRADIENT_CHECKPOINTING if new == Checkpointing.OFF:
            return "every layer's activations stay in memory; the recomputation is saved"
        case Setting.GRADIENT_CHECKPOINTING if old == Checkpointing.OFF:
            return "every block is computed once more in the backward pass; saves activation memory"
        case Setting.GRADIENT_CHECKPOINTING:
            return "nothing to speak of: the same blocks are recomputed, the same numbers result"
        case Setting.STATIC_GRAPH:
            return "the same parameters must take part in every step, as static_graph promises"
        case Setting.FIND_UNUSED_PARAMETERS:
            return (
                "DDP walks the graph in every step to find unused parameters"
                if new
                else "nothing; but a trainable parameter outside the loss would now be an error"
            )
        case Setting.OFFLOAD if new == Offload.NONE:
            return "nothing but device memory: traffic to the host is saved"
        case Setting.OFFLOAD:
            return "the processors step the optimizer; gradients and weights cross to the host"
        case Setting.MICRO_BATCH | Setting.ACCUMULATION:
            return "the global batch stays; more and smaller passes make a step slower"
        case _:
            return "see the documentation"


def _stage_cost(old: int, new: int, record: FailureRecord, world: int) -> str:
    """Memory that a lower ZeRO stage takes per rank (Rajbhandari et al., arXiv 1910.02054).

    Stage 3 partitions the parameters, stage 2 the gradients, stage 1 the optimizer's state: 2, 2
    and 12 bytes a parameter in mixed precision with Adam.
    """
    if new > old:
        return "more communication: what is partitioned must be gathered before its use"
    trained = int(record.model.get("trainable_parameters", 0))
    total = trained + int(record.model.get("frozen_parameters", 0))
    parts = {
        3: ("parameters", 2, total),
        2: ("gradients", 2, trained),
        1: ("optimizer's state", 12, trained),
    }
    lost = [parts[stage] for stage in range(old, new, -1)]
    names = " and ".join(name for name, _, _ in lost)
    text = f"every rank now holds the {names} whole instead of one part in {world}"
    gib = sum(size * count for _, size, count in lost) * (1 - 1 / world) / GIB
    return f"{text}: about {gib:.2g} GiB more a rank in 16 bit" if total else text


def where_texts(record: FailureRecord, spots: Sequence[Spot]) -> list[str]:
    """The user's own lines that the failure is about, then the parameters."""
    texts = [spot_text(spot) for spot in spots]
    frame = user_frame(record)
    if frame is not None and not spots:
        texts.append(f"{short(frame.file)}:{frame.line} in {frame.function}: {frame.source}")
    if record.parameters:
        noun = "parameter" if len(record.parameters) == 1 else "parameters"
        texts.append(f"{noun} {', '.join(record.parameters)}")
    return texts


def spot_text(spot: Spot) -> str:
    """A line of the user's, and below it the line as it should be."""
    text = f"{short(spot.file)}:{spot.line}: {spot.text}"
    return f"{text}\n-> {spot.change}" if spot.change else text


def user_frame(record: FailureRecord) -> Frame | None:
    """The innermost frame in a file of the user's."""
    return next(
        (frame for frame in reversed(record.frames) if frame.file in record.user_files), None
    )


def short(path: str) -> str:
    """A path relative to the working directory where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


def model_text(record: FailureRecord) -> str:
    """The model in a line: class, parameters, adapters."""
    trained = int(record.model.get("trainable_parameters", 0))
    frozen = int(record.model.get("frozen_parameters", 0))
    peft = ", wrapped by peft" if record.model.get("peft") else ""
    return f"{record.model.get('class')}: {trained:,} parameters trained, {frozen:,} frozen{peft}"


def first_paragraph(prose: str) -> str:
    """The first paragraph as one line."""
    return " ".join(prose.partition("\n\n")[0].split())


def unexplained_rows(diagnosis: Diagnosis, log: Path, *, is_suspect: bool = False) -> list[Row]:
    """A failure that no entry explains: who began, who followed, where the log is."""
    record = diagnosis.root.record
    end = "" if is_suspect else ", so nothing is changed"
    rows = [("what", f"{death_text(record)}; nothing known explains it{end}")]
    rows += [("where", text) for text in where_texts(record, ())]
    others = [finding.record for finding in diagnosis.findings[1:]]
    if others:
        later = [
            f"{'a node' if other.rank is None else f'rank {other.rank}'} "
            f"({(other.at - record.at) * 1000:.0f} ms later)"
            for other in others[:8]
        ]
        rows.append(("then", f"{', '.join(later)} failed too"))
    own = f"{log.parent.name}/{log.name} in the run directory of {record.host}"
    rows.append(("log", own if record.host else str(log)))
    return rows


def other_rows(diagnosis: Diagnosis) -> list[Row]:
    """Causes beside the root: the next attempt may meet them."""
    return [
        (
            "also",
            f"{death_text(other.record)}: {other.name}"
            if other.entry
            else death_text(other.record),
        )
        for other in diagnosis.others
        if other.record.exception or other.entry
    ]


def dead_end_rows(refused: NoPlan) -> list[Row]:
    """Why nothing is left: the smallest set of constraints that contradict each other."""
    rows = where_rows(refused.request, refused.hardware)
    count = len(refused.rejected)
    rows.append(("tried", f"{count} presets; none is known to work. Together rule out all:"))
    for constraint in contradiction(refused):
        terms = ", ".join(str(term) for term in constraint.terms)
        text = f"{terms}: {constraint.cause.summary}\n{constraint.cause.reference}"
        rows.append(("because", text.rstrip()))
    rows += [("would do", text) for text in refused.remedies]
    return rows


def outcome_text(outcome: Outcome, findings: Mapping[int, Finding]) -> str:
    """How an attempt ended, in one line."""
    match outcome:
        case Succeeded(remarks=remarks):
            return "; ".join(["succeeded", *remarks])
        case Interrupted(signal=number):
            return f"stopped by {signal.Signals(number).name}"
        case Superseded():
            return "stopped before a failure: what the workers reported is known to fail"
        case Failed(attempt=attempt):
            finding = findings[attempt.number]
            name = "not known" if finding.entry is None else finding.entry.id
            return f"failed: {death_text(finding.record)} ({name})"


def entry_text(entry: KnownFailure) -> str:
    """A known failure as a page."""
    lines = [entry.id, "=" * len(entry.id), entry.title, ""]
    lines += [f"role: {entry.role}; class: {entry.kind}"]
    versions = [f"{name} {allowed}" for name, allowed in entry.when.items()]
    lines += [f"versions: {', '.join(versions) or 'all'}"]
    for heading, body in entry.sections.items():
        lines += ["", heading, "-" * len(heading), body]
    lines += ["", "How it is known", "---------------", *(f"- {proof}" for proof in entry.proof)]
    lines += ["", "Sources", "-------", *(f"- {source}" for source in entry.sources)]
    return "\n".join(lines)
