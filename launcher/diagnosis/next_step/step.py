"""The next step, and its evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ...evidence.failure_record import FailureRecord, Frame, Raised

HANDED_ON = re.compile(r"Caught \w+ in (?:DataLoader worker process|pin memory thread|replica)")
"""How torch begins the message of an exception that another process or thread raised."""
RERAISED = ("raise self._value", "raise self._exception")
"""Lines by which Python's pools raise a worker's exception again."""


class Basis(StrEnum):
    """How a step is known."""

    SAID = "quoted from the message"
    """The message itself gives the instruction."""
    INFERRED = "inferred from the log"
    """A rule concludes it from facts in the log."""
    OPEN = "how to find out more"
    """The log doesn't show the cause."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next step.

    Attributes:
        do: the advice, as a line.
        basis: how it is known.
        rule: the name of the rule that found it; empty until one has.
    """

    do: str
    basis: Basis
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A failure as the rules look at it: one of its exceptions, and all that is known around it.

    Attributes:
        record: the record of the failure.
        raised: the exception, or a line of native code as its message.
        frames: the frames that led to it, outermost first, if known.
    """

    record: FailureRecord
    raised: Raised
    frames: tuple[Frame, ...]

    @property
    def kind(self) -> str:
        """The type of the exception without its module; empty for a line."""
        return self.raised.exception.rpartition(".")[2]

    @property
    def message(self) -> str:
        """The message, with every run of white space as one space."""
        return " ".join(self.raised.message.split())

    @property
    def frame(self) -> Frame | None:
        """Where it was raised, if known."""
        return self.raised.frame

    @property
    def is_users(self) -> bool:
        """Whether it was raised in a file of the user's."""
        return self.frame is not None and self.frame.file in self.record.user_files

    @property
    def around(self) -> str:
        """The log before it, its frames and its message."""
        frames = (f"{frame.file} {frame.source}" for frame in self.frames)
        return "\n".join([*self.record.log_tail, *frames, self.raised.message])


def case_of(record: FailureRecord) -> Case:
    """The case of a record's last exception; of its line if it has none."""
    raised = raised_first(record)
    if raised.frame is None or raised.frame in record.frames:
        return Case(record, raised, record.frames)
    return Case(record, raised, (raised.frame,))


def raised_first(record: FailureRecord) -> Raised:
    """The last exception, or the one of another process that it hands on; else the line."""
    last, *chain = [*record.raised()] or [Raised("", record.message)]
    is_again = last.frame is not None and last.frame.source in RERAISED
    if not chain or not (is_again or HANDED_ON.match(last.message)):
        return last
    return replace(chain[0], message=chain[0].message.removesuffix('"""').rstrip())


def filled(text: str, found: Mapping[str, str | None]) -> str:
    """A text with what was found in the place of each name in braces; `it` for what wasn't."""
    return re.sub(r"\{(\w+)\}", lambda name: found.get(name[1]) or "it", text)
