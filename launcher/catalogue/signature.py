"""Signatures: how a known failure is recognized in the evidence."""

from __future__ import annotations

import signal
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Protocol

from ..evidence.failure_record import FailureRecord, Frame, Raised


class Pattern(Protocol):
    """A compiled regular expression."""

    @property
    def pattern(self) -> str:
        """Its text."""

    def search(self, text: str, /) -> Any:
        """A match anywhere in the text, or None."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to recognize a failure; every part that is given must match.

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
        also_user_code: it is also shown by what the user's own code raises, as a cluster's own
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
    also_user_code: bool = False

    @property
    def is_of_exception(self) -> bool:
        """Whether it is about an exception."""
        is_of_frame = not (self.file is None and self.function is None and self.source is None)
        return self.exception is not None or self.message is not None or is_of_frame

    def weight(self, raised: Raised | None) -> int:
        """How many of its parts are shown: of two that match, the one with more is about less.

        Args:
            raised: the exception that it matches, whose frame may be unknown; None where it matches
                a death without one.
        """
        of_frame = ("file", "function", "source") if raised and raised.frame is None else ()
        parts = [
            field.name for field in fields(self) if field.name not in ("also_user_code", *of_frame)
        ]
        return sum(getattr(self, name) not in (None, False) for name in parts)

    def matches(self, record: FailureRecord) -> bool:
        """Whether the record shows it."""
        return self.depth(record) is not None

    def depth(self, record: FailureRecord) -> int | None:
        """How far back in the record's chain of exceptions it is shown; None where it isn't.

        0 is the last exception, and what is shown by none: a line of native code, or a death.
        """
        if (self.oom_kill and record.oom_kills == 0) or (self.finished and not record.finished):
            return None
        if not self.is_of_exception:
            return 0 if self._is_shown_by_line_or_death(record) else None
        depth = self._deepest(record)
        return depth if depth is not None and self._are_lines_there(record) else None

    def _deepest(self, record: FailureRecord) -> int | None:
        """The earliest exception of the chain that shows it."""
        depths = [
            depth
            for depth, raised in enumerate(record.raised())
            if not raised.is_routine
            and self._is_shown_by(raised)
            and (self.file or self.also_user_code or not record.is_users_own(raised))
        ]
        return depths[-1] if depths else None

    def _are_lines_there(self, record: FailureRecord) -> bool:
        """Whether the lines that it has beside its exception are in the log or in the message."""
        patterns = [pattern for pattern in (self.log, self.context) if pattern is not None]
        lines = _lines(record) if patterns else ()
        return all(any(map(pattern.search, lines)) for pattern in patterns)

    def _is_shown_by_line_or_death(self, record: FailureRecord) -> bool:
        """Whether a line of native code and the worker's end show it.

        An exception may carry such a line in its message; then the log around it, which may be
        another's, doesn't count, nor does what the user's own code raises.
        """
        if record.exception and (self.log is None or record.is_users_own(next(record.raised()))):
            return False
        if self.log is not None:
            said = collapsed(tuple(record.message.splitlines()))
            lines = said if said or record.exception else collapsed(record.log_tail)
            if not any(map(self.log.search, lines)):
                return False
        if self.context is not None and not any(map(self.context.search, _lines(record))):
            return False
        deadly = signal.SIGKILL if self.oom_kill else self.signal
        return deadly in (None, record.signal)

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
        return any(map(self.message.search, collapsed(texts)))


def _lines(record: FailureRecord) -> tuple[str, ...]:
    """The log around a failure, and the lines of its message."""
    return (*collapsed(record.log_tail), *collapsed(tuple(record.message.splitlines())))


@lru_cache(maxsize=64)
def collapsed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Texts with every run of white space as a single space."""
    return tuple(" ".join(text.split()) for text in texts)
