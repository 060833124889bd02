"""The states of an attempt on one node, and the transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class AttemptState(StrEnum):
    """Whether the workers of an attempt run or are being stopped, and why."""

    RUNNING = "running"
    FINISHED = "finished"
    """Every worker of this node has run the script to its end; other nodes' may still run."""
    FAILED = "stopping after a failure"
    SUPERSEDED = "stopping for the workers' observations"
    BROKEN = "stopping for a fault of the launcher"
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
"""The states that may follow each state: a signal interrupts any, and nothing follows that."""


@dataclass(slots=True)
class Progress:
    """The states of one attempt so far; the last is the current one."""

    states: list[AttemptState] = field(default_factory=lambda: [AttemptState.RUNNING])

    @property
    def state(self) -> AttemptState:
        """The current state."""
        return self.states[-1]

    @property
    def is_stopping(self) -> bool:
        """Whether the workers are being stopped."""
        return self.state in STOPPING

    @property
    def has_finished(self) -> bool:
        """Whether every worker of this node ended by itself before any stop."""
        return AttemptState.FINISHED in self.states

    def enter(self, state: AttemptState) -> None:
        """Enters a state.

        Raises:
            RuntimeError: the current state can't be followed by it.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"an attempt that is {self.state} can't become {state}")
        self.states.append(state)
