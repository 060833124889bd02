"""The evidence of a failure, the failures that are known, and the judgement that joins them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from .constraint import Term
from .settings import Fact, Value


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback: file, line number, function and the text of the line."""

    file: str
    line: int
    function: str
    source: str


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a user's source file: path, line number and the text of the line.

    Attributes:
        change: the line as it should be, where that can be told from it alone.
    """

    file: str
    line: int
    text: str
    change: str | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: qualified name of its type, its message, and where it was raised if known."""

    exception: str
    message: str
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """What is known of one worker's death: evidence, no interpretation.

    Attributes:
        rank: the worker's rank; None where a log doesn't tell.
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
            and frame.source.startswith("raise ")
        )


class Role(StrEnum):
    """The place of a failure in the chain of events."""

    INITIATING = "initiating"
    """It is where the trouble began."""
    CASCADE = "cascade"
    """It is another rank's death, seen from here."""
    TEARDOWN = "teardown"
    """It comes from stopping the workers."""


class Kind(StrEnum):
    """What ends a failure."""

    PRESET = "preset"
    """Another preset cures it."""
    TRANSIENT = "transient"
    """The same preset may be tried again, a bounded number of times."""
    USER = "user"
    """The code, the data or the environment must change."""
    HARDWARE = "hardware"
    """It needs another node."""
    MEMORY = "memory"
    """A smaller plan cures it; which one, the memory model computes."""
    SILENT = "silent"
    """It raises nothing and trains wrongly: refused before the launch."""


class Pattern(Protocol):
    """A compiled regular expression."""

    @property
    def pattern(self) -> str:
        """Its text."""

    def search(self, text: str, /) -> Any:
        """A match anywhere in the text, or None."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One way that a failure shows itself; every part that is given must match.

    Messages and lines are searched with every run of white space as a single space, since logs
    wrap them. Without a part of an exception it is the signature of a death without one, or of
    a line that native code says, on its own or in an exception's message.

    Attributes:
        exception: name of the exception's type, without its module.
        message: pattern searched in the message.
        file: end of the path of the raising frame's file.
        function: the raising frame's function.
        source: pattern searched in the raising frame's source line.
        log: pattern searched in each of the last lines of the worker's log.
        context: pattern of another of those lines, before or after.
        signal: number of the signal that ended the worker.
        oom_kill: the host's out-of-memory killer struck meanwhile; without a part of an exception
            the worker itself was killed.
        finished: the script had run to its end before.
        is_of_anybody: it is also shown by what the user's own code raises, as a cluster's own
            failures are; those of the frameworks aren't.
    """

    exception: str | None = None
    message: Pattern | None = None
    file: str | None = None
    function: str | None = None
    source: Pattern | None = None
    log: Pattern | None = None
    context: Pattern | None = None
    signal: int | None = None
    oom_kill: bool = False
    finished: bool = False
    is_of_anybody: bool = False

    @property
    def is_of_exception(self) -> bool:
        """Whether it is about an exception."""
        parts = (self.exception, self.message, self.file, self.function, self.source)
        return any(part is not None for part in parts)

    def weight(self, raised: Raised | None) -> int:
        """How many of its parts are shown: of two that match, the one with more is about less.

        Args:
            raised: the exception that it matches, whose frame may be unknown; None where it matches
                a death without one.
        """
        of_frame = ("file", "function", "source") if raised and raised.frame is None else ()
        parts = [one.name for one in fields(self) if one.name not in ("is_of_anybody", *of_frame)]
        return sum(getattr(self, name) not in (None, False) for name in parts)

    def matched(self, record: FailureRecord) -> int | None:
        """How far back in the chain of exceptions it matches, 0 for none; None: not at all."""
        if (self.oom_kill and record.oom_kills == 0) or (self.finished and not record.finished):
            return None
        if self.is_of_exception:
            depths = [
                at
                for at, one in enumerate(record.raised())
                if self._is_shown_by(one)
                and (self.file or self.is_of_anybody or not record.is_users_own(one))
            ]
            if not depths:
                return None
        elif record.exception and (self.log is None or record.is_users_own(next(record.raised()))):
            return None
        said = _collapsed(tuple(record.message.splitlines()))
        around = _collapsed(record.log_tail)
        if self.context is not None and not any(map(self.context.search, (*around, *said))):
            return None
        if self.is_of_exception:
            is_told = self.log is None or any(map(self.log.search, (*around, *said)))
            return depths[-1] if is_told else None
        told = said if said or record.exception else around
        if self.log is not None and not any(map(self.log.search, told)):
            return None
        deadly = signal.SIGKILL if self.oom_kill else self.signal
        return 0 if deadly in (None, record.signal) else None

    def _is_shown_by(self, raised: Raised) -> bool:
        """Whether an exception shows it; an unknown frame is no mismatch beside a message."""
        if self.exception not in (None, raised.exception.rpartition(".")[2]):
            return False
        frame = raised.frame
        if frame is None and self.message is not None:
            is_there = True
        else:
            frame = frame or Frame("", 0, "", "")
            is_there = (
                (self.file is None or frame.file.endswith(self.file))
                and (self.function is None or frame.function == self.function)
                and (self.source is None or self.source.search(frame.source) is not None)
            )
        if not is_there or self.message is None:
            return is_there
        # In a log other processes' lines may follow the message: its first line is tried alone.
        first, _, rest = raised.message.partition("\n")
        texts = (raised.message,) if rest[:1].isspace() else (raised.message, first)
        return any(map(self.message.search, _collapsed(texts)))


