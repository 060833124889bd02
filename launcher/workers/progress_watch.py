"""Records the progress of a node's ranks, and reports those that keep the others waiting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..core.quantities import count_of
from ..nodes.peers import Peers
from ..progress import snapshot
from ..progress.board import Phase, RankProgress
from ..progress.stragglers import stragglers
from ..system import terminal

INTERVAL = 10.0
"""Seconds between two looks."""
DOES = {
    Phase.STARTING: "are being started",
    Phase.LOADING: "are loading: the script runs, and no step is done yet",
    Phase.TRAINING: "are training, and have printed nothing yet",
    Phase.EVALUATION: "are evaluating, and have printed nothing yet",
    Phase.SAVING: "are saving, and have printed nothing yet",
    Phase.ENDED: "have ended",
}
"""The ranks' activity in a phase, for a waiting user."""


@dataclass(slots=True)
class ProgressWatch:
    """The watch over the progress of an attempt's ranks; node 0 has that of all nodes.

    Attributes:
        node: this node's rank.
        look: reads the progress of this node's ranks.
        has_output: whether a rank of this node has printed anything yet.
    """

    node: int
    folder: Path
    look: Callable[[], Sequence[RankProgress]]
    peers: Peers
    notice: Callable[[str], None]
    has_output: Callable[[], bool]
    _is_reassured: bool = False
    _due: float = field(default_factory=lambda: time.monotonic() + INTERVAL)
    _reported: set[int] = field(default_factory=set)
    _points: tuple[snapshot.Point, ...] = ()
    _writer: threading.Thread | None = None

    def pause(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._due - time.monotonic())

    def check(self) -> None:
        """Looks, if it is due."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + INTERVAL
        rows = tuple(self.look())
        self._keep(rows)
        if self.peers.is_head:
            every = [row for part in (rows, *self.peers.progress.values()) for row in part]
            if rows:
                self._reassure(every)
            self._report_stragglers(every)

    def _keep(self, rows: tuple[RankProgress, ...]) -> None:
        """Writes the rows in a thread: a file system that hangs must not stop the supervisor."""
        if self.peers.is_head:
            self._points = snapshot.extended(self._points, rows)
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(
                target=_write, args=(self.folder, self.node, rows, self._points), daemon=True
            )
            self._writer.start()

    def _reassure(self, every: Sequence[RankProgress]) -> None:
        """Prints once what all nodes' ranks do, if none of this node has printed anything yet."""
        if self._is_reassured or self.has_output():
            return
        self._is_reassured = True
        least = min(every, key=lambda row: (row.phase is Phase.ENDED, row.phase, row.step or 0))
        same = sum(row.phase is least.phase for row in every)
        terminal.reassure(f"{same} of {count_of(len(every), 'rank')} {DOES[least.phase]}")

    def _report_stragglers(self, every: Sequence[RankProgress]) -> None:
        """Reports each straggler once."""
        hosts = {
            row.rank: self.peers.connections[node].peer
            for node, rows in self.peers.progress.items()
            for row in rows
        }
        for straggler in stragglers(every):
            if straggler.rank not in self._reported:
                self._reported.add(straggler.rank)
                host = hosts.get(straggler.rank) or os.uname().nodename
                self.notice(straggler.text(host))


def _write(
    folder: Path, node: int, rows: tuple[RankProgress, ...], points: tuple[snapshot.Point, ...]
) -> None:
    with suppress(OSError):  # a full disk is reported for the logs
        snapshot.write(folder, node, rows)
        if points:
            snapshot.write_pace(folder, points)
