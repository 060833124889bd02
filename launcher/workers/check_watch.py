"""Findings of all workers' checks: shown, passed on to node 0, and kept there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..checks import between_ranks, kept, ours, resumed
from ..checks.between_ranks import Compared
from ..checks.finding import Check, Finding
from ..checks.kept import Kept, write
from ..checks.ours import Begun
from ..checks.resumed import Noted
from ..core.refused import Refused
from ..core.request import CheckOptions
from ..evidence.failure_record import CHECK, OWN_CHANGE, FailureRecord
from ..evidence.worker_messages import Found, Skipped
from ..evidence.worker_receiver import Envelope
from ..nodes.messages import Message, NodeCompared, NodeFound
from ..nodes.peers import Peers

PATIENCE = 1.0
"""Seconds in which other ranks may find the same, so that one line names them all."""
MOST_COMPARED = 256
"""Things that are compared at a time; a rank that skips a step leaves one that never is whole."""


class CheckWatch:
    """The findings of an attempt.

    On any node but node 0 they are only passed on: node 0 compares the ranks of all, and tells.

    Attributes:
        ending: the finding for which the attempt is ended: under `--check strict`, or as it shows
            that a correction trains otherwise.
    """

    def __init__(
        self,
        options: CheckOptions,
        ranks: Collection[int],
        folder: Path,
        peers: Peers,
        notice: Callable[[str], None],
        replaced: Callable[[], Path | Refused | None],
    ) -> None:
        self.ending: Finding | None = None
        self._options = options
        self._ranks = ranks
        self._folder = folder
        self._peers = peers
        self._notice = notice
        self._replaced = replaced
        self._kept = Kept()
        self._begun = Begun()
        self._saves: dict[str, Noted] = {}
        self._compared: dict[tuple[object, ...], dict[int, str]] = {}
        self._ended_at = 0.0
        self._due: dict[tuple[object, ...], float] = {}  # what isn't told yet, and when it is

    def hear(self, envelope: Envelope) -> None:
        """Takes what a worker of this node has found, skipped, or has to be compared."""
        match envelope.message:
            case Found(finding=finding):
                self._found(envelope.rank, finding)
            case Compared() as compared:
                self._compare(envelope.rank, compared)
            case Skipped(check=check, why=why):
                self._skipped(check, why)
            case Noted() as noted:
                self._save(noted)

    def hear_node(self, message: Message) -> None:
        """Takes the same of another node's worker, on node 0."""
        match message:
            case NodeFound(rank=rank, finding=finding):
                self._found(rank, finding)
            case NodeCompared(rank=rank, compared=compared):
                self._compare(rank, compared)

    def check(self) -> None:
        """Tells what no other rank is going to add to."""
        self._tell_until(time.monotonic())

    def end(self) -> None:
        """Tells the rest: the workers have ended."""
        self._tell_until(math.inf)

    def pause(self) -> float | None:
        """Seconds until something is to be told; None if nothing is."""
        due = min(self._due.values(), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _tell_until(self, now: float) -> None:
        for identity in [identity for identity, due in self._due.items() if due <= now]:
            del self._due[identity]
            self._notice(self._kept[identity].line)

    def records(self) -> tuple[FailureRecord, ...]:
        """The failure as which a run is ended; none unless it is."""
        if self.ending is None:
            return ()
        rank, message = next(iter(self.ending.ranks), None), self.ending.line
        exception = OWN_CHANGE if self.ending.check is Check.OURS else CHECK
        return (
            FailureRecord(
                *(rank, self._ended_at, exception, message),
                traceback=f"{exception}: {message}",
                step=self.ending.step,
                exit_code=1,
            ),
        )

    def _compare(self, rank: int, compared: Compared) -> None:
        if not self._peers.is_head:
            self._peers.send(NodeCompared(rank, compared))
            return
        values = self._compared.setdefault(compared.key, {})
        values[rank] = compared.value
        if len(values) == len(self._ranks):
            del self._compared[compared.key]
            if (finding := between_ranks.told(compared, values, self._ranks)) is not None:
                self._tell(finding)
                self._due = dict.fromkeys(self._due, 0.0)
            self._compare_begin(compared, values)
        elif len(self._compared) > MOST_COMPARED:
            del self._compared[next(iter(self._compared))]

    def _compare_begin(self, compared: Compared, values: Mapping[int, str]) -> None:
        """Keeps how the attempt has begun, and compares it with the one whose failure it mends."""
        begun = ours.with_told(self._begun, compared, values)
        if begun == self._begun or not self._makes(Check.OURS):
            return
        self._begun = begun
        with suppress(OSError):
            kept.write_begun(self._folder, begun)
        found: Finding | Refused | None = Refused("the attempt before had findings itself")
        match self._replaced():
            case Refused() as refused:
                found = refused
            case Path() as folder:
                if not any(each.certain for each in kept.read(folder).findings):
                    found = ours.judged(kept.read_begun(folder), begun)
            case None:
                return
        if isinstance(found, Refused):
            self._skipped(Check.OURS, found.sentence)
        elif found is not None and not self._kept.skipped(Check.OURS):
            self._tell(replace(found, ranks=tuple(self._ranks)))

    def _save(self, noted: Noted) -> None:
        """Keeps how a save was made, or compares a resume with the save that it has loaded."""
        if noted.rate is not None:
            self._saves = {**self._saves, noted.path: noted}
            with suppress(OSError):
                kept.write_saves(self._folder, self._saves)
            return
        saved = kept.find_save(self._folder.parent.parent, noted.path)
        if saved is None:
            self._skipped(Check.RESUMED, f"no run has noted how {noted.path} was saved")
        for finding in () if saved is None else resumed.judged(saved, noted):
            self._tell(finding)

    def _makes(self, check: Check) -> bool:
        return self._options.mode != "off" and check not in self._options.muted

    def _found(self, rank: int, finding: Finding) -> None:
        if self._peers.is_head:
            self._tell(replace(finding, ranks=(rank,)))
        else:
            self._peers.send(NodeFound(rank, finding))

    def _tell(self, finding: Finding) -> None:
        """Keeps a finding, to be told at once if no other rank can add to it."""
        if not self._makes(finding.check):
            return
        identity = finding.identity
        if self._kept.add(finding):
            self._due[identity] = time.monotonic() + PATIENCE
        if identity in self._due and len(self._kept[identity].ranks) == len(self._ranks):
            self._due[identity] = 0.0
        ends = finding.check is Check.OURS or self._options.mode == "strict"
        if finding.certain and ends and self.ending is None:
            self.ending, self._ended_at = finding, time.monotonic()
        self._write()

    def _skipped(self, check: Check, why: str) -> None:
        if self._peers.is_head and self._kept.skip(check, why):
            self._write()

    def _write(self) -> None:
        with suppress(OSError):  # a full disk is reported elsewhere
            write(self._folder, self._kept)
