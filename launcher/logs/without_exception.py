"""Finds the failure of a run whose log has no exception: a message, a refusal, a complaint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest

from ..catalogue.entry import Finding, KnownFailure, Role
from ..diagnosis.next_step.complaints import complaint_in
from ..diagnosis.next_step.instruction import INSTRUCTION
from ..evidence.failure_record import FailureRecord
from .announced import LOGGED, told
from .attempts import Evidence, Reading
from .complaints import OF_ARGUMENTS, REFUSED, REJECTED, most_telling
from .exception_lines import CONTINUES, HANDLED, LONGEST_LINE, SPOKEN
from .judgement import Failure
from .known_messages import by_line, by_message
from .launcher_messages import CANCELLED
from .progress_signs import STEP, Written
from .traceback_parts import OF_PERSON

AROUND = 3
"""Lines to search at either end of a log."""
WAITS = re.compile(
    r"\b(?:cannot be scheduled|wait(?:ing|s)?|still|pending|insufficient|retry\w*|unable to"
    r"|(?:can't|cannot|could not) (?:connect|reach|find)|not (?:yet )?(?:available|ready))\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d[\w.:,]*")
OFTEN = 3
"""Minimum repetitions, with other times, of what a run waits for."""
PROMPT = re.compile(r"(?:\([\w.-]+\) )?(?:\[?[\w.-]+@[\w.-]+[^$#\n]{0,80})?[$#] \S")
"""A shell's prompt with the next command."""
USAGE = re.compile(r"\s|[Uu]sage: |For detailed information on this command")
"""Lines of a program's usage."""
RESTARTED = re.compile(r"\brestart(?:ing|s|ed)? it\b|\bfor \d+ (?:seconds?|minutes?)\b")
"""Words of what doesn't stand for good."""
VARIABLE = re.compile(r"\b(?:[A-Z]+_)*(?:RANK|SIZE)=\d+")
"""A variable of the launch in somebody's sentence."""
DOUBTED = re.compile(r"\b(?:may|might|can|could|avoid|if|seems?|looks?)\b|\?\?", re.IGNORECASE)


def failures_by_message(reading: Reading, catalogue: Sequence[KnownFailure]) -> Iterator[Failure]:
    """Known failures whose messages begin or end with a text, and what a person calls the error."""
    for file, lines in reading.last_lines.items():
        if file in reading.ends or not lines:
            continue
        raised = any(event.record.exception for event in reading.events)
        is_told = not (raised or reading.deaths)
        announced, quoted = told(lines) if is_told else (None, ())
        for line in dict.fromkeys((lines[0], lines[-1], announced or lines[-1], *quoted)):
            if SPOKEN.search(line.text, 0, LONGEST_LINE):
                continue
            record = FailureRecord(None, float(line.number))
            is_first = line in (lines[0], announced, *quoted)
            ends = {"is_first": is_first, "is_last": line is lines[-1]}
            finding = by_message(line.text, catalogue, record, **ends)
            if finding is not None and reading.is_last(file, line.number, len(lines)):
                place = (line.number, line.text)
                yield Failure(finding, Evidence(finding.record, file, (place,), is_spoken=True))
        if announced:
            failure = _failure(announced)
            finding = by_line(announced.text, catalogue, failure.finding.record)
            yield in_context(replace(failure, finding=finding), reading) if finding else failure


def without_exception(reading: Reading) -> Iterator[Failure]:
    """The failures that only lines at the ends of files show."""
    refusals = [in_context(_failure(line), reading) for line in _refusals(reading)]
    return iter(refusals) if refusals else _complaints(reading)


def before_stop(reading: Reading) -> Iterator[Failure]:
    """The refusal before a run was stopped, if no training had begun, or what it waited for.

    A launcher or a person that waits in vain is stopped at some time, which isn't the cause.
    """
    complaints = [line for line in reading.complaints if not CANCELLED.search(line.text)]
    causes = chain(_refusal_in(complaints), _refusals(reading), _repeated(reading))
    return map(_failure, islice(causes, 1))


