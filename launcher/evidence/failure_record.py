"""The evidence of a failure: what is known of one worker's death."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..core.settings import Value


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback: file, line number, function and the text of the line."""

    file: str
    line: int
    function: str
    source: str


ROUTINE = (
    *("ImportError", "ModuleNotFoundError", "AttributeError", "KeyError", "IndexError"),
    *("FileNotFoundError", "StopIteration", "PackageNotFoundError"),
)
"""Exceptions that scripts catch in the ordinary course, to try something else."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception.

    Attributes:
        exception: qualified name of its type.
        message: what it says.
        frame: where it was raised, if known.
        was_handled: what it led to was raised while it was handled, not from it.
    """

    exception: str
    message: str
    frame: Frame | None = None
    was_handled: bool = False

    @property
    def is_routine(self) -> bool:
        """Whether a script that handled it may have meant to: what came then is another failure."""
        return self.was_handled and self.exception.rpartition(".")[2] in ROUTINE


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """What is known of one worker's death: evidence, no interpretation.

    Attributes:
        rank: the worker's rank; None where a log doesn't tell.
        host: the node it ran on, where that isn't node 0.
        at: when it failed, in seconds of the host's monotonic clock, or its place in a log.
        exception: qualified name of the exception's type; empty for a death without one.
        message: the exception's message; without an exception the line of a log that tells of the
            failure, where it is known which.
        chain: the exceptions that led to it, nearest first.
        frames: frames of the traceback, outermost first, without the launcher's own.
        traceback: the traceback as Python prints it, without the launcher's own frames.
        step: optimizer steps done; None where nobody counts.
        parameters: names of the parameters concerned.
        observed: settings in force and facts seen in the worker, by name.
        model: what the model is: its class, counts of trainable and frozen parameters, whether
            peft wraps it.
        versions: versions of the frameworks that were imported.
        user_files: the loaded source files that belong to the user.
        exit_code: as a shell gives it, 128 + signal for a death by signal; None while it lives.
        signal: the signal that killed it; None where it ended by itself.
        oom_kills: how often the host's out-of-memory killer struck during the attempt.
        memory: bytes that the process, its device and its limits told of when it failed, by name:
            `data`, `resident`, `resident_peak`, `addresses`, `before_model`, `data_limit`,
            `cgroup_limit` of the process, `allocated`, `peak`, `reserved`, `free`, `total` of the
            device.
        log_tail: the last lines of its output.
        finished: the script had run to its end before this happened.
    """

    rank: int | None
    at: float
    exception: str = ""
    message: str = ""
    chain: tuple[Raised, ...] = ()
    frames: tuple[Frame, ...] = ()
    traceback: str = ""
    step: int | None = None
    parameters: tuple[str, ...] = ()
    observed: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    model: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    user_files: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    oom_kills: int = 0
    memory: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    log_tail: tuple[str, ...] = ()
    finished: bool = False
    host: str = ""

    def raised(self) -> Iterator[Raised]:
        """The exception and those that led to it, nearest first."""
        if self.exception:
            frame = self.frames[-1] if self.frames else None
            yield Raised(self.exception, self.message, frame)
            yield from self.chain

    def is_users_own(self, raised: Raised) -> bool:
        """Whether a `raise` of the user's own code raised it: whatever it says, it isn't known.

        What the operating system says is passed on by everybody.
        """
        frame = raised.frame
        return (
            frame is not None
            and raised.exception.rpartition(".")[2] != "OSError"
            and frame.file in self.user_files
            and frame.source.startswith(("raise ", "assert "))
        )
