"""Summarizes a failure in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..catalogue.entry import Finding, KnownFailure
from ..catalogue.signature import Pattern, lines_of
from ..core.quotation import shortened, with_short_paths
from ..core.script import SourceLocation
from ..diagnosis.next_step.activities import EXITS
from ..diagnosis.next_step.build import build_error
from ..diagnosis.next_step.installation import missing_line
from ..diagnosis.next_step.step import raised_first
from ..evidence.failure_record import FailureRecord, Raised, ToldBy, death_text
from ..report.explain_failure import short, user_frame, without_traceback
from ..system.redaction import redacted
from .complaints import most_telling
from .judgement import Judgement, Verdict
from .progress_signs import TRAINING

MOST = 160
"""Maximum characters of the failure's message."""

INNER = re.compile(r"\((?P<error>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .+)\)$")
"""An error that led to the message which ends with it."""
LAST_ERROR = re.compile(r"Last error:\s*(\S.*)")
"""NCCL's reason at the end of a multi-line message (NCCLUtils.cpp)."""
OF_MODULE = re.compile(r"Error while finding module specification for '[^']*' \(\w+: (.*?)\)")
"""The reason in a message of `python -m` (runpy)."""
WARNED = "no failure: the log has a warning only"


def headline(judgement: Judgement, spots: Sequence[SourceLocation] = ()) -> str:
    """The rank, the user's line, the failure, and its message."""
    complaint = most_telling(judgement.complaints).text.strip() if judgement.complaints else ""
    if judgement.root is not None:
        return _happened(judgement.root.finding, spots, complaint)
    if complaint:
        return _fitted(redacted(complaint))
    if judgement.verdict is Verdict.UNKNOWN:
        return "failed, but these logs don't show why; look at the workers' own"
    if judgement.verdict is Verdict.UNFINISHED:
        return _unfinished(judgement)
    return "no failure: the training finished"


def _unfinished(judgement: Judgement) -> str:
    """The headline of an incomplete log."""
    break_off = judgement.break_off
    if break_off is not None and break_off.complaint is not None:
        said = _fitted(redacted(break_off.complaint.text.strip()))
        return f"unfinished, with a complaint near the end: {said}"
    activity = None if break_off is None or break_off.error is not None else break_off.activity
    if activity is None and judgement.warned is not None and judgement.warned.is_all:
        return WARNED
    if activity is None:
        return "unfinished: the log stops before the training's end"
    state = "no failure so far" if activity in (TRAINING, EXITS) else "unfinished"
    return f"{state}: the log ends {activity.words}"


def _happened(finding: Finding, spots: Sequence[SourceLocation], complaint: str) -> str:
    """The headline; a line with a possible reason precedes the report of an end."""
    record, entry = finding.record, finding.entry
    frame = user_frame(record)
    places = [f"{short(spot.file)}:{spot.line}" for spot in spots[:1]]
    if frame is not None and not places:
        places = [f"{short(frame.file)}:{frame.line}"]
    at = ", ".join(filter(None, (_who(record), *places)))
    is_silent = entry is None and not record.exception
    message = (complaint if is_silent else "") or _words(record, entry)
    text = _fitted(redacted(message))
    if entry is not None:
        subject = entry.subject_of(record)
        is_new = text.casefold() not in subject.casefold()
        text = f"{subject} ({text})" if is_new else subject
    return ": ".join(filter(None, (at, text)))


def _fitted(text: str) -> str:
    """A message cut to fit: its paths first, then to the error that led to it, then its end."""
    if len(text) > MOST:
        text = with_short_paths(text)
    if len(text) > MOST and (inner := INNER.search(text)):
        text = inner["error"]
    return shortened(text, MOST)


def _who(record: FailureRecord) -> str:
    """The rank, and the kind of its end if nothing else is known."""
    is_raised = bool(record.exception) and record.told_by is ToldBy.WORKER
    is_line = bool(record.message) and record.exit_code is None and record.signal is None
    if is_raised or is_line:
        return "" if record.rank is None else f"rank {record.rank}"
    return death_text(record)


def _words(record: FailureRecord, entry: KnownFailure | None) -> str:
    """The failure's message: what a build lacks, or the last exception or the entry's pattern."""
    if line := build_error(record) or missing_line(record):
        return line
    every = [*record.raised()] or [Raised("", record.message)]
    raised, excerpt = raised_first(record), ""
    for signature in () if entry is None else entry.signatures:
        if (depth := signature.depth(record)) is not None:
            raised = every[depth]
            pattern = signature.message or signature.log
            if signature.message and signature.log and (line := _line_of(record, signature.log)):
                return line
            if pattern is not None:
                excerpt = _around(raised.message, pattern, is_whole=bool(raised.exception))
            break
    kind = raised.exception.rpartition(".")[2]
    if last := LAST_ERROR.search(raised.message) or OF_MODULE.match(raised.message):
        excerpt = last[1]
    text = excerpt or " ".join(without_traceback(raised.message).split())
    if not text and raised.frame is not None and raised.frame.source.startswith("assert "):
        text = raised.frame.source
    return f"{kind}: {text}".removesuffix(": ") if kind else text


def _line_of(record: FailureRecord, pattern: Pattern) -> str:
    """The line near an exception that names a cause missing in the exception."""
    line = next((line for line in lines_of(record) if pattern.search(line)), "")
    return "" if line in record.message else _around(line, pattern, is_whole=False)


def _around(message: str, pattern: Pattern, *, is_whole: bool) -> str:
    """The line of a message matched by a pattern, from the match on if too long."""
    lines = [" ".join(line.split()) for line in message.splitlines()]
    for text in (*lines, " ".join(message.split())):
        if (match := pattern.search(text)) is not None and not text.endswith(":"):
            if is_whole and match.end() <= MOST:
                return text
            rest = text.encode(errors="replace")[match.start() :].decode(errors="replace")
            return f"…{rest}" if match.start() else rest
    return ""
