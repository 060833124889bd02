"""Judges the ends of logs: what failed after the training, and how an incomplete log breaks off."""

from __future__ import annotations

import re

from ..catalogue.entry import Role
from ..diagnosis.next_step.activities import EXITS
from .attempts import ENOUGH, SURVIVED, Reading
from .exception_lines import SEVERE
from .judgement import BreakOff, Failure
from .progress_signs import IS_PROGRESS, STEP, last_activity, reported_end

PEER_LEFT = re.compile(r"[Cc]onnection (?:closed|reset) by (?:remote )?peer")
"""Messages of a rank whose peer has ended."""
CLEANUP = re.compile(r"clean_?up|rmtree|shutdown|destroy_process_group|_exit_function")
"""Names of functions that run after the training."""
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

    def is_open(file: str, number: float) -> bool:
        return file not in reading.ends or number > reading.ends[file].line.number

    def has_steps(file: str, number: float) -> bool:
        lines = reading.last_lines.get(file, ())
        return any(line.number > number and STEP.search(line.text) for line in lines)

    errors = [
        event
        for event in reading.events
        if (event.record.exception and not event.is_ignored and event.progress < SURVIVED)
        and is_open(event.file, event.record.at)
    ]
    return BreakOff(
        errors[-1] if errors else None,
        tuple(lines[-1] for lines in reading.last_lines.values() if lines),
        next((place for place in reading.cut if is_open(*place) and not has_steps(*place)), None),
        reading.progress >= ENOUGH,
        last_activity(reading.last_lines.values()),
    )
