"""Finds the failure of a run whose log has no exception: a refusal, a complaint, or words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from ..catalogue.entry import Finding, Role
from ..evidence.failure_record import FailureRecord
from .attempts import Evidence, Reading
from .failures import Failure
from .last_words import REFUSED, REJECTED, most_telling
from .launcher_messages import CANCELLED
from .progress_signs import STEP, Written
from .told_words import told


def without_exception(reading: Reading) -> Iterator[Failure]:
    """The failures that only lines at the ends of files show."""
    for line in [*_refusals(reading)] or [*_complaints(reading)]:
        finding = of_line(line.rank, line.number, line.text)
        shown = ((line.number, line.text.strip()),)
        yield Failure(finding, Evidence(finding.record, line.file, shown))


def before_stop(reading: Reading) -> Iterator[Failure]:
    """The refusals before a run was stopped, if no training had begun.

    A launcher or a person that waits in vain is stopped at some time, which isn't the cause.
    """
    said = [line for line in reading.complaints if not CANCELLED.search(line.text)]
    told = (line for line in said if REJECTED.search(line.text))
    last = (line for line in said[-1:] if REFUSED.search(line.text))
    for line in islice(chain(told, last, _refusals(reading)), 1):
        finding = of_line(None, line.number, line.text)
        shown = ((line.number, line.text.strip()),)
        yield Failure(finding, Evidence(finding.record, line.file, shown))


def of_line(rank: int | None, at: float, text: str) -> Finding:
    """The finding of a line that nothing explains."""
    return Finding(FailureRecord(rank, float(at), message=text.strip()), Role.INITIATING, None)


def _refusals(reading: Reading) -> Iterator[Written]:
    """A shell's or a program's refusal of a command line, before any step of a training."""
    for file, lines in reading.last_lines.items():
        if file in reading.ends or any(STEP.search(line.text) for line in lines):
            continue
        rejected = (line for line in lines if REJECTED.search(line.text))
        last = (line for line in lines[-1:] if REFUSED.search(line.text))
        for line in islice(chain(rejected, last), 1):
            yield replace(line, rank=None)  # no rank has begun


def _complaints(reading: Reading) -> Iterator[Written]:
    """The last complaint of a run that ended or stands still in somebody's words, or the words.

    Without such words an error at a log's end may be one that the run survives.
    """
    for file, lines in reading.last_lines.items():
        if not lines or file in reading.ends:
            continue
        complaints = [line for line in reading.complaints if line.file == file]
        if words := told(reading.first_lines.get(file, ()), lines):
            yield most_telling(complaints) if complaints else words
