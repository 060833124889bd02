"""The report on a run without progress, created by `attribution`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .standing import Collective, Standing


class HangKind(StrEnum):
    """Why nothing moves, according to the ranks' standings."""

    ABSENT = "absent"
    """Some ranks wait in a collective that other, idle ranks haven't entered."""
    BUSY = "busy"
    """As `absent`, but a culprit works, by processor time or I/O."""
    DIVERGENT = "divergent"
    """Ranks wait in different collectives, which can never be completed."""
    ENDED = "ended"
    """Some ranks wait in a collective, and others have left the training or ended."""
    STOPPED = "stopped"
    """A process is stopped by SIGSTOP or a debugger."""
    GONE = "gone"
    """A rank's process or its node's launcher is unreachable."""
    LOADER = "loader"
    """A rank waits for its idle data loader workers."""
    IDLE = "idle"
    """All ranks are idle outside of known collectives."""
    UNKNOWN = "unknown"
    """The stacks and recorders don't show a reason."""


@dataclass(frozen=True, slots=True)
class HangReport:
    """A run without progress, and the responsible ranks.

    Attributes:
        culprits: ranks for which the others wait, in order; empty if unknown.
        waiting: the ranks that wait in a collective.
        collective: the first incomplete collective; None if unknown.
        is_proof: whether waiting longer can't help, so the run may be ended.
        quiet: seconds without movements.
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