def of_line(rank: int | None, at: float, text: str) -> Finding:
    """The finding of a line that nothing explains."""
    return Finding(FailureRecord(rank, float(at), message=text.strip()), Role.INITIATING, None)


def in_context(failure: Failure, reading: Reading) -> Failure:
    """An end without an exception, with the lines before it."""
    tail = reading.context.get(failure.evidence.file, ())
    record = replace(failure.finding.record, log_tail=tail)
    return replace(failure, finding=replace(failure.finding, record=record))


def _failure(line: Written) -> Failure:
    finding = of_line(line.rank, line.number, line.text)
    return Failure(
        finding, Evidence(finding.record, line.file, ((line.number, line.text.strip()),))
    )


def _refusals(reading: Reading) -> Iterator[Written]:
    """A shell's or a program's refusal of a command line, before any step of a training."""
    for file, lines in reading.last_lines.items():
        if file not in reading.ends and not any(STEP.search(line.text) for line in lines):
            yield from _refusal_in(lines)


def _refusal_in(lines: Sequence[Written]) -> Iterator[Written]:
    """The first refusal that may have lines after it, or else one before the end or a prompt.

    A program's of its arguments may have its usage after it, or a person's words.
    """
    rejected = (line for line in lines if REJECTED.search(line.text))
    told = next((at for at, line in enumerate(lines) if OF_ARGUMENTS.search(line.text)), len(lines))
    if all(USAGE.match(line.text) or OF_PERSON.search(line.text) for line in lines[told + 1 :]):
        lines = lines[: told + 1]
    last = (
        line
        for line, after in zip_longest(lines, lines[1:])
        if REFUSED.search(line.text) and (after is None or PROMPT.match(after.text))
    )
    for line in islice(chain(rejected, last), 1):
        yield replace(line, rank=None)  # no rank has begun


def _repeated(reading: Reading) -> Iterator[Written]:
    """The warning, with advice, that a run without a later step repeated until its end."""
    for file, lines in reading.last_lines.items():
        told: dict[tuple[int | None, str], dict[str, Written]] = {}
        for line in () if file in reading.ends else lines:
            if STEP.search(line.text):
                told.clear()
            elif WAITS.search(line.text) and INSTRUCTION.search(line.text):
                words = line.rank, NUMBER.sub("#", line.text)
                told.setdefault(words, {})[line.text] = line
        yield from (next(reversed(each.values())) for each in told.values() if len(each) >= OFTEN)


def _complaints(reading: Reading) -> Iterator[Failure]:
    """The last complaint of each file in which a user reports an end or a hang, or that report.

    Without such a report, the run may have survived an error at its log's end.
    """
    for file, lines in reading.last_lines.items():
        if not lines or file in reading.ends:
            continue
        complaints = [line for line in reading.complaints if line.file == file]
        if words := _users_words(reading.first_lines.get(file, ()), lines):
            failure = _failure(most_telling(complaints) if complaints else words)
            yield in_context(failure, reading)


def _users_words(first: Sequence[Written], last: Sequence[Written]) -> Written | None:
    """A user's sentence that the run ended by itself, hangs, or trains wrongly, if any.

    A sentence above steps at the log's end may be about another run, unless it is about them.

    Args:
        first: the first lines of the log.
        last: its last lines.
    """
    has_steps = any(STEP.search(line.text) for line in last)
    for line in (*last[-AROUND:], *first[:AROUND]):
        words = VARIABLE.sub("", line.text)
        is_prose = not any(
            others.search(words) for others in (LOGGED, DOUBTED, HANDLED, CONTINUES, RESTARTED)
        )
        complaint = complaint_in(line.text) if is_prose else None
        if complaint and (line in last[-AROUND:] or complaint.is_of_steps or not has_steps):
            return line
    return None
