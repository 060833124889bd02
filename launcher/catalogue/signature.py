"""Signatures recognize known failures in the evidence."""

from __future__ import annotations

import signal
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Protocol

from ..evidence.failure_record import FailureRecord, Frame, Raised
from .version_skew import Wanting, skew_of

SENTENCE = 3
"""Minimum words of a message that is conclusive by itself."""


class Pattern(Protocol):
    """A compiled regular expression."""

    @property
    def pattern(self) -> str:
        """The pattern's text."""

    def search(self, text: str, /) -> Any:
        """A match anywhere in the text, or None."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A way to recognize a failure; all its parts must match.

    White space is normalized in messages and lines, as logs wrap them. A signature without a part
    about an exception matches an end without one, or a line of native code, alone or in an
    exception's message.

    Attributes:
        exception: name of the exception's type, without its module.
        message: pattern searched in the message.
        file: end of the path of the raising frame's file.
        function: name of the raising frame's function.
        source: pattern searched in the raising frame's source line.
        through: pattern searched in each frame of the traceback, as `function: source line`.
        wanted_by: owner of the code that needs a name missing in a package: another package, the
            package itself, the user's script or a model's code.
        log: pattern searched in each of the last lines of the worker's log.
        context: pattern searched in the other lines, before or after.
        signal: number of the signal that ended the worker.
        oom_kill: the host's out-of-memory killer was active; without a part about an exception, it
            killed the worker itself.
        finished: whether the script had completed; None for either.
        also_user_code: also match exceptions raised by the user's code, as clusters' entries do,
            unlike those of frameworks.
    """

    exception: str | None = None
    message: Pattern | None = None
    file: str | None = None
    function: str | None = None
    source: Pattern | None = None
    through: Pattern | None = None
    wanted_by: Wanting | None = None
    log: Pattern | None = None
    context: Pattern | None = None
    signal: int | None = None
    oom_kill: bool = False
    finished: bool | None = None
    also_user_code: bool = False

    @property
    def is_of_frame(self) -> bool:
        """Whether any part is about the raising frame."""
        return not (self.file is None and self.function is None and self.source is None)

    @property
    def is_of_exception(self) -> bool:
        """Whether any part is about an exception."""
        named = self.exception is not None or self.message is not None
        return named or self.is_of_frame or self.wanted_by is not None

    def weight(self, raised: Raised | None) -> int:
        """Number of matching parts; the signature with more is more specific.

        Args:
            raised: the matching exception, whose frame may be unknown; None for an end without an
                exception.
        """
        of_frame = ("file", "function", "source") if raised and raised.frame is None else ()
        parts = [
            field.name for field in fields(self) if field.name not in ("also_user_code", *of_frame)
        ]
        return sum(getattr(self, name) not in (None, False) for name in parts)

    def matches(self, record: FailureRecord) -> bool:
        """Whether the signature matches the record."""
        return self.depth(record) is not None

    def depth(self, record: FailureRecord) -> int | None:
        """The index of the matching exception in the record's chain; None if none matches.

        0 is the last exception, a line of native code, or an end without an exception.
        """
        if (self.oom_kill and record.oom_kills == 0) or self.finished is (not record.finished):
            return None
        if self.through is not None and not came_through(record, self.through):
            return None
        if not self.is_of_exception:
            return 0 if self._matches_line_or_end(record) else None
        depth = self._deepest(record)
        return depth if depth is not None and self._has_lines(record) else None

    def _deepest(self, record: FailureRecord) -> int | None:
        """The index of the earliest matching exception of the chain."""
        depths = [
            depth
            for depth, raised in enumerate(record.raised())
            if not raised.is_routine
            and self._matches_exception(raised)
            and self._is_wanted(record, raised)
            and (self.file or self.also_user_code or not record.is_raised_by_user(raised))
        ]
        return depths[-1] if depths else None

    def _is_wanted(self, record: FailureRecord, raised: Raised) -> bool:
        """Whether the owner of the code that needs a missing name is `wanted_by`."""
        if self.wanted_by is None:
            return True
        skew = skew_of(record, raised)
        return skew is not None and skew.kind is self.wanted_by

    def _has_lines(self, record: FailureRecord) -> bool:
        """Whether required lines are in the log or the message."""
        patterns = [pattern for pattern in (self.log, self.context) if pattern is not None]
        lines = lines_of(record) if patterns else ()
        return all(any(map(pattern.search, lines)) for pattern in patterns)

    def _matches_line_or_end(self, record: FailureRecord) -> bool:
        """Whether a line of native code and the worker's end match.

        If the line is in an exception's message, the surrounding log, possibly about another
        failure, and exceptions of the user's code don't count.
        """
        if record.exception and (
            self.log is None or record.is_raised_by_user(next(record.raised()))
        ):
            return False
        if self.log is not None:
            message = collapsed(tuple(record.message.splitlines()))
            lines = message if message or record.exception else collapsed(record.log_tail)
            if not any(map(self.log.search, lines)):
                return False
        if self.context is not None and not any(map(self.context.search, lines_of(record))):
            return False
        deadly = signal.SIGKILL if self.oom_kill else self.signal
        return deadly in (None, record.signal)

    def _matches_exception(self, raised: Raised) -> bool:
        """Whether an exception matches; an unknown frame is accepted for a full sentence.

        A key or a name alone is too ambiguous.
        """
        if self.exception not in (None, raised.exception.rpartition(".")[2]):
            return False
        frame = raised.frame
        if frame is None and self.message is not None:
            is_there = not self.is_of_frame or len(raised.message.split()) >= SENTENCE
        else:
            frame = frame or Frame("", 0, "", "")
            is_there = (
                (self.file is None or frame.is_of(self.file))
                and (self.function is None or frame.function == self.function)
                and (self.source is None or self.source.search(frame.source) is not None)
            )
        if not is_there or self.message is None:
            return is_there
        # In a log, other processes' lines may follow the message, so its first line is tried too.
        first, _, rest = raised.message.partition("\n")
        texts = (raised.message,) if rest[:1].isspace() else (raised.message, first)
        return any(map(self.message.search, collapsed(texts)))


def came_through(record: FailureRecord, through: Pattern) -> bool:
    """Whether a frame of the traceback or of an earlier exception matches."""
    earlier = (raised.frame for raised in record.chain)
    frames = (*record.frames, *(frame for frame in earlier if frame is not None))
    return any(through.search(f"{frame.function}: {frame.source}") for frame in frames)


def lines_of(record: FailureRecord) -> tuple[str, ...]:
    """The log around a failure, and the lines of its message."""
    return (*collapsed(record.log_tail), *collapsed(tuple(record.message.splitlines())))


@lru_cache(maxsize=64)
def collapsed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Texts with normalized white space."""
    return tuple(" ".join(text.split()) for text in texts)
