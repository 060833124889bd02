"""Failures and entries of the catalogue in plain words: values in, rows of text out."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..catalogue.advice import Advice, advice, advised, cases
from ..catalogue.entry import Diagnosis, Finding, Kind, KnownFailure, Role
from ..catalogue.situation import Trait, prose_for, scheduled_by, traits_of
from ..core.preset import describe
from ..core.quantities import count_of, noun_of
from ..core.quotation import cleaned, shortened
from ..core.script import SourceLocation
from ..core.settings import Setting, Value
from ..diagnosis.allocator_message import allocation_of
from ..diagnosis.attempt import Attempt, Failed, Interrupted, Outcome, Succeeded, Superseded
from ..diagnosis.next_step.choose import next_step, surer_step
from ..diagnosis.next_step.step import Basis
from ..evidence.failure_record import HANG, FailureRecord, Frame, ToldBy, death_text
from ..planning.budget import gib
from ..system.redaction import redacted
from ..system.terminal import Row
from .raise_condition import condition_texts

LONGEST = 240
"""Characters of an exception's message that are shown; the traceback has all."""
LONGEST_STEP = 900
"""Characters of a next step that are shown."""
WAITED = "another rank or process may be the cause"


def failure_rows(
    finding: Finding,
    attempt: Attempt,
    spots: Sequence[SourceLocation],
    *,
    follows: bool,
    whole: bool = False,
) -> list[Row]:
    """The rows on a known failure: the exception, what to do unless it is cured, where, and why.

    The `spots` are the user's lines concerned; another attempt `follows`. With `whole` the rows
    include the entry's explanation and the model.
    """
    record, entry = finding.record, finding.entry
    assert entry is not None, "an unexplained failure has no rows"
    traits = traits_of(record, attempt.plan.workload) | scheduled_by(os.environ)
    rows = raised_rows(record)
    if record.mistyped:  # then nothing else matters
        rows += mistyped_rows(record)
        return rows + [("where", text) for text in where_texts(record, spots)]
    is_cured = follows and entry.kind in (Kind.MEMORY, Kind.PRESET)
    if is_cured and not (entry.kind is Kind.PRESET and spots):
        advice = Advice()
    else:
        advice = advice_on(entry, record, traits)
    rows += step_rows(advice)
    if is_of_another(entry, record):
        rows.append(("note", WAITED))
    rows += [("where", text) for text in where_texts(record, spots)]
    happens = prose_for(entry.sections["What happens"], traits)
    subject = entry.subject_of(record)
    rows.append(("why", f"{subject}\n{happens}" if whole else subject))
    if whole and record.model:
        rows.append(("model", model_text(record)))
    if entry.kind is Kind.MEMORY:
        rows += [("memory", text) for text in allocation_texts(record)]
    for setting, value in attempt.plan.overrides.items():
        if (in_force := record.observed.get(setting.value, value)) != value:
            wanted = f"{describe(setting, value)} was requested for attempt {attempt.number + 1}"
            rows.append(("note", f"{wanted}, yet {in_force} was in force"))
    rows += other_advice_rows(advice)
    rows.append(("more", f"safe-launch explain {entry.id}"))
    return rows


def is_of_another(entry: KnownFailure, record: FailureRecord) -> bool:
    """Whether another rank may be the cause, as no rule names one of this rank."""
    return entry.role is Role.CASCADE and surer_step(entry, record) is None


def mistyped_rows(record: FailureRecord) -> list[Row]:
    """A row for each unknown argument, with the nearest known one."""
    return [
        ("do", f"write `{near}` instead of `{name}`, which is unknown")
        for name, near in record.mistyped.items()
    ]


def advice_on(entry: KnownFailure, record: FailureRecord, traits: frozenset[Trait]) -> Advice:
    """The advice on a known failure; a more specific rule precedes a general entry."""
    surer = surer_step(entry, record)
    return advice(entry, record, traits) if surer is None else advised(redacted(surer.do))


def step_rows(advice: Advice) -> list[Row]:
    """The rows on the step and its command, else on what helps next; none without advice."""
    second = ("run", advice.run) if advice.run else ("else", next(iter(advice.others), ""))
    return [row for row in (("do", advice.line), second) if row[1]]


def advice_rows(advice: Advice) -> list[Row]:
    """The rows on all of it."""
    return step_rows(advice) + other_advice_rows(advice)


def other_advice_rows(advice: Advice) -> list[Row]:
    """The rows on what else helps, without what `step_rows` has."""
    return [("or", text) for text in advice.others[0 if advice.run else 1 :]]


def unexplained_rows(diagnosis: Diagnosis, log: Path, *, whole: bool = False) -> list[Row]:
    """The rows on an unexplained failure: the exception and where, or the log."""
    record = diagnosis.root.record
    rows = raised_rows(record) + (mistyped_rows(record) or next_step_rows(record))
    rows += [("where", text) for text in where_texts(record, ())]
    rows += [("since", text) for text in condition_texts(record)]
    others = [finding.record for finding in diagnosis.findings[1:]]
    if others and whole:
        later = [
            f"{'a node' if other.rank is None else f'rank {other.rank}'} "
            f"({(other.at - record.at) * 1000:.0f} ms later)"
            for other in others[:8]
        ]
        rows.append(("then", f"{', '.join(later)} failed too"))
    if whole or not (record.traceback and rows):
        name = f"{log.parent.name}/{log.name} in the run directory of {record.host}"
        rows.append(("log", name if record.host else str(log)))
    return rows


