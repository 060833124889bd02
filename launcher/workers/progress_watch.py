"""Keeps how far a node's ranks have come, and tells which ranks keep the others waiting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..core.count_of import count_of
from ..nodes.peers import Peers
from ..progress import pace, snapshot
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
"""The ranks' activity in a phase, for a person who waits."""


class ProgressWatch:
    """The watch over the progress of an attempt's ranks; node 0 knows of all of them."""

    def __init__(
        self,
        node: int,
        folder: Path,
        look: Callable[[], Sequence[RankProgress]],
        peers: Peers,
        notice: Callable[[str], None],
        has_output: Callable[[], bool],
    ) -> None:
        """Begins the watch."""
        self._node = node
        self._folder = folder
        self._look = look
        self._peers = peers
        self._notice = notice
        self._has_output = has_output
        self._is_reassured = False
        self._due = time.monotonic() + INTERVAL
        self._told: set[int] = set()
        self._points: tuple[pace.Point, ...] = ()
        self._writer: threading.Thread | None = None

    def pause(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._due - time.monotonic())

    def check(self) -> None:
        """Looks, if it is due."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + INTERVAL
        rows = tuple(self._look())
        self._keep(rows)
        if self._peers.is_head:
            self._reassure(rows)
            self._tell_stragglers(rows)

    def _keep(self, rows: tuple[RankProgress, ...]) -> None:
        """Writes the rows in a thread: a file system that hangs must not stop the supervisor."""
        if self._peers.is_head:
            self._points = pace.extended(self._points, rows)
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(
                target=_write, args=(self._folder, self._node, rows, self._points), daemon=True
            )
            self._writer.start()

    def _reassure(self, rows: tuple[RankProgress, ...]) -> None:
        """Prints once what the ranks do, if none of them has printed anything yet."""
        if self._is_reassured or not rows or self._has_output():
            return
        self._is_reassured = True
        every = [row for part in (rows, *self._peers.progress.values()) for row in part]
        least = min(every, key=lambda row: (row.phase is Phase.ENDED, row.phase, row.step or 0))
        same = sum(row.phase is least.phase for row in every)
        terminal.reassure(f"{same} of {count_of(len(every), 'rank')} {DOES[least.phase]}")

    def _tell_stragglers(self, rows: tuple[RankProgress, ...]) -> None:
        """Tells of each straggler once."""
        others = self._peers.progress
        hosts = {row.rank: os.uname().nodename for row in rows}
        for node, theirs in others.items():
            hosts |= {row.rank: self._peers.connections[node].peer for row in theirs}
        every = [row for part in (rows, *others.values()) for row in part]
        for found in stragglers(every):
            if found.rank not in self._told:
                self._told.add(found.rank)
                self._notice(found.text(hosts[found.rank]))


def _write(
    folder: Path, node: int, rows: tuple[RankProgress, ...], points: tuple[pace.Point, ...]
) -> None:
    with suppress(OSError):  # a full disk is told by whoever writes the logs
        snapshot.write(folder, node, rows)
        if points:
            pace.write(folder, points)
