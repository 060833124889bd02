"""The report on a run that has stopped making progress, as `attribution` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .standing import Collective, Standing


class HangKind(StrEnum):
    """Why nothing moves, according to the ranks' standings."""

    ABSENT = "absent"
    """Some ranks wait in a collective that others have not entered: they stand elsewhere, idle."""
    BUSY = "busy"
    """As `absent`, but a rank that the others wait for works: processor time or I/O move."""
    DIVERGENT = "divergent"
    """Ranks wait in different collectives, which can never be completed."""
    ENDED = "ended"
    """Some ranks wait in a collective, and others have left the training or ended."""
    STOPPED = "stopped"
    """A process is stopped (SIGSTOP), or held by a debugger."""
    GONE = "gone"
    """A rank's process or its node's launcher can't be reached."""
    LOADER = "loader"
    """A rank waits for its data loader's processes, which do nothing."""
    IDLE = "idle"
    """No rank is in a collective that is known, and none does anything."""
    UNKNOWN = "unknown"
    """The stacks and recorders don't show a reason."""


@dataclass(frozen=True, slots=True)
class HangReport:
    """A run that has stopped making progress, and the ranks responsible.

    Attributes:
        culprits: the ranks that the others wait for, in order; empty if unknown.
        waiting: the ranks that wait in a collective.
        collective: the first collective that isn't complete on all its ranks; None if unknown.
        is_proof: waiting longer can't help: the run may be ended.
        quiet: seconds for which nothing has moved.
    """

    kind: HangKind
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    collective: Collective | None
    standings: tuple[Standing, ...]
    is_proof: bool
    quiet: float

    @property
    def blamed(self) -> list[Standing]:
        """The standings of the culprits."""
        return [standing for standing in self.standings if standing.rank in self.culprits]
