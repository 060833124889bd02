"""The base of all messages between launchers, and the limits of their fields."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Struct

from ..core.errors import ExitCode
from ..core.limits import NODES, Limit, number, pattern
from ..system.signals import ENDING

SMALL, ORDINARY, LARGE = 1 << 16, 1 << 18, 1 << 24
"""Bytes at most: of a message about a launcher, of most, of one with thousands of records."""
FAILURES = frozenset(int(code) for code in ExitCode if code)
"""Exit codes of a launcher that can't take part."""
FailureCode = Annotated[int, Limit("a code of a launcher's failure", lambda code: code in FAILURES)]
StopSignal = Annotated[int, Limit("a signal that stops a run", lambda number: number in ENDING)]
Digest = Annotated[str, pattern("|[0-9a-f]{64}", "a digest")]
RunId = Annotated[str, pattern(r"\d{8}-\d{6}-[0-9a-f]{6}", "a run's id")]
"""The format of `run_directory.new_id`."""
NodeCount = Annotated[int, number(1, NODES)]
NodeRank = Annotated[int, number(0, NODES - 1)]
OtherNode = Annotated[int, number(1, NODES - 1)]
OUTSIDE = "the rank is of one of the nodes"


class Sent(Struct, frozen=True):
    """A message between launchers, of at most `MOST` bytes."""

    MOST: ClassVar[int] = ORDINARY

    @property
    def reported(self) -> set[int | None]:
        """The ranks of its records, standings and progress."""
        parts = (getattr(self, name, ()) for name in ("records", "standings", "progress"))
        return {row.rank for part in parts for row in part}

    def contradiction(self) -> str:
        """The rule that several of its fields break together, as a clause; empty if none."""
        return ""
