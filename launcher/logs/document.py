"""The judgement on logs as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..core.script import SourceLocation
from ..report.explain_failure import user_frame
from .advice import advice_on_failure, reason_of, step_of
from .attempts import Evidence
from .failures import Failure
from .judgement import BreakOff, Judgement, Verdict, name_of
from .output_before import output_before
from .progress_signs import Written
from .report import missing_text, quoted, rows


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
        "root": None if judgement.root is None else _failure(judgement.root, judgement),
        "rows": rows(judgement, spots),
        "said": [_written(line) for line in judgement.complaints],
        "break_off": None if judgement.break_off is None else _broken_off(judgement.break_off),
        "spots": [asdict(spot) for spot in spots],
        "others": [_failure(failure, judgement) for failure in judgement.others],
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
        "missing": missing_text(break_off),
        "activity": None if break_off.activity is None else break_off.activity.words,
    }


def _written(line: Written) -> Mapping[str, Any]:
    return {"file": line.file, "line": line.number, "text": line.text}


def _lines(evidence: Evidence) -> list[Mapping[str, Any]]:
    return [
        {"file": evidence.file, "line": number, "text": text} for number, text in evidence.lines
    ]


def _failure(failure: Failure, judgement: Judgement) -> Mapping[str, Any]:
    record, entry = failure.finding.record, failure.finding.entry
    frame = user_frame(record)
    advice = advice_on_failure(failure, judgement)
    explanation: Mapping[str, Any]
    if entry is None:
        step = step_of(judgement, record)
        explanation = {"id": None, "rule": step.rule, "confidence": step.basis.value}
    else:
        explanation = {
            "id": entry.id,
            "title": entry.title,
            "class": entry.kind.value,
            "why": reason_of(entry, record),
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
        "evidence": _lines(failure.evidence),
        "before": [quoted(line) for line in output_before(record)],
    }
