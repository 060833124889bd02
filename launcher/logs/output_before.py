"""Finds the last activity and the first complaint printed before a failure."""

from __future__ import annotations

import re
from itertools import takewhile

from ..evidence.failure_record import FailureRecord
from .last_words import COMPLAINT, REPORT, TRACED, complains
from .launcher_messages import CANCELLED, death_of
from .prefixes import TIME

FAILS = re.compile(
    r"Traceback \(most|[Ww]atchdog|ProcessGroup(?:NCCL|HCCL|Gloo)|\bterminate called\b"
    r"|\b(?:ERROR|FATAL)\b"
)
"""First lines of a failure."""
SHORTEST = 8
"""Minimum characters of an informative line."""
_NOISE = re.compile(
    rf"{TRACED.pattern}|[-=*#~\s]+$|\S*:\d+: \w*Warning:|{TIME}$|[$#>] |.*(?:{REPORT.pattern})"
    r"|.*\bKilling subprocess\b|\S+ FAILED$|[A-Za-z ]{1,30}:$|\(.*[^\W\d_]{3,}.*\)$"
    r"|[dlcbps-](?:[r-][w-][xsStT-]){3}[.+@]? |uid=\d+\("
)


def output_before(record: FailureRecord) -> tuple[str, ...]:
    """The last line before a failure without a complaint, and the first with one.

    Leaves out the failure's message, Python's warnings and frames.
    """
    ordinary = [
        line
        for line in takewhile(
            lambda line: not (FAILS.search(line) or _has_message(line, record)),
            _informative(record),
        )
        if not COMPLAINT.search(line)
    ]
    return tuple(dict.fromkeys([*ordinary[-1:], *complaints_before(record)[:1]]))


def complaints_before(record: FailureRecord) -> tuple[str, ...]:
    """The lines around a failure that complain, except launchers' reports of an end."""
    return tuple(
        line
        for line in _informative(record)
        if complains(line)
        and not (_has_message(line, record) or CANCELLED.search(line) or death_of(0, line, None))
    )


def _informative(record: FailureRecord) -> list[str]:
    """The lines around a failure without noise and the failure's message."""
    message = " ".join(f"{raised.exception}: {raised.message}" for raised in record.raised())
    reported = " ".join(f"{message} {record.message}".split())
    lines = [" ".join(line.split()) for line in record.log_tail if not _NOISE.match(line)]
    return [line for line in lines if len(line) >= SHORTEST and line not in reported]


def _has_message(line: str, record: FailureRecord) -> bool:
    """Whether a line has the failure's message, behind a header."""
    first = " ".join(record.message.partition("\n")[0].split())
    return bool(first) and first in line
