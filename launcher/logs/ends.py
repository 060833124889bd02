"""Judges the ends of logs: what failed after the training, and how an incomplete log breaks off."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..catalogue.entry import Role
from ..diagnosis.next_step.activities import EXITS
from .announced import GOES_WELL, OF_PERSON, is_persons
from .attempts import ENOUGH, SURVIVED, Reading
from .complaints import most_telling
from .exception_lines import HANDLED, MILD, SEVERE
from .judgement import BreakOff, Failure
from .mere_warnings import is_harmless
from .progress_signs import IS_PROGRESS, Written, last_activity, reported_end

PEER_LEFT = re.compile(r"[Cc]onnection (?:closed|reset) by (?:remote )?peer")
"""Messages of a rank whose peer has ended."""
CLEANUP = re.compile(r"clean_?up|rmtree|shutdown|destroy_process_group|_exit_function")
"""Names of functions that run after the training."""
AROUND = 5
"""Lines at the end of a log in which a complaint counts."""
NO_COMPLAINT = re.compile(
    rf"(?-i:{MILD.pattern}|{HANDLED.pattern})|{OF_PERSON}|[:?]\s*$|{GOES_WELL.pattern}"
    r"|\b(?:fall(?:ing|s)? ?back|retry|using (?:\S+ instead|default|cpu|cuda)|attempt)\b"
    r"|\bwith (?:the|this|an?) error\b|\berrors?(?: rate)?\W{1,2}\d|%",
    re.IGNORECASE,
)
"""Signs of a person's sentence, of what a program does about it, of a rate or of nothing wrong."""
TRACEBACK = "Traceback (most recent call last)"


def is_consequence(failure: Failure) -> bool:
    """Whether a failure follows from another one."""
    return failure.finding.role is not Role.INITIATING


def is_after_end(failure: Failure, reading: Reading) -> bool:
    """Whether a failure came after the training's end: while cleaning up, or as a peer had left.

    A process that trained, and that torch has seen exit, aborts after its script's end.
    """
    record = failure.finding.record
    functions = {frame.function for frame in record.frames}
    has_lost_peer = is_consequence(failure) and PEER_LEFT.search(record.message)
    lines = [
        line
        for line in reading.last_lines.get(failure.evidence.file, ())
        if line.number < failure.evidence.lines[0][0]
    ]
    if record.exception.startswith("c10.") and not is_consequence(failure):
        exits = (
            place
            for place, line in enumerate(lines)
            if record.rank in (None, line.rank) and EXITS.lines.search(line.text)
        )
        ran = lines[: next(exits, 0)]
        has_failed = any(SEVERE.search(line.text) for line in ran)
        return not has_failed and any(IS_PROGRESS.search(line.text) for line in ran)
    if not (has_lost_peer or (record.frames and any(map(CLEANUP.search, functions)))):
        return False
    traced = [place for place, line in enumerate(lines) if TRACEBACK in line.text]
    return reported_end(lines[: traced[-1] if traced else None]) is not None


def broken_off(reading: Reading) -> BreakOff:
    """The end of incomplete logs, after any reported ends."""
    errors = [
        event
        for event in reading.events
        if (event.record.exception and not event.is_ignored and event.progress < SURVIVED)
        and is_open(reading, event.file, event.record.at)
    ]
    goes_on = reading.progress >= ENOUGH
    activity = last_activity(reading.last_lines.values())
    ends = {
        (line.file, line.number)
        for lines in reading.last_lines.values()
        for line in lines[-AROUND:]
    }
    complaints = [
        line
        for line in reading.complaints
        if (line.file, line.number) in ends
        and not (NO_COMPLAINT.search(line.text) or is_harmless(line.text))
    ]
    is_explained = goes_on or errors or activity is not None
    return BreakOff(
        errors[-1] if errors else None,
        tuple(_last(lines) for lines in reading.last_lines.values() if lines),
        goes_on,
        most_telling(complaints) if complaints and not is_explained else None,
        activity,
    )


def _last(lines: Sequence[Written]) -> Written:
    """The last line of a program, or of a text that has only a person's."""
    return next((line for line in reversed(lines) if not is_persons(line.text)), lines[-1])


def is_open(reading: Reading, file: str, number: float) -> bool:
    """Whether a line is after the reported end of its file's training, if there is one."""
    return file not in reading.ends or number > reading.ends[file].line.number
