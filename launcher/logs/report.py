"""Renders a judgement on logs as rows or JSON."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..catalogue.advice import Advice, advised
from ..catalogue.entry import Finding, Kind, KnownFailure, Role
from ..catalogue.situation import told, traits_of
from ..core.count_of import noun_of
from ..core.row import Row
from ..core.shortened import shortened
from ..core.source_location import SourceLocation
from ..core.workload import Workload
from ..diagnosis.next_step.choose import next_step
from ..diagnosis.next_step.step import Basis, Step
from ..evidence.exit_reason import death_text
from ..evidence.failure_record import FailureRecord
from ..report.explain_failure import (
    WAITED,
    advice_on,
    allocation_texts,
    other_advice_rows,
    short,
    step_rows,
    user_frame,
    where_texts,
)
from ..system.redaction import redacted
from .attempts import Evidence
from .failures import Failure
from .headline import headline
from .judgement import BreakOff, Judgement, Verdict, name_of
from .last_words import most_telling
from .output_before import output_before
from .progress_signs import Written

WIDEST = 300
"""Maximum characters to show of a line of evidence."""
LONGEST_QUOTED = 160
"""Maximum characters to quote of an error in an advice."""
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
NEXT = (
    "if the job still runs, wait; if not, diagnose this log to its end together with the other "
    "ranks' and the launcher's, or ask the scheduler (sacct, kubectl describe) and the node (dmesg)"
)


def rows(judgement: Judgement, spots: Sequence[SourceLocation]) -> list[Row]:
    """Rows below the headline: the advice, the evidence, alternatives, reasons, the basis."""
    if judgement.break_off is not None:
        return _break_off_rows(judgement.break_off)
    root = judgement.root
    if root is None:
        is_failed = judgement.verdict is Verdict.UNKNOWN
        return _complaint_rows(judgement) or ([("do", ABOVE)] if is_failed else [])
    record, entry = root.finding.record, root.finding.entry
    advice = _advice(root, judgement)
    result = step_rows(advice)
    why = _why(entry, record)
    if len(result) == 1:
        result, why = result + why, []
    if entry is not None and root.finding.role is Role.CASCADE:
        result.append(("note", _missing_ranks(judgement)))
    result += [("where", text) for text in where_texts(record, spots)]
    result += [("seen", text) for text in _seen(root.evidence)]
    result += [("before", _quoted(line)) for line in output_before(record)]
    if entry is not None and entry.kind is Kind.MEMORY:
        result += [("memory", text) for text in allocation_texts(record)]
    result += _complaint_rows(judgement)
    for other in judgement.others[:MOST_OTHERS]:
        result.append(("also", _other(other)))
    if text := _consequences(judgement):
        result.append(("then", text))
    result += other_advice_rows(advice)
    if entry is None:
        known = f"no known failure matches; the advice is {_step(judgement, record).basis.value}"
        return [*result, ("known", known)]
    if entry.kind in CURES:
        result.append(("or", CURES[entry.kind]))
    result += why
    more = f"safe-launch explain {entry.id} ({entry.confidence})"
    return [*result, ("more", "\n".join([more, *entry.sources[:1]]))]


def _why(entry: KnownFailure | None, record: FailureRecord) -> list[Row]:
    """The row on an entry's reason."""
    if entry is None:
        return []
    return [("why", told(entry.sections["What happens"], traits_of(record, Workload())))]


def _complaint_rows(judgement: Judgement) -> list[Row]:
    """Rows on lines that may name the cause, without an exception."""
    return [("said", _line(line)) for line in judgement.complaints]


def _break_off_rows(break_off: BreakOff) -> list[Row]:
    """Rows on the last lines, the missing information, and where to find it."""
    result = []
    if break_off.error is not None:
        result += [("error", text) for text in _seen(break_off.error)[-1:]]
        text = "it has no traceback: it may be the failure, or one that was caught or quoted"
        result.append(("note", text))
    result += [("last", _line(line)) for line in break_off.last_lines[:MOST_OTHERS]]
    result.append(("missing", _missing(break_off)))
    result.append(("next", NEXT))
    return result


