"""The evidence of a failure: known facts about one worker's end, and its end in one line."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from ..core.limits import BYTES, Code, Count, Limit, Line, Moment, Rank, Settings, Words, number
from ..core.quantities import count_of
from ..core.settings import Value


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback: file, line number, function and the text of the line."""

    file: str
    line: int
    function: str
    source: str

    def is_of(self, ending: str) -> bool:
        """Whether its file's path has this ending, also with Windows' backslashes."""
        return self.file.replace("\\", "/").endswith(ending)


ROUTINE = (
    *("ImportError", "ModuleNotFoundError", "AttributeError", "KeyError", "IndexError"),
    *("FileNotFoundError", "StopIteration", "PackageNotFoundError"),
)
"""Exceptions that scripts routinely catch to try an alternative."""


COPIED = re.compile(
    r"(?:^|[\\/])(?:(?:modeling|modular|processing|configuration|tokenization|image_processing"
    r"|video_processing|feature_extraction)_\w+|flash_attention\w*|\w+_arch)\.py$"
)
"""A library's file by its name, of which a user's project may have a copy."""
HANG = "safe_launch.HangError"
"""The exception that represents a hanging run in a record; never raised."""


CHECK = "safe_launch.CheckError"
"""The exception that represents a run ended by `--check strict`."""


OWN_CHANGE = "safe_launch.OwnChangeError"
"""The exception that represents an attempt that trains wrongly due to a correction."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception.

    Attributes:
        exception: qualified name of its type.
        frame: the raising frame, if known.
        was_handled: whether the next exception was raised while handling this one, not from it.
    """

    exception: str
    message: str
    frame: Frame | None = None
    was_handled: bool = False

    @property
    def is_routine(self) -> bool:
        """Whether a script may have handled it on purpose, so the next exception is unrelated."""
        return self.was_handled and self.exception.rpartition(".")[2] in ROUTINE


class ToldBy(StrEnum):
    """The source of a record's exception or signal."""

    WORKER = "worker"
    OUTPUT = "output"
    LAST_LINE = "last line"
    EXIT_CODE = "exit code"


MODEL = {"class": str, "trainable_parameters": int, "frozen_parameters": int, "peft": bool}
"""Names and types of the fields from `Observations.describe_model`."""


def _describes_model(described: Mapping[str, Value]) -> bool:
    return all(type(value) is MODEL.get(name) for name, value in described.items())


def _are_sizes(memory: Mapping[str, int]) -> bool:
    return all(0 <= size <= BYTES for size in memory.values())


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """Evidence of one worker's end, without interpretation.

    Attributes:
        rank: the worker's rank; None if missing in a log.
        local_rank: its index among its launcher's workers; None if unknown.
        pid: its process id; None if unknown.
        host: its node; empty for node 0.
        at: time of the failure, in seconds of the host's monotonic clock, or its place in a log.
        exception: qualified name of the exception's type; empty for an end without an exception.
        message: the exception's message; without an exception, a log line that reports the
            failure, if known.
        chain: earlier exceptions in its chain, nearest first.
        frames: frames of the traceback, outermost first, without the launcher's.
        traceback: the traceback as Python prints it, without the launcher's frames.
        step: optimizer steps done; None if unknown.
        parameters: names of the parameters involved.
        observed: settings in force and facts observed in the worker, by name.
        model: description of the model: its class, counts of trainable and frozen parameters,
            whether peft wraps it.
        versions: versions of the imported frameworks.
        user_files: the user's loaded source files.
        exit_code: as in a shell, 128 + signal for a death by signal; None while it runs.
        signal: the signal that killed it; None if it ended by itself.
        oom_kills: number of the host's out-of-memory kills during the attempt.
        memory: bytes in use and limits at the failure, by name:
            `data`, `resident`, `resident_peak`, `addresses`, `before_model`, `data_limit`,
            `cgroup_limit` of the process, `allocated`, `peak`, `reserved`, `free`, `total` of the
            device.
        log_tail: the last lines of its output.
        finished: whether the script had completed.
        mistyped: arguments unknown to the script's parser, or to a called function, each with the
            nearest known one.
        start: steps done before the attempt began, by a resume.
        has_trained: whether the script had completed another training before.
        told_by: source of the exception or signal: the worker itself, a traceback in its output,
            one of its last lines, or an exit code that represents a signal.
    """

    rank: Rank | None
    at: Moment
    exception: Line = ""
    message: str = ""
    chain: tuple[Raised, ...] = ()
    frames: tuple[Frame, ...] = ()
    traceback: str = ""
    step: Count | None = None
    parameters: tuple[str, ...] = ()
    observed: Settings = field(default_factory=lambda: MappingProxyType({}))
    model: Annotated[Mapping[str, Value], Limit("a model's description", _describes_model)] = field(
        default_factory=lambda: MappingProxyType({})
    )
    versions: Words = field(default_factory=lambda: MappingProxyType({}))
    user_files: tuple[str, ...] = ()
    exit_code: Code | None = None
    signal: Annotated[int, number(1, 64)] | None = None
    oom_kills: Count = 0
    memory: Annotated[Mapping[str, int], Limit("numbers of bytes", _are_sizes)] = field(
        default_factory=lambda: MappingProxyType({})
    )
    log_tail: tuple[str, ...] = ()
    finished: bool = False
    has_trained: bool = False
    start: Count = 0
    mistyped: Words = field(default_factory=lambda: MappingProxyType({}))
    host: str = ""
    local_rank: int | None = None
    pid: int | None = None
    told_by: ToldBy = ToldBy.WORKER

    def raised(self) -> Iterator[Raised]:
        """The exception and its chain, nearest first."""
        if self.exception:
            frame = self.frames[-1] if self.frames else None
            yield Raised(self.exception, self.message, frame)
            yield from self.chain

    def is_raised_by_user(self, raised: Raised) -> bool:
        """Whether a `raise` in the user's code raised it, which no entry matches.

        Operating system errors don't count, as any code passes them on, nor do copies of libraries'
        files.
        """
        frame = raised.frame
        return (
            frame is not None
            and raised.exception.rpartition(".")[2] != "OSError"
            and not raised.message.startswith("[Errno ")
            and frame.file in self.user_files
            and not COPIED.search(frame.file)
            and frame.source.startswith(("raise ", "assert "))
        )


