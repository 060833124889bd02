"""Renders a judgement on logs: as rows, and as JSON values."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..catalogue.advice import Advice, advised
from ..catalogue.entry import Finding, Kind, KnownFailure, Role
from ..catalogue.situation import prose_for, traits_of
from ..core.quantities import noun_of
from ..core.quotation import shortened
from ..core.script import SourceLocation
from ..core.workload import Workload
from ..diagnosis.next_step.activities import EXITS, NO_ERROR
from ..diagnosis.next_step.choose import next_step
from ..diagnosis.next_step.step import Basis, Step
from ..evidence.failure_record import FailureRecord, death_text
from ..report.explain_failure import (
    WAITED,
    advice_on,
    allocation_texts,
    is_of_another,
    other_advice_rows,
    short,
    step_rows,
    user_frame,
    where_texts,
)
from ..report.raise_condition import condition_texts
from ..system.redaction import redacted
from ..system.terminal import Row
from .attempts import Evidence
from .complaints import most_telling, output_before
from .headline import WARNED, headline
from .judgement import BreakOff, Failure, Judgement, Verdict, name_of
from .progress_signs import Written

LONGEST_QUOTED = 120
"""Maximum characters to quote of an error."""
WIDEST = 300
"""Maximum characters to show of a line of evidence."""
MOST_OTHERS = 5
CURES = {
    Kind.PRESET: "safe-launch relaunches with settings that avoid it",
    Kind.MEMORY: "safe-launch plans less memory and relaunches",
    Kind.TRANSIENT: "safe-launch tries the same settings again",
    Kind.HARDWARE: "the node is at fault: run on another one (safe-launch exits with 75)",
}
"""The launcher's reactions by class of failures."""
ABOVE = (
    "Look further up in the whole output, or into the workers' own logs: the launcher reports only"
    " that a script ended with an error, which the script itself has written. To see it, start the"
    " script alone, with `python` in the launcher's place."
)
MISSING = "an exception, or a line that says that the training has ended"
"""What would have shown the run's end."""
NEXT = (
    "if the job still runs, wait; if not, diagnose this log to its end together with the other "
    "ranks' and the launcher's, or ask the scheduler (sacct, kubectl describe) and the node (dmesg)"
)

WHOLE_LOG = (
    "if the run has ended or stands still, other lines have the reason: diagnose the whole logs of"
    " all ranks"
)


def rows(judgement: Judgement, spots: Sequence[SourceLocation]) -> list[Row]:
    """Rows below the headline: the advice, the evidence, alternatives, reasons, the basis."""
    if judgement.break_off is not None:
        if headline(judgement) == WARNED:
            return [*_warned_rows(judgement), ("next", WHOLE_LOG)]
        return [*_warned_rows(judgement), *_break_off_rows(judgement.break_off)]
    root = judgement.root
    complaints: list[Row] = [("said", _line(line)) for line in judgement.complaints]
    if judgement.verdict is Verdict.HEALTHY and judgement.suspect is not None:
        error = _named(judgement.suspect.record)
        return [("note", f"it failed only after its end, which changes no weights: {error}")]
    if root is None:
        is_failed = judgement.verdict is Verdict.UNKNOWN
        return complaints or ([("do", ABOVE)] if is_failed else _warned_rows(judgement))
    record, entry = root.finding.record, root.finding.entry
    advice = _advice_on_failure(root, judgement)
    result = step_rows(advice)
    why: list[Row] = [] if entry is None else [("why", _reason_of(entry, record))]
    if len(result) == 1:
        result, why = result + why, []
    if entry is not None and root.finding.role is Role.CASCADE and is_of_another(entry, record):
        result.append(("note", _missing_ranks(judgement)))
    result += [("where", text) for text in where_texts(record, spots)]
    result += [("since", text) for text in condition_texts(record) if entry is None]
    result += [("seen", text) for text in _seen(root.evidence)]
    result += [("before", _quoted(line)) for line in output_before(record)]
    if entry is not None and entry.kind is Kind.MEMORY:
        result += [("memory", text) for text in allocation_texts(record)]
    result += complaints
    for other in judgement.others[:MOST_OTHERS]:
        result.append(("also", _other(other)))
    if text := _consequences(judgement):
        result.append(("then", text))
    result += other_advice_rows(advice)
    if entry is None:
        known = f"no known failure matches; the advice is {_step_of(judgement, record).basis.value}"
        return [*result, ("known", known)]
    if entry.kind in CURES:
        result.append(("or", CURES[entry.kind]))
    result += why
    more = f"safe-launch explain {entry.id} ({entry.confidence})"
    return [*result, ("more", "\n".join([more, *entry.sources[:1]]))]