def next_step_rows(record: FailureRecord) -> list[Row]:
    """The rows on the next step after an unknown failure, if the record suggests one."""
    step = next_step(record)
    if step.basis is Basis.OPEN:
        return []
    return advice_rows(advised(shortened(redacted(step.do), LONGEST_STEP)))


def raised_rows(record: FailureRecord) -> list[Row]:
    """The row on the exception and the start of its message; none for a death without one."""
    if not record.exception or record.exception.endswith("SystemExit"):
        return []
    message = cleaned(record.message)
    if record.exception == HANG:  # stacks follow
        message = message.partition("\n")[0]
    text = shortened(" ".join(without_traceback(message).split()), LONGEST)
    if record.told_by is ToldBy.LAST_LINE:
        return [("what", f"{text} (in its last output)")]
    return [("what", f"{record.exception.rpartition('.')[2]}: {text}".removesuffix(": "))]


def without_traceback(message: str) -> str:
    """The words before a quoted traceback in a message, and the error that ends it.

    DataLoader quotes its workers' (torch/_utils.py), torch's sharded checkpoints other ranks'.
    """
    before, quoted, traceback = message.partition("Traceback (most recent call last)")
    if not quoted:
        return message
    error = traceback.strip().rpartition("\n")[2]
    return f"{before.rstrip().removesuffix('Original')} {error}"


def other_rows(diagnosis: Diagnosis) -> list[Row]:
    """Rows on other causes besides the root cause, which the next attempt may meet."""
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


def diagnosis_rows(
    diagnosis: Diagnosis,
    attempt: Attempt,
    spots: Sequence[SourceLocation],
    *,
    follows: bool,
    whole: bool,
) -> tuple[Row, ...]:
    """The rows on a failed attempt, which the terminal, the page and `failures.json` lay out."""
    root = diagnosis.root
    if root.entry is None:
        log = attempt.folder / f"rank-{root.record.rank}.log"
        rows = unexplained_rows(diagnosis, log, whole=whole)
    else:
        rows = failure_rows(root, attempt, spots, follows=follows, whole=whole)
    return (*rows, *other_rows(diagnosis))


def suspect_row(changed: Mapping[Setting, tuple[Value | None, Value]], first: int) -> Row:
    """The row on the correction that may have caused the failure.

    `changed` has old and new values; `first` is the corrected attempt, from 0.
    """
    what = ", ".join(f"{setting.value} {old} -> {new}" for setting, (old, new) in changed.items())
    text = f"the correction of attempt {first + 1} ({what}): this failure first came with it"
    return "suspect", f"{text}, at no later step. The next remedy is tried without it"


def outcome_text(outcome: Outcome, findings: Mapping[int, Finding]) -> str:
    """Describes an attempt's end in one line."""
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


def where_texts(record: FailureRecord, spots: Sequence[SourceLocation]) -> list[str]:
    """The user's lines that the failure is about, then the parameters."""
    texts = [spot_text(spot) for spot in spots]
    frame = user_frame(record)
    if frame is not None and not spots:
        text = f"{short(frame.file)}:{frame.line} in {frame.function}: {frame.source}"
        texts.append(text.rstrip(": "))
    if record.parameters:
        noun = noun_of(len(record.parameters), "parameter")
        texts.append(f"{noun} {', '.join(record.parameters)}")
    return texts


def allocation_texts(record: FailureRecord) -> list[str]:
    """The memory requested, held and available, from the failure."""
    seen = allocation_of(record)
    held = seen.process if seen.process is not None else seen.allocated
    parts = [
        f"{word} {gib(size)} GiB"
        for word, size in (
            ("asked for", seen.requested),
            ("held", held),
            ("free", seen.free),
            ("of at most", seen.capacity),
        )
        if size is not None
    ]
    return [", ".join(parts)] if parts else []


def model_text(record: FailureRecord) -> str:
    """The model as one line: class, parameters, adapters."""
    trained = int(record.model.get("trainable_parameters", 0))
    frozen = int(record.model.get("frozen_parameters", 0))
    peft = ", wrapped by peft" if record.model.get("peft") else ""
    parameters = count_of(trained, "parameter")
    return f"{record.model.get('class')}: {parameters} trained, {frozen:,} frozen{peft}"


def spot_text(spot: SourceLocation) -> str:
    """A user's line, followed by the corrected line."""
    text = f"{short(spot.file)}:{spot.line}: {spot.text}"
    return f"{text}\n-> {spot.change}" if spot.change else text


def user_frame(record: FailureRecord) -> Frame | None:
    """The innermost frame in a user's file."""
    return next(
        (frame for frame in reversed(record.frames) if frame.file in record.user_files), None
    )


def short(path: str) -> str:
    """A path below the working directory relative to it, if that is shorter."""
    relative = os.path.relpath(path) if path else path
    is_below = not relative.startswith(os.pardir)
    return relative if is_below and len(relative) < len(path) else path


def entry_text(entry: KnownFailure) -> str:
    """A known failure as a page."""
    lines = [entry.id, "=" * len(entry.id), entry.title, ""]
    lines += [f"role: {entry.role}; class: {entry.kind}"]
    versions = [f"{name} {allowed}" for name, allowed in entry.when.items()]
    lines += [f"versions: {', '.join(versions) or 'all'}"]
    for heading, body in entry.sections.items():
        lines += ["", heading, "-" * len(heading), body]
        if heading == "What to do":
            lines += [f"\nIf {where}:\n{text}" for where, text in cases(entry)]
    lines += ["", "How it is known", "---------------", *(f"- {proof}" for proof in entry.proof)]
    lines += ["", "Sources", "-------", *(f"- {source}" for source in entry.sources)]
    return "\n".join(lines)
