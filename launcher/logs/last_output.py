"""Finds the reason for a worker's end in its output, if it reported none."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO

from ..catalogue.entry import KnownFailure
from ..diagnosis.root_cause import finding_of
from ..evidence.failure_record import HANG, FailureRecord, ToldBy
from ..evidence.from_exception import is_launcher_code
from .known_messages import by_message
from .launcher_messages import CHILD
from .reader import Reader
from .verdict import decisive, judge

MOST = 16
"""Maximum records whose output is read, earliest first, which include the root cause."""
LAST = 3
"""Last lines of an output to compare with messages of exceptions."""
DEADLY = (
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE),
    *(signal.SIGTERM, signal.SIGINT, signal.SIGABRT),
)
"""Fatal signals of a child that exit codes may represent."""

BEGINS = re.compile(r": |\(['\"]")
"""Prefixes of an exception's message: a script's text, or the type in its `repr`."""


def completed(
    records: Sequence[FailureRecord], catalogue: Sequence[KnownFailure]
) -> tuple[FailureRecord, ...]:
    """Completes records from the output of workers that didn't report their end."""
    silent = [place for place, record in enumerate(records) if _says_little(record)][:MOST]
    return tuple(
        _completed(record, catalogue) if place in silent else record
        for place, record in enumerate(records)
    )


def _says_little(record: FailureRecord) -> bool:
    """Whether the worker ended by itself without an exception.

    An external signal, or a processor fault, may come long after a caught exception.
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
    """The signal represented by an exit code.

    A shell's is 128 + N. Python's for a child is -N, of which `sys.exit` leaves the lowest byte.
    """
    if record.signal is not None or record.exit_code is None:
        return None
    code = record.exit_code
    return next((number for number in DEADLY if code in (128 + number, 256 - number)), None)


def _by_code(
    record: FailureRecord, number: signal.Signals, catalogue: Sequence[KnownFailure]
) -> FailureRecord:
    """The record of a worker that passes on its child's signal, if that is a known failure."""
    killed = replace(record, exception="", signal=number, told_by=ToldBy.EXIT_CODE)
    return record if finding_of(killed, catalogue).entry is None else killed


def _by_output(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> FailureRecord | None:
    """The record with the root cause from its output, read like any log."""
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
    frames = tuple(frame for frame in seen.frames if not is_launcher_code(frame.file))
    user_files = dict.fromkeys((*record.user_files, *seen.user_files))
    if not any(frame.file in user_files for frame in frames):
        frames = (*record.frames, *frames)  # a child's follow those of the worker that started it
    if seen.exception.rpartition(".")[2] == record.exception.rpartition(".")[2] != "":
        return None  # the same exception
    return replace(
        record,
        exception=seen.exception,
        message=seen.message,
        chain=seen.chain,
        frames=frames,
        traceback="",
        user_files=tuple(file for file in user_files if not is_launcher_code(file)),
        told_by=ToldBy.OUTPUT,
    )


def _by_last_line(record: FailureRecord, catalogue: Sequence[KnownFailure]) -> FailureRecord | None:
    """The record with one of its last lines as message, if it matches exactly one known failure.

    Scripts that catch an exception often print only its message.
    """
    bare = replace(record, chain=(), frames=(), traceback="", told_by=ToldBy.LAST_LINE)
    written = [line.strip() for line in record.log_tail if line.strip()]
    findings = (
        by_message(text, catalogue, bare, is_last=False)
        for line in written[: -LAST - 1 : -1]
        for text in (line, *(line[it.end() :].rstrip("'\")") for it in BEGINS.finditer(line)))
    )
    return next((finding.record for finding in findings if finding is not None), None)
