"""Finds the failure of a run whose log has no exception: a refusal, a complaint, or words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from ..catalogue.entry import Finding, Role
from ..evidence.failure_record import FailureRecord
from .attempts import Evidence, Reading
from .failures import Failure
from .last_words import REFUSED, REJECTED, most_telling
from .launcher_messages import CANCELLED
from .progress_signs import STEP, Written
from .users_words import users_words


def without_exception(reading: Reading) -> Iterator[Failure]:
    """The failures that only lines at the ends of files show."""
    return map(_failure, [*_refusals(reading)] or _complaints(reading))


def before_stop(reading: Reading) -> Iterator[Failure]:
    """The refusal before a run was stopped, if no training had begun.

    A launcher or a person that waits in vain is stopped at some time, which isn't the cause.
    """
    complaints = [line for line in reading.complaints if not CANCELLED.search(line.text)]
    return map(_failure, islice(chain(_refusal_in(complaints), _refusals(reading)), 1))


def of_line(rank: int | None, at: float, text: str) -> Finding:
    """The finding of a line that nothing explains."""
    return Finding(FailureRecord(rank, float(at), message=text.strip()), Role.INITIATING, None)


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
    """The first refusal that may have lines after it, or else the last line if it is one."""
    rejected = (line for line in lines if REJECTED.search(line.text))
    last = (line for line in lines[-1:] if REFUSED.search(line.text))
    for line in islice(chain(rejected, last), 1):
        yield replace(line, rank=None)  # no rank has begun


def _complaints(reading: Reading) -> Iterator[Written]:
    """The last complaint of each file in which a user reports an end or a hang, or that report.

    Without such a report, the run may have survived an error at its log's end.
    """
    for file, lines in reading.last_lines.items():
        if not lines or file in reading.ends:
            continue
        complaints = [line for line in reading.complaints if line.file == file]
        if words := users_words(reading.first_lines.get(file, ()), lines):
            yield most_telling(complaints) if complaints else words
