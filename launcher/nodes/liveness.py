"""Whether the other nodes' launchers give a sign of life while workers run.

An end of a connection, or a host that can't be reached, is the kernel's to notice (`connection`). A
launcher that is stopped (SIGSTOP) or wedged keeps its connection, and its kernel goes on answering.
Node 0 sends a `Ping` at intervals, which every launcher answers with a `Pong`. Silence is said and
changes nothing: the workers of a stopped launcher may go on training. But nobody waits for such a
launcher once the workers are to be stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..progress.board import RankProgress
from .messages import Ping, Pong
from .peers import Peers

SHARE = 3
"""Signs of life within the seconds after which a silent node counts as mute."""
STARTING = 10
"""So many times longer a node may be silent before its first sign: it starts its workers."""


class Liveness:
    """The signs of life of the other nodes' launchers, during one attempt.

    A node that isn't node 0 expects them once it has had the first `Ping`.
    """

    def __init__(
        self,
        peers: Peers,
        look: Callable[[], Sequence[RankProgress]],
        notice: Callable[[str], None],
    ) -> None:
        """Begins to listen."""
        self._peers = peers
        self._look = look
        self._notice = notice
        now = time.monotonic()
        self._heard = dict.fromkeys(peers.connections, now) if peers.is_head else {}
        self._has_begun: set[int] = set()
        self._looked = now
        self._due = now

    def pause(self) -> float | None:
        """Seconds until something is due; None on a single node."""
        return max(0.0, self._due - time.monotonic()) if self._peers.connections else None

    def hear(self, node: int) -> None:
        """Notes that a node's launcher has sent something."""
        if self._peers.is_head or node in self._has_begun:
            self._heard[node] = time.monotonic()
        if node in self._peers.mute:
            self._peers.mute.discard(node)
            self._notice(f"{self._name(node)} answers again")

    def answer(self, node: int) -> None:
        """Answers node 0's sign of life; from now on, another is expected."""
        self._begin(node)
        self._peers.send(Pong(tuple(self._look())))

    def answered(self, node: int, progress: tuple[RankProgress, ...]) -> None:
        """Takes the answer of a node: how far its ranks have come."""
        self._begin(node)
        self._peers.progress[node] = progress

    def _begin(self, node: int) -> None:
        self._has_begun.add(node)
        self._heard[node] = time.monotonic()

    def check(self) -> None:
        """Sends a sign of life if it is due, and says which launchers give none."""
        now, silence = time.monotonic(), self._peers.silence
        if now < self._due:
            return
        if now - self._looked > silence:  # this launcher itself was stopped
            self._heard = dict.fromkeys(self._heard, now)
        self._looked, self._due = now, now + silence / SHARE
        if self._peers.is_head:
            self._peers.send(Ping())
        gone = self._peers.lost.keys() | self._peers.ended.keys() | self._peers.mute
        for node in sorted(self._heard.keys() - gone):
            quiet = now - self._heard[node]
            if quiet > (silence if node in self._has_begun else STARTING * silence):
                self._peers.mute.add(node)
                self._notice(
                    f"{self._name(node)} has given no sign of life for {quiet:.0f} s: its launcher "
                    "is stopped, or its host is overloaded; its workers may still run"
                )

    def _name(self, node: int) -> str:
        return f"node {node} ({self._peers.connections[node].peer})"