def attempt_rows(attempts: Sequence[Judgement], shown: Judgement) -> list[Row]:
    """Rows on the ends of other attempts."""
    return [
        (
            "attempt",
            f"{attempt.attempt}: " + (name_of(attempt.root) if attempt.root else headline(attempt)),
        )
        for attempt in attempts
        if attempt is not shown
    ]


def diagnosis_document(
    judgement: Judgement,
    attempts: Sequence[Judgement],
    notes: Sequence[str],
    spots: Sequence[SourceLocation],
) -> dict[str, Any]:
    """The document of `diagnose --json`."""
    return {
        "verdict": judgement.verdict.value,
        "attempt": judgement.attempt,
        "is_complete": judgement.verdict is Verdict.HEALTHY,
        "root": None if judgement.root is None else _failure_document(judgement.root, judgement),
        "rows": rows(judgement, spots),
        "said": [_written(line) for line in judgement.complaints],
        "break_off": None if judgement.break_off is None else _broken_off(judgement.break_off),
        "spots": [asdict(spot) for spot in spots],
        "others": [_failure_document(failure, judgement) for failure in judgement.others],
        "attempts": [
            {
                "attempt": attempt.attempt,
                "verdict": attempt.verdict.value,
                "root": None if attempt.root is None else name_of(attempt.root),
            }
            for attempt in attempts
        ],
        "notes": list(notes),
    }


def _warned_rows(judgement: Judgement) -> list[Row]:
    """The row on a warning that is no failure."""
    if (warned := judgement.warned) is None:
        return []
    said = shortened(redacted(" ".join(warned.said.split())), LONGEST_QUOTED)
    return [("note", f"“{said}”: {warned.means}")]


def _break_off_rows(break_off: BreakOff) -> list[Row]:
    """Rows on the last lines, the missing information, and where to find it."""
    result: list[Row] = []
    if (line := break_off.complaint) is not None:
        result += [("next", f"if it has failed there: {_on_line(line)}"), ("said", _line(line))]
    if break_off.activity is EXITS:
        result.append(("note", NO_ERROR))
    if line is None and break_off.activity is not None and break_off.activity.advice:
        result.append(("next", f"if it stands still there, {break_off.activity.advice}"))
    if break_off.error is not None:
        result += [("error", text) for text in _seen(break_off.error)[-1:]]
        text = "it has no traceback: it may be the failure, or one that was caught or quoted"
        result.append(("note", text))
    result += [("last", _line(line)) for line in break_off.last_lines[:MOST_OTHERS]]
    return [*result, ("missing", MISSING), ("next", NEXT)]


def _on_line(line: Written) -> str:
    """Advice on a line that may report the failure."""
    record = FailureRecord(line.rank, float(line.number), message=line.text.strip())
    return redacted(next_step(record).do)


def _quoted(text: str) -> str:
    """Shortens a quotation from the log after removing secrets, which a cut could expose."""
    return shortened(redacted(text), WIDEST)


def _line(line: Written) -> str:
    return f"{short(line.file)}:{line.number}: {_quoted(line.text.strip())}"


def _missing_ranks(judgement: Judgement) -> str:
    """Names the ranks without a failure of their own, for which the others waited."""
    known = {failure.finding.record.rank for failure in judgement.failures}
    seen = {
        failure.finding.record.rank
        for failure in judgement.failures
        if failure.finding.role is not Role.TEARDOWN
    }
    last = max((rank for rank in known if rank is not None), default=-1)
    is_short = last <= len(seen) + MOST_OTHERS  # a log may name any number
    silent = [rank for rank in range(last + 1) if rank not in seen] if is_short else []
    if not 0 < len(silent) <= MOST_OTHERS:
        return f"{WAITED}: look for its log, and for what it did meanwhile"
    names = f"{noun_of(len(silent), 'rank')} {', '.join(map(str, silent))}"
    return f"{WAITED}: look for the log of {names}, and for what it did meanwhile"


def _seen(evidence: Evidence) -> list[str]:
    return [f"{short(evidence.file)}:{number}: {_quoted(text)}" for number, text in evidence.lines]


