"""Findings of all workers' checks: shown, passed on to node 0, and kept there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..checks import between_attempts, between_ranks, kept, resumed
from ..checks.between_attempts import Begun
from ..checks.between_ranks import Compared, Shared
from ..checks.finding import Check, Finding
from ..checks.kept import Kept
from ..checks.resumed import Noted
from ..core.errors import Refused
from ..core.request import CheckOptions
from ..evidence.failure_record import CHECK, OWN_CHANGE, FailureRecord
from ..nodes.messages import NodeCompared, NodeFound
from ..nodes.peers import Peers

PATIENCE = 1.0
"""Seconds for other ranks to find the same, so that one line names them all."""
MOST_COMPARED = 256
"""Pending comparisons at most; one stays incomplete if a rank skips a step."""


@dataclass(slots=True)
class CheckWatch:
    """The findings of an attempt; other nodes pass theirs on to node 0, which reports them.

    Attributes:
        ranks: all ranks of the job.
        replaced: the attempt that this one corrects, see `Judge.replaced`.
        ending: the finding that ends the attempt: under `--check strict`, or because it shows that
            a correction changes the training.
    """

    options: CheckOptions
    ranks: Collection[int]
    folder: Path
    peers: Peers
    notice: Callable[[str], None]
    replaced: Callable[[], Path | Refused | None]
    ending: Finding | None = None
    _kept: Kept = field(default_factory=Kept)
    _begun: Begun = field(default_factory=Begun)
    _saves: dict[str, Noted] = field(default_factory=dict)
    _compared: dict[tuple[object, ...], dict[int, str]] = field(default_factory=dict)
    _ended_at: float = 0.0
    _due: dict[tuple[object, ...], float] = field(default_factory=dict)  # of pending findings

    def check(self, *, is_end: bool = False) -> None:
        """Prints new findings of the run: those that no rank can add to, and all at the end."""
        now = math.inf if is_end else time.monotonic()
        for identity in [identity for identity, due in self._due.items() if due <= now]:
            del self._due[identity]
            if identity not in kept.reported_before(self.folder):
                self.notice(self._kept[identity].line)

    def pause(self) -> float | None:
        """Seconds until a finding is to be printed; None if none is."""
        due = min(self._due.values(), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def records(self) -> tuple[FailureRecord, ...]:
        """The failure that ends the run, if a finding does."""
        if self.ending is None:
            return ()
        exception = OWN_CHANGE if self.ending.check is Check.OURS else CHECK
        record = FailureRecord(
            rank=next(iter(self.ending.ranks), None),
            at=self._ended_at,
            exception=exception,
            message=self.ending.line,
            traceback=f"{exception}: {self.ending.line}",
            step=self.ending.step,
            exit_code=1,
        )
        return (record,)

    def compare(self, rank: int, compared: Compared) -> None:
        """Handles a rank's value of a quantity compared between all ranks."""
        if not self.peers.is_head:
            self.peers.send(NodeCompared(rank, compared))
            return
        values = self._compared.setdefault(compared.key, {})
        values[rank] = compared.value
        if len(values) == len(self.ranks):
            del self._compared[compared.key]
            is_explained = compared.what is Shared.SAMPLES and self._kept.has(Check.DATA)
            finding = between_ranks.judged(compared, values, self.ranks)
            if finding is not None and not is_explained:
                self._keep(finding)
                self._due = dict.fromkeys(self._due, 0.0)
            self._compare_begin(compared, values)
        elif len(self._compared) > MOST_COMPARED:
            del self._compared[next(iter(self._compared))]

    def _compare_begin(self, compared: Compared, values: Mapping[int, str]) -> None:
        """Keeps the attempt's first values, and compares them with those of the one it corrects."""
        begun = between_attempts.with_compared(self._begun, compared, values)
        if begun == self._begun or not self._makes(Check.OURS):
            return
        self._begun = begun
        with suppress(OSError):
            kept.write_begun(self.folder, begun)
        finding: Finding | Refused | None
        match self.replaced():
            case Path() as folder if any(entry.certain for entry in kept.read(folder).findings):
                finding = Refused("the attempt before had findings itself")
            case Path() as folder:
                finding = between_attempts.judged(kept.read_begun(folder), begun)
            case reason:
                finding = reason
        if isinstance(finding, Refused):
            self.skip(Check.OURS, finding.sentence)
        elif finding is not None and not self._kept.skipped(Check.OURS):
            self._keep(replace(finding, ranks=tuple(self.ranks)))

    def save(self, noted: Noted) -> None:
        """Keeps the settings of a save, or compares a resume with the save that it loads."""
        if noted.rate is not None:
            self._saves[noted.path] = noted
            with suppress(OSError):
                kept.write_saves(self.folder, self._saves)
            return
        saved = kept.find_save(self.folder.parent.parent, noted.path)
        if saved is None:
            self.skip(Check.RESUMED, f"no run has noted how {noted.path} was saved")
        else:
            for finding in resumed.judged(saved, noted):
                self._keep(replace(finding, where=noted.where))

    def _makes(self, check: Check) -> bool:
        return self.options.mode != "off" and check not in self.options.muted

    def add(self, rank: int, finding: Finding) -> None:
        """Handles a finding about a rank."""
        if self.peers.is_head:
            self._keep(replace(finding, ranks=(rank,)))
        else:
            self.peers.send(NodeFound(rank, finding))

    def _keep(self, finding: Finding) -> None:
        """Keeps a finding, to be printed at once if no other rank can add to it."""
        if not self._makes(finding.check):
            return
        identity = finding.identity
        if self._kept.add(finding):
            self._due[identity] = time.monotonic() + PATIENCE
        if identity in self._due and len(self._kept[identity].ranks) == len(self.ranks):
            self._due[identity] = 0.0
        ends = finding.check is Check.OURS or self.options.mode == "strict"
        if finding.certain and ends and self.ending is None:
            self.ending, self._ended_at = finding, time.monotonic()
        self._write()

    def skip(self, check: Check, why: str) -> None:
        """Keeps the reason why a check is skipped."""
        if self.peers.is_head and self._kept.skip(check, why):
            self._write()

    def _write(self) -> None:
        with suppress(OSError):  # a full disk is reported elsewhere
            kept.write(self.folder, self._kept)
