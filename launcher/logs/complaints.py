"""Finds lines that complain: at an end without a traceback, and before a failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile

from ..evidence.failure_record import FailureRecord
from ..frameworks.registry import COMMANDS
from .announced import ANNOUNCED, is_persons
from .exception_lines import SEVERE, stated_exception
from .launcher_messages import CANCELLED, ENDS, IS_START, death_of, is_of_another
from .prefixes import TIME
from .progress_signs import DOUBT, HARMLESS, STEP, Written

MOST = 3
"""Maximum lines to quote, the last ones."""
NEAR = 20
"""Lines to search before the launcher's report or the end."""
COMPLAINT = re.compile(
    rf"{DOUBT.pattern}|\b(?:cannot|can(?:no|')t|could(?: not|n't)|unable to|no such|not found"
    r"|denied|refused|invalid|missing|mismatch|unknown|unsupported|no space left|out of memory"
    r"|corrupt(?:ed|ion)?|exceed(?:s|ed)|violation|illegal)\b",
    re.IGNORECASE,
)
STARTED = rf"(?:\S*/)?(?:srun|mpirun|torchrun|deepspeed|python[\d.]*|{COMMANDS})"
"""Programs that start a training; a script continues without others, such as nvidia-smi."""
OF_ARGUMENTS = re.compile(
    r"^(?:\S+|[^:]{1,60}): error: (?:unrecognized arguments: |the following arguments are required"
    r"|one of the arguments .* is required|argument \S+: |invalid choice: )"
    r"|^Error: (?:No such (?:command|option)|Missing (?:option|argument|parameter)|Invalid value"
    r"|Option \S+ requires|Got unexpected extra argument)"
    r"|^(?:ERROR: )?Could not consume arg: |^ERROR: The function received no value for the required"
)
"""Message of a program that refuses its command line: by argparse, click, or Fire."""
REFUSED = re.compile(
    r"^\S+: (?:line )?\d+: (?:-{1,2}\w\S*|[+\w.]+=\S*): (?:command )?not found$"
    r"|^\S+: (?:line )?\d+: (?:arithmetic expression: |.*: division by 0|.*[Bb]ad substitution)"
    r"|(?:^|[:\s])(?:ba)?sh: (?:line \d+: )?(?:cd: )?\S+: No such file or directory"
    rf"|\bfailed to create process\.|{OF_ARGUMENTS.pattern}"
)
"""Last message of a shell, or of a program that refuses its command line."""
REJECTED = re.compile(
    rf"^(?:\w+: |\S+: (?:line )?\d+: )?{STARTED}: (?:(?:command )?not found|Permission denied"
    r"|No such file or directory)$"
    r"|^(?:\S+: )?(?!.*\.py:)[\w./-]+: (?:[Ee]rror: )?(?:unrecognized|unknown|invalid|illegal)"
    r" (?:option|flag)\b"
    r"|^(?:[Ee]rror: )?unknown (?:shorthand )?flag: |^mpi(?:run|exec): Error: unknown option"
    r"|^(?:sbatch|srun|salloc): (?:error|fatal): (?:Unable to (?:allocate|create)|CPU binding"
    r"|Batch job submission|[Ii]nvalid |Task launch for|[Tt]ask \S+ launch failed"
    r"|Application launch|Memory specification|Requested |Munge encode failed)"
    r"|^docker: Error response from daemon: |nvidia-container-cli: \w+ error: "
    r"|\bFailedScheduling\b.*\bnodes are available: "
    r"|^slurmstepd: error: (?:pyxis: (?:child|failed|couldn't)|execve\(\): )"
    r"|^ERROR: No matching distribution found for |^There are not enough slots available "
    r"|(?:^|: )(?:Host key verification failed\.|Permission denied \(publickey)"
    r"|\bfatal error: Killed signal terminated program "
    r"|: line \d+: (?:syntax error|unexpected EOF)|^make(?:\[\d+\])?: \*\*\* .*Stop\.$"
)
"""A refusal before Python begins: a program's of its command line, or a scheduler's, container
runtime's, installer's or shell's of the job; possibly with lines after it."""
NATIVE = re.compile(
    r"^\W*An error occurred in \w+|\bat line \d+ in file \S+\.\w+$|: undefined symbol: "
)
"""Messages of MPI (errhandler_predefined.c), of kernels' launchers and the dynamic loader."""
TRACED = re.compile(r"\s|Traceback \(most|.*\bstack trace\b")
REPORT = re.compile("|".join((*ENDS, r"Sending process \d+ closing signal", r"\w\.py FAILED\b")))
FAILS = re.compile(
    r"Traceback \(most|[Ww]atchdog|ProcessGroup(?:NCCL|HCCL|Gloo)|\bterminate called\b"
    r"|\b(?:ERROR|FATAL)\b"
)
"""First lines of a failure."""
SHORTEST = 8
"""Minimum characters of an informative line."""
NOISE = re.compile(
    rf"{TRACED.pattern}|[-=*#~\s]+$|\S*:\d+: \w*Warning:|{TIME}$|[$#>] |.*(?:{REPORT.pattern})"
    r"|#SBATCH |.*\bKilling subprocess\b|\S+ FAILED$|[A-Za-z ]{1,30}:$|\(.*[^\W\d_]{3,}.*\)$"
    r"|[dlcbps-](?:[r-][w-][xsStT-]){3}[.+@]? |uid=\d+\("
)


