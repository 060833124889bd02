"""An exception in a log."""

from __future__ import annotations

from dataclasses import dataclass

from ..evidence.failure_record import Frame, Raised
from .exception_lines import BareException


@dataclass(frozen=True, slots=True)
class Trace:
    """An exception in a log, with its traceback if it has one.

    Attributes:
        raised: the exception itself, with its innermost frame.
        frames: all frames, outermost first.
        chain: earlier exceptions in its chain, nearest first.
        first: number of the first line of its traceback.
        placed: number of the line with its innermost frame.
        raised_at: number of the line with its type and message.
        last: number of its last line.
        is_ignored: whether Python printed it and continued, e.g. in a destructor.
        bare: its line, if it has no traceback.
    """

    raised: Raised
    frames: tuple[Frame, ...]
    chain: tuple[Raised, ...]
    first: int
    placed: int
    raised_at: int
    last: int
    is_ignored: bool = False
    bare: BareException | None = None
