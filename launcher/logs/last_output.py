"""The reason for a worker's end in its last output, if the worker sent none."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO

from ..catalogue.entry import KnownFailure
from ..diagnosis.root_cause import finding_of
from ..evidence.failure_record import HANG, FailureRecord, ToldBy
from ..evidence.from_exception import is_ours
from .launcher_messages import CHILD
from .messages import by_message
from .reader import Reader
from .verdict import decisive, judge

MOST = 16
"""Records whose output is read at most: the earliest, among which is the root cause."""
LAST = 3
"""Lines at the end of an output that are compared with messages of exceptions."""
DEADLY = (
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE),
    *(signal.SIGTERM, signal.SIGINT, signal.SIGABRT),
)
"""Signals that exit codes stand for, if a child was ended by them."""

BEGINS = re.compile(r": |\(['\"]")
"""Prefixes of an exception's message in a line: a script's words, or its type in `repr`."""


def completed(
    records: Sequence[FailureRecord], catalogue: Sequence[KnownFailure]
) -> tuple[FailureRecord, ...]:
    """The records, completed from the output of workers that didn't report their end."""
    silent = [place for place, record in enumerate(records) if _says_little(record)][:MOST]
    return tuple(
        _completed(record, catalogue) if place in silent else record
        for place, record in enumerate(records)
    )


def _says_little(record: FailureRecord) -> bool:
    """Whether its worker ended by itself, and without an exception.

    A signal from outside, or a fault of the processor, may come long after a caught exception.
    """
    is_bare = record.exception.rpartition(".")[2] in ("", *CHILD)
    is_worker = record.rank is not None and record.exception != HANG
    return is_bare and is_worker and record.signal in (None, signal.SIGABRT)


def _completed(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> FailureRecord:
    if finding_of(record, catalogue).entry is not None:
        return record
    number = _signal_of(record)
    if number is not None and number is not signal.SIGABRT:
        return _by_code(record, number, catalogue)
    return _by_output(record, catalogue) or _by_last_line(record, catalogue) or record


def _signal_of(record: FailureRecord) -> signal.Signals | None:
    """The signal that an exit code stands for.

    A shell's is 128 + N. Python's for a child is -N, of which `sys.exit` leaves the lowest byte.
    """
    if record.signal is not None or record.exit_code is None:
        return None
    code = record.exit_code
    return next((number for number in DEADLY if code in (128 + number, 256 - number)), None)


def _by_code(
    record: FailureRecord, number: signal.Signals, catalogue: Sequence[KnownFailure]
) -> FailureRecord:
    """The record of a worker that passes on how its child was ended, if that is a known failure."""
    told = replace(record, exception="", signal=number, told_by=ToldBy.EXIT_CODE)
    return record if finding_of(told, catalogue).entry is None else told


def _by_output(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> FailureRecord | None:
    """The record with the root cause by its output, as if that were a log from elsewhere."""
    reader = Reader(catalogue)
    reader.read(
        f"rank-{record.rank}.log",
        BytesIO("\n".join(record.log_tail).encode(errors="backslashreplace")),
    )
    root = decisive(judge(reader.attempts, catalogue)).root
    if root is None or root.evidence.is_spoken:
        return None
    seen = root.finding.record
    if not (seen.exception or root.finding.entry):
        return None
    frames = tuple(frame for frame in seen.frames if not is_ours(frame.file))
    user_files = dict.fromkeys((*record.user_files, *seen.user_files))
    if seen.exception.rpartition(".")[2] == record.exception.rpartition(".")[2] != "":
        return None  # its own traceback
    return replace(
        record,
        exception=seen.exception,
        message=seen.message,
        chain=seen.chain,
        frames=frames,
        traceback="",
        user_files=tuple(file for file in user_files if not is_ours(file)),
        told_by=ToldBy.OUTPUT,
    )


def _by_last_line(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> FailureRecord | None:
    """The record with one of its last lines as a message, if just one known failure has it.

    A script that catches an exception often prints its message alone.
    """
    bare = replace(record, chain=(), frames=(), traceback="", told_by=ToldBy.LAST_LINE)
    written = [line.strip() for line in record.log_tail if line.strip()]
    found = (
        by_message(text, catalogue, bare, is_last=False)
        for line in written[: -LAST - 1 : -1]
        for text in (line, *(line[it.end() :].rstrip("'\")") for it in BEGINS.finditer(line)))
    )
    return next((finding.record for finding in found if finding is not None), None)