@lru_cache(maxsize=64)
def _collapsed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Texts with every run of white space as a single space."""
    return tuple(" ".join(text.split()) for text in texts)


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One file of `presets/failures/`.

    Attributes:
        id: the file's name; names the pattern, never the remedy.
        title: what a person would search for.
        role: its place in the chain of events.
        kind: what ends it (`class` in the file).
        signatures: the ways that it shows itself.
        when: version ranges of the distributions that have it, by name; all must hold.
        proves: facts that are known once it has been seen.
        forbids: conjunctions of terms that lead to it.
        points_at: name of the search that finds the user's own line, see `launcher/source.py`.
        proof: how it is known to hold.
        sources: where to read on, the best first.
        sections: the prose, by heading.
        path: the file.
    """

    id: str
    title: str
    role: Role
    kind: Kind
    signatures: tuple[Signature, ...]
    when: Mapping[str, str]
    proves: Mapping[Fact, Value]
    forbids: tuple[tuple[Term, ...], ...]
    points_at: str | None
    proof: tuple[str, ...]
    sources: tuple[str, ...]
    sections: Mapping[str, str]
    path: Path

    def matches(self, record: FailureRecord) -> bool:
        """Whether any signature is shown by the record."""
        return any(signature.matched(record) is not None for signature in self.signatures)


@dataclass(frozen=True, slots=True)
class Finding:
    """One rank's record, its role, and the entry that explains it, if any."""

    record: FailureRecord
    role: Role
    entry: KnownFailure | None

    @property
    def name(self) -> str:
        """What tells it from another cause: its entry, else its exception's words."""
        if self.entry is not None:
            return self.entry.id
        text = " ".join(self.record.message.split())[:80]
        return f"{self.record.exception.rpartition('.')[2]}: {text}".rstrip(": ")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The judgement on a failed attempt.

    Attributes:
        findings: every failed rank, the root first.
    """

    findings: tuple[Finding, ...]

    @property
    def root(self) -> Finding:
        """What began it."""
        return self.findings[0]

    @property
    def others(self) -> tuple[Finding, ...]:
        """Causes beside the root that don't come from it, each once."""
        if self.root.role is not Role.INITIATING:
            return ()
        causes = {one.name: one for one in reversed(self.findings) if one.role is self.root.role}
        return tuple(one for name, one in reversed(causes.items()) if name != self.root.name)