def _quoted(text: str) -> str:
    """Shortens a quotation from the log after removing secrets, which a cut could expose."""
    return shortened(redacted(text), WIDEST)


def _line(line: Written) -> str:
    return f"{short(line.file)}:{line.number}: {_quoted(line.text.strip())}"


def _missing(break_off: BreakOff) -> str:
    if break_off.cut is not None:
        file, number = break_off.cut
        return f"the exception in which the traceback at {short(file)}:{number} ends"
    return "an exception, or a line that says that the training has ended"


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


def document(
    judgement: Judgement,
    attempts: Sequence[Judgement],
    notes: Sequence[str],
    spots: Sequence[SourceLocation],
) -> Mapping[str, Any]:
    """The judgement as JSON values."""
    return {
        "verdict": judgement.verdict.value,
        "attempt": judgement.attempt,
        "is_complete": judgement.verdict is Verdict.HEALTHY,
        "root": None if judgement.root is None else _finding(judgement.root, judgement),
        "rows": rows(judgement, spots),
        "said": [_written(line) for line in judgement.complaints],
        "break_off": None if judgement.break_off is None else _broken_off(judgement.break_off),
        "spots": [asdict(spot) for spot in spots],
        "others": [_finding(failure, judgement) for failure in judgement.others],
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


def _broken_off(break_off: BreakOff) -> Mapping[str, Any]:
    return {
        "error": None if break_off.error is None else _lines(break_off.error)[-1],
        "last": [_written(line) for line in break_off.last_lines],
        "missing": _missing(break_off),
    }


def _written(line: Written) -> Mapping[str, Any]:
    return {"file": line.file, "line": line.number, "text": line.text}


def _lines(evidence: Evidence) -> list[Mapping[str, Any]]:
    return [
        {"file": evidence.file, "line": number, "text": text} for number, text in evidence.lines
    ]


def _finding(failure: Failure, judgement: Judgement) -> Mapping[str, Any]:
    record, entry = failure.finding.record, failure.finding.entry
    frame = user_frame(record)
    advice = _advice(failure, judgement)
    known = (
        _unknown(_step(judgement, record))
        if entry is None
        else {
            "id": entry.id,
            "title": entry.title,
            "class": entry.kind.value,
            "why": told(entry.sections["What happens"], traits_of(record, Workload())),
            "sources": list(entry.sources),
            "confidence": entry.confidence,
        }
    )
    return {
        **known,
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
        "evidence": _lines(failure.evidence),
        "before": [_quoted(line) for line in output_before(record)],
    }


def _unknown(step: Step) -> Mapping[str, Any]:
    """Facts about a failure without an entry."""
    return {"id": None, "rule": step.rule, "confidence": step.basis.value}


def _step(judgement: Judgement, record: FailureRecord) -> Step:
    """The next step; a line with a possible reason precedes an exit code."""
    if judgement.complaints and record.signal in (None, signal.SIGABRT):
        said = most_telling(judgement.complaints).text.strip()
        record = replace(record, exception="", exit_code=None, signal=None, message=said)
    return next_step(record)


def _advice(failure: Failure, judgement: Judgement) -> Advice:
    """Advice on a known or unknown failure."""
    record, entry = failure.finding.record, failure.finding.entry
    own = (
        advised(redacted(_step(judgement, record).do))
        if entry is None
        else advice_on(entry, record, traits_of(record, Workload()))
    )
    if failure is not judgement.root or judgement.suspect is None:
        return own
    first = _on_suspect(judgement.suspect)
    return replace(first, others=(*first.others, own.text))


def _on_suspect(suspect: Finding) -> Advice:
    """Advice on an error before the root cause, which may be the true one."""
    record, entry = suspect.record, suspect.entry
    kind = record.exception.rpartition(".")[2]
    words = f"{kind}: {record.message}" if kind else record.message
    said = shortened(redacted(" ".join(words.split())), LONGEST_QUOTED)
    text = f"Fix the earlier error in the log first: “{said}”."
    if entry is not None:
        return advised(text, advice_on(entry, record, traits_of(record, Workload())).text)
    step = next_step(record)
    return advised(text, "" if step.basis is Basis.OPEN else redacted(step.do))
