"""The states that an attempt goes through on one node, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class AttemptState(StrEnum):
    """What is done with the workers of an attempt, and why."""

    RUNNING = "running"
    FINISHED = "finished"
    """Every worker of this node has run the script to its end; other nodes' may still run."""
    FAILED = "stopping after a failure"
    SUPERSEDED = "stopping for what the workers have seen"
    BROKEN = "stopping for a fault of the launcher's own"
    INTERRUPTED = "stopping for a signal"


STOPPING = frozenset(AttemptState) - {AttemptState.RUNNING, AttemptState.FINISHED}
"""States in which the workers are being stopped."""
TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = MappingProxyType(
    {
        AttemptState.RUNNING: STOPPING | {AttemptState.FINISHED},
        AttemptState.FINISHED: STOPPING,  # another node fails, or is stopped
        AttemptState.FAILED: frozenset({AttemptState.INTERRUPTED}),
        AttemptState.SUPERSEDED: frozenset({AttemptState.INTERRUPTED}),
        AttemptState.BROKEN: frozenset({AttemptState.INTERRUPTED}),
        AttemptState.INTERRUPTED: frozenset(),
    }
)
"""What may follow each state: a signal interrupts whatever is done, and nothing follows that."""


@dataclass(slots=True)
class Progress:
    """The states of one attempt, so far.

    Attributes:
        states: in their order; the last one holds.
    """

    states: list[AttemptState] = field(default_factory=lambda: [AttemptState.RUNNING])

    @property
    def state(self) -> AttemptState:
        """The state that holds."""
        return self.states[-1]

    @property
    def is_stopping(self) -> bool:
        """Whether the workers are being stopped."""
        return self.state in STOPPING

    @property
    def has_finished(self) -> bool:
        """Whether every worker of this node had run to its end before any stop."""
        return AttemptState.FINISHED in self.states

    def enter(self, state: AttemptState) -> None:
        """Goes on to a state.

        Raises:
            RuntimeError: it may not follow the one that holds.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"an attempt that is {self.state} can't become {state}")
        self.states.append(state)