def death_text(record: FailureRecord) -> str:
    """Describes the worker or node and its end."""
    who = "a worker" if record.rank is None else f"rank {record.rank}"
    if record.host:
        who += f" on {record.host}"
    done = ""
    if record.step is not None:
        steps = record.step - record.start
        done = f" after {count_of(steps, 'step')}"
        done += f" from step {record.start} on" if record.start else ""
    if record.exception == HANG:
        return f"{'the run' if record.rank is None else who} stood still{done}"
    left = f"{who} left with exit code {record.exit_code}"
    if record.told_by is ToldBy.EXIT_CODE and record.signal is not None:
        return f"{left}{done}, as after {signal_text(record.signal)}"
    if record.told_by is not ToldBy.WORKER:
        aborted = f"{who} was ended by {signal.Signals.SIGABRT.name}"
        return f"{left if record.signal is None else aborted}{done}; {_shown(record)}"
    if record.exception.endswith("SystemExit"):
        return f"{left}{done}"
    if record.exception:
        return f"{who} raised {record.exception.rpartition('.')[2]}{done}"
    if record.signal is not None:
        if record.signal == signal.SIGKILL and record.oom_kills:
            text = "the kernel's out-of-memory killer struck on this host meanwhile"
            return f"{who} was ended by SIGKILL ({text})"
        return f"{who} was ended by {signal_text(record.signal)}"
    if record.exit_code is None and record.message:
        return record.message  # a node, not a worker
    return left


def title_of(record: Mapping[str, Any]) -> str:
    """The exception with its message, else the exit code, of a record in JSON."""
    kind = str(record.get("exception") or "").rpartition(".")[2]
    message = str(record.get("message") or "").strip()
    return ": ".join(filter(None, (kind, message))) or f"exit code {record.get('exit_code')}"


def _shown(record: FailureRecord) -> str:
    """The reason for a worker's end, from its output."""
    if record.told_by is ToldBy.LAST_LINE or not record.exception:
        return "its last output says why"
    return f"its output shows {record.exception.rpartition('.')[2]}"


def signal_text(number: int) -> str:
    """Describes a fatal signal with its usual sender or cause."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
    meaning = {
        "SIGKILL": "from outside: the kernel's or the container's out-of-memory killer, the "
        "scheduler, or a person; `dmesg` or the cgroup's memory.events shows",
        "SIGTERM": "from outside: the scheduler or a person",
        "SIGSEGV": "invalid memory access in native code",
        "SIGABRT": "native code gave up; its message is the last in the log",
        "SIGBUS": "often /dev/shm is full: data loaders need a larger --shm-size",
        "SIGFPE": "arithmetic error in native code",
        "SIGILL": "an instruction that this processor doesn't have",
    }.get(name)
    return f"{name} ({meaning})" if meaning else name