def before_report(lines: Iterable[Written]) -> Sequence[Written]:
    """The lines of the last attempt before the launcher's first report of its failure."""
    attempt: list[Written] = []
    is_reported = False
    for line in lines:
        if IS_START.search(line.text):
            attempt.clear()
            is_reported = False
            continue
        is_reported = is_reported or _is_report(line.text)
        if not is_reported:
            attempt.append(line)
    return attempt


def last_words(lines: Sequence[Written]) -> tuple[Written, ...]:
    """The last complaints of the lines before a report."""
    complaints: list[Written] = []
    for line in lines[-NEAR:]:
        if STEP.search(line.text):
            complaints.clear()  # it has been survived
        elif complains(line.text):
            complaints.append(line)
    return tuple(complaints)


def telling(lines: Sequence[Written], rank: int | None) -> tuple[Written, ...]:
    """A few complaints that may name the cause: refusals, or the first failed rank's errors."""
    of_rank = [line for line in lines if rank is not None and line.rank == rank]
    rejected = [line for line in lines if REJECTED.search(line.text)]
    severe = [line for line in of_rank or lines if SEVERE.search(line.text)]
    return tuple(rejected[:MOST] or severe[:MOST] or of_rank[:MOST] or lines[-MOST:])


def most_telling(lines: Sequence[Written]) -> Written:
    """The first refusal, line logged as an error or printed by native code, or else the last."""
    kinds = (
        (line for line in lines if words.search(line.text)) for words in (REJECTED, SEVERE, NATIVE)
    )
    return next(chain.from_iterable(kinds), lines[-1])


def complains(text: str) -> bool:
    """Whether a line complains, outside of tracebacks and reports on other processes."""
    exception = stated_exception(text)
    if (
        TRACED.match(text)
        or ANNOUNCED.search(text)
        or (exception and is_of_another(exception.kind, exception.message))
    ):
        return False
    return COMPLAINT.search(text) is not None and HARMLESS.search(text) is None


def _is_report(text: str) -> bool:
    """Whether a line is a launcher's report of the attempt's failure."""
    return REPORT.search(text) is not None or death_of(0, text, None) is not None


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
        and not is_persons(line)
        and not (_has_message(line, record) or CANCELLED.search(line) or death_of(0, line, None))
    )


def _informative(record: FailureRecord) -> list[str]:
    """The lines around a failure without noise and the failure's message."""
    message = " ".join(f"{raised.exception}: {raised.message}" for raised in record.raised())
    reported = " ".join(f"{message} {record.message}".split())
    lines = [" ".join(line.split()) for line in record.log_tail if not NOISE.match(line)]
    return [line for line in lines if len(line) >= SHORTEST and line not in reported]


def _has_message(line: str, record: FailureRecord) -> bool:
    """Whether a line has the failure's message, behind a header."""
    first = " ".join(record.message.partition("\n")[0].split())
    return bool(first) and first in line
