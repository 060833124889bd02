"""Errors: the exit codes, what the user must fix, refusals, and the reasons in Python's errors."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import zlib
from dataclasses import dataclass
from enum import IntEnum

EXPLAINED = "safe-launch explain wrong-loss"
"""The command that lists what to try if a training is wrong without an error."""
HINTS = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there: your quota is used up",
    errno.EFBIG: "raise the limit of a file's size: `ulimit -f unlimited`",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EACCES: "`namei -l PATH` shows who may use it",
    errno.EPERM: "`namei -l PATH` shows who may use it",
    errno.ENOTDIR: "`namei -l PATH` shows which part of the path is a file",
    errno.EISDIR: "name a file in it",
    errno.ELOOP: "its links form a loop",
    errno.EMFILE: "raise the limit: `ulimit -n 65536`",
    errno.ENFILE: "close programs: this host has no open files left",
    errno.EIO: "the disk or its network is at fault: see `dmesg`",
    errno.ESTALE: "mount its file system again",
    errno.ENOEXEC: "a script needs #! in its first line",
}
"""Hints on system errors that follow from the number alone."""
REPLACEMENTS = {
    # https://docs.python.org/3/library/stdtypes.html#integer-string-conversion-length-limitation
    re.compile(r"Exceeds the limit \((\d+) digits\)"): r"it has a number of more than \1 digits",
    re.compile(r"embedded null (?:byte|character)"): "it has a null character",
    re.compile(r"invalid literal for int\(\) with base \d+: (.*)"): r"\1 isn't a whole number",
    re.compile(r"could not convert string to float: (.*)"): r"\1 isn't a number",
    re.compile(r"No closing quotation"): "a quotation isn't closed",
    re.compile(r"No escaped character"): "nothing follows the backslash at its end",
}
"""Python's messages without any mention of files, and their replacements."""


class ExitCode(IntEnum):
    """The launcher's own exit codes, which are stable; `MEANINGS` explains them.

    Any other code is the failed worker's, 128 + N if signal N killed it. The numbers follow
    sysexits.h, whose range scripts hardly use.
    """

    SUCCESS = 0
    USAGE = 64
    INTERNAL = 70
    CANNOT_WRITE = 73
    RETRY_ELSEWHERE = 75
    NO_PLAN = 78


MEANINGS = {
    ExitCode.SUCCESS: "the script ran to its end on every rank",
    ExitCode.USAGE: "the command line, the script or a configuration file can't be used as it is",
    ExitCode.INTERNAL: "a bug in safe-launch",
    ExitCode.CANNOT_WRITE: "the run directory, or the output, can't be written",
    ExitCode.RETRY_ELSEWHERE: "a node is at fault, lost or never joined; try another allocation",
    ExitCode.NO_PLAN: "no settings that are known to work are left",
}
"""The meanings of the launcher's own exit codes, one line each."""


def meaning(code: int) -> str:
    """The meaning of one of the launcher's exit codes."""
    if code in MEANINGS:
        return MEANINGS[ExitCode(code)]
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return "the failed worker's own"
    if name in ("SIGINT", "SIGTERM", "SIGHUP"):
        return f"stopped by {name}"
    return f"a worker was ended by {name}"


class LaunchError(Exception):
    """An error that the user must fix before anything can be launched.

    Attributes:
        problem: what is wrong, with the setting or file and line.
        hint: what to do; empty if none is needed.
        code: the launcher's exit code.
    """

    def __init__(self, problem: str, hint: str = "", *, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.code = code

    @staticmethod
    def because(
        cause: BaseException, problem: str, hint: str = "", *, code: ExitCode = ExitCode.USAGE
    ) -> LaunchError:
        """The error that another one causes, whose reason follows the problem."""
        return LaunchError(f"{problem}: {reason_of(cause)}", hint_of(cause, hint), code=code)


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a request, and why, as a sentence to be printed."""

    sentence: str


def hint_of(error: BaseException, otherwise: str = "") -> str:
    """A hint on an error, followed by a clause that always helps; empty if there is neither."""
    known = HINTS.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    return ", or ".join(filter(None, (known, otherwise)))


def file_and_reason(error: BaseException) -> str:
    """The reason for an unusable file, with its name if the error has it."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return f"{os.fsdecode(error.filename)}: {reason_of(error)}"
    return reason_of(error)


def reason_of(error: BaseException) -> str:
    """Why something can't be used, as a clause that follows a colon."""
    match error:
        case UnicodeDecodeError():
            line = bytes(error.object).count(b"\n", 0, error.start) + 1
            byte = error.object[error.start]
            encoding = error.encoding.upper()
            return f"it isn't {encoding}, by the byte 0x{byte:02x} in line {line}"
        case UnicodeEncodeError():
            character = f"U+{ord(error.object[error.start]):04X}"
            return f"it has the character {character}, which {error.encoding} can't express"
        case OSError() if type(error).__name__ == "BadGzipFile":  # gzip isn't imported for this
            return "it isn't in gzip's format, or is damaged"
        case OSError():
            return error.strerror or _first_line(error)
        case json.JSONDecodeError():
            return f"it isn't JSON: {error.msg} in line {error.lineno}"
        case SyntaxError():
            return error.msg if error.lineno is None else f"{error.msg} in line {error.lineno}"
        case EOFError():
            return "it is cut off"
        case zlib.error():
            return "its compressed data is damaged"
        case RecursionError():
            return "it is nested too deeply"
        case MemoryError():
            return "it is too large for this host's memory"
        case OverflowError():
            return "it has a number that is out of range"
    return _of_text(error)


def _of_text(error: BaseException) -> str:
    """The clause for an error of a general type."""
    text = _first_line(error)
    for pattern, replacement in REPLACEMENTS.items():
        if match := pattern.match(text):
            return match.expand(replacement)
    # Of PyYAML, which isn't imported for this.
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if isinstance(problem, str):
        return problem if mark is None else f"{problem} in line {mark.line + 1}"
    return text


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
