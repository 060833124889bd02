"""Finds the last activity and the first complaint printed before a failure."""

from __future__ import annotations

import re
from itertools import takewhile

from ..evidence.failure_record import FailureRecord
from .last_words import COMPLAINT, REPORT, TRACED, complains
from .launcher_messages import death_of
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
    r"|.*\bKilling subprocess\b"
)


def output_before(record: FailureRecord) -> tuple[str, ...]:
    """The last line before a failure without a complaint, and the first with one.

    Leaves out the failure's message, Python's warnings and frames.
    """
    message = " ".join(f"{raised.exception}: {raised.message}" for raised in record.raised())
    told = " ".join(f"{message} {record.message}".split())
    lines = [" ".join(line.split()) for line in record.log_tail if not _NOISE.match(line)]
    lines = [line for line in lines if len(line) >= SHORTEST and line not in told]
    ordinary = [
        line
        for line in takewhile(lambda line: not FAILS.search(line), lines)
        if not COMPLAINT.search(line)
    ]
    complaints = [line for line in lines if complains(line) and death_of(0, line, None) is None]
    return tuple(dict.fromkeys([*ordinary[-1:], *complaints[:1]]))
