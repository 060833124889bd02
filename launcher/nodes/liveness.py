"""Whether the other nodes' launchers give a sign of life while workers run.

The kernel notices closed connections and unreachable hosts (`connection`). A launcher that is
stopped (SIGSTOP) or wedged keeps its connection, and its kernel still answers. So node 0 sends a
`Ping` at intervals, which every launcher answers with a `Pong`. Silence is reported and changes
nothing, as the workers of a stopped launcher may still train. But nobody waits for such a launcher
once the workers are to be stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..progress.board import RankProgress
from .messages import Ping, Pong
from .peers import Peers

SHARE = 3
"""Signs of life within the seconds after which a silent node counts as mute."""
STARTING = 10
"""Factor on the silence allowed before the first sign: the node starts its workers."""


@dataclass(slots=True)
class Liveness:
    """The signs of life of the other nodes' launchers, during one attempt.

    A node that isn't node 0 expects them once it has had the first `Ping`.

    Attributes:
        look: reads the progress of this node's ranks, for the others.
    """

    peers: Peers
    look: Callable[[], Sequence[RankProgress]]
    notice: Callable[[str], None]
    _heard: dict[int, float] = field(default_factory=dict)
    _has_begun: set[int] = field(default_factory=set)
    _looked: float = field(default_factory=lambda: time.monotonic())
    _due: float = 0.0

    def __post_init__(self) -> None:
        if self.peers.is_head:
            self._heard = dict.fromkeys(self.peers.connections, self._looked)

    def pause(self) -> float | None:
        """Seconds until something is due; None on a single node."""
        return max(0.0, self._due - time.monotonic()) if self.peers.connections else None

    def hear(self, node: int) -> None:
        """Notes that a node's launcher has sent something."""
        if self.peers.is_head or node in self._has_begun:
            self._heard[node] = time.monotonic()
        if node in self.peers.mute:
            self.peers.mute.discard(node)
            self.notice(f"{self._name(node)} answers again")

    def answer(self, node: int) -> None:
        """Answers node 0's sign of life, and expects further ones."""
        self._begin(node)
        self.peers.send(Pong(tuple(self.look())))

    def answered(self, node: int, progress: tuple[RankProgress, ...]) -> None:
        """Takes a node's answer, with the progress of its ranks."""
        self._begin(node)
        self.peers.progress[node] = progress

    def _begin(self, node: int) -> None:
        self._has_begun.add(node)
        self._heard[node] = time.monotonic()

    def check(self) -> None:
        """Sends a sign of life if it is due, and reports launchers that give none."""
        now, silence = time.monotonic(), self.peers.silence
        if now < self._due:
            return
        if now - self._looked > silence:  # this launcher itself was stopped
            self._heard = dict.fromkeys(self._heard, now)
        self._looked, self._due = now, now + silence / SHARE
        if self.peers.is_head:
            self.peers.send(Ping())
        gone = self.peers.lost.keys() | self.peers.ended.keys() | self.peers.mute
        for node in sorted(self._heard.keys() - gone):
            quiet = now - self._heard[node]
            if quiet > (silence if node in self._has_begun else STARTING * silence):
                self.peers.mute.add(node)
                self.notice(
                    f"{self._name(node)} has given no sign of life for {quiet:.0f} s: its launcher "
                    "is stopped, or its host is overloaded; its workers may still run"
                )

    def _name(self, node: int) -> str:
        return f"node {node} ({self.peers.connections[node].peer})"