def _other(failure: Failure) -> str:
    entry = failure.finding.entry
    text = (
        f"{death_text(failure.finding.record)}: {entry.id if entry else 'no known failure matches'}"
    )
    return "\n".join([text, *_seen(failure.evidence)[-1:]])


def _consequences(judgement: Judgement) -> str:
    """The consequences as one line, the most frequent first."""
    known = {name_of(failure) for failure in (*judgement.others, *judgement.failures[:1])}
    names = Counter(
        name_of(failure) for failure in judgement.failures[1:] if name_of(failure) not in known
    )
    texts = [f"{name} (x{count})" if count > 1 else name for name, count in names.most_common(4)]
    return f"{', '.join(texts)} followed" if texts else ""


def _broken_off(break_off: BreakOff) -> Mapping[str, Any]:
    return {
        "error": None if break_off.error is None else _lines_of(break_off.error)[-1],
        "last": [_written(line) for line in break_off.last_lines],
        "missing": MISSING,
        "activity": None if break_off.activity is None else break_off.activity.words,
        "complaint": None if break_off.complaint is None else _written(break_off.complaint),
    }


def _written(line: Written) -> Mapping[str, Any]:
    return {"file": line.file, "line": line.number, "text": line.text}


def _lines_of(evidence: Evidence) -> list[Mapping[str, Any]]:
    return [
        {"file": evidence.file, "line": number, "text": text} for number, text in evidence.lines
    ]


def _failure_document(failure: Failure, judgement: Judgement) -> Mapping[str, Any]:
    record, entry = failure.finding.record, failure.finding.entry
    frame = user_frame(record)
    advice = _advice_on_failure(failure, judgement)
    explanation: Mapping[str, Any]
    if entry is None:
        step = _step_of(judgement, record)
        explanation = {"id": None, "rule": step.rule, "confidence": step.basis.value}
    else:
        explanation = {
            "id": entry.id,
            "title": entry.subject_of(record),
            "class": entry.kind.value,
            "why": _reason_of(entry, record),
            "sources": list(entry.sources),
            "confidence": entry.confidence,
        }
    return {
        **explanation,
        "do": advice.line,
        "run": advice.run or None,
        "or": list(advice.others),
        "role": failure.finding.role.value,
        "rank": record.rank,
        "exception": record.exception or None,
        "message": record.message or None,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "where": None
        if frame is None
        else {
            "file": frame.file,
            "line": frame.line,
            "function": frame.function,
            "text": frame.source,
        },
        "evidence": _lines_of(failure.evidence),
        "before": [_quoted(line) for line in output_before(record)],
    }


def _reason_of(entry: KnownFailure, record: FailureRecord) -> str:
    """An entry's explanation, for a record's situation."""
    return prose_for(entry.sections["What happens"], traits_of(record, Workload()))


def _step_of(judgement: Judgement, record: FailureRecord) -> Step:
    """The next step; a line with a possible reason precedes an exit code."""
    if judgement.complaints and record.signal in (None, signal.SIGABRT):
        complaint = most_telling(judgement.complaints).text.strip()
        record = replace(record, exception="", exit_code=None, signal=None, message=complaint)
    return next_step(record)


def _advice_on_failure(failure: Failure, judgement: Judgement) -> Advice:
    """Advice on a known or unknown failure."""
    record, entry = failure.finding.record, failure.finding.entry
    if entry is None:
        advice = advised(redacted(_step_of(judgement, record).do))
    else:
        advice = advice_on(entry, record, traits_of(record, Workload()))
    if failure is not judgement.root or judgement.suspect is None:
        return advice
    first = _on_suspect(judgement.suspect)
    return replace(first, others=(*first.others, advice.text))


def _on_suspect(suspect: Finding) -> Advice:
    """Advice on an error before the root cause, which may be the true one."""
    record, entry = suspect.record, suspect.entry
    if entry is not None:
        advice = advice_on(entry, record, traits_of(record, Workload()))
    else:
        step = next_step(record)
        if step.rule == "stopped-early":
            return advised(step.do)
        advice = advised("" if step.basis is Basis.OPEN else redacted(step.do))
    first = f"Fix the earlier error in the log first: {_named(record)}. {advice.do}"
    return replace(advice, do=first.strip())


def _named(record: FailureRecord) -> str:
    """An error's type and message, as a quotation."""
    kind = record.exception.rpartition(".")[2]
    error = f"{kind}: {record.message}" if kind else record.message
    return f"“{shortened(redacted(' '.join(error.split())), LONGEST_QUOTED)}”"
