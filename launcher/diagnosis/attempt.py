"""A launch of all workers, and its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoints.checkpoint import Saves
from ..core.choices import Framework
from ..core.settings import Value
from ..core.workload import Statement
from ..evidence.failure_record import FailureRecord
from ..nodes.peers import AttemptEnd
from ..planning.plan import Plan
from ..progress.board import RankProgress


@dataclass(frozen=True, slots=True)
class Attempt:
    """A launch of all workers with one plan.

    Attributes:
        number: 0 for the first attempt.
        plan: the plan of the attempt.
        folder: the folder of its plan, records and logs.
        before: the attempt whose failure it corrects, if any.
    """

    number: int
    plan: Plan
    folder: Path
    before: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Reports of an attempt's workers before the first step, and their progress.

    Attributes:
        observed: settings in force and facts, by name.
        model: the model's configuration and kinds of weights, from a worker's description
            (`launcher/core/model.py`, `shape_of`); None before the first.
        saves: save folders of node 0's Trainers, rank 0's first; empty before training.
        rows: final progress of node 0's ranks.
        span: the attempt's start and end, in seconds of node 0's monotonic clock.
        asked: the script's settings and other facts, reported by workers before asking for
            settings.
        framework: the owner of the training loop in these reports; None if unknown.
    """

    observed: Mapping[str, Value]
    model: Mapping[str, Any] | None = None
    saves: tuple[Saves, ...] = ()
    rows: tuple[RankProgress, ...] = ()
    span: tuple[float, float] = (0.0, 0.0)
    asked: tuple[Statement, ...] = ()
    framework: Framework | None = None

    def document(self) -> dict[str, Any]:
        """The settings, the facts, the model and the span, for the run directory.

        The span is in seconds of the wall clock since the epoch.
        """
        offset = time.time() - time.monotonic()
        span = [moment + offset for moment in self.span] if any(self.span) else None
        return {
            "observed": dict(self.observed),
            "asked": {name: known.value for name, known in self.asked},
            "model": self.model,
            "span": span,
        }


@dataclass(frozen=True, slots=True)
class Succeeded:
    """All workers completed the script; `remarks` has later events."""

    attempt: Attempt
    remarks: tuple[str, ...] = ()
    seen: Seen = Seen({})


@dataclass(frozen=True, slots=True)
class Failed:
    """At least one worker died, or a node was lost.

    Attributes:
        attempt: the failed attempt.
        records: one per worker that failed by itself and per lost node; earliest first.
        seen: the workers' reports.
        lost: ranks of unreachable nodes.
    """

    attempt: Attempt
    records: tuple[FailureRecord, ...]
    seen: Seen = Seen({})
    lost: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A signal stopped the launcher."""

    attempt: Attempt
    signal: int
    seen: Seen = Seen({})


@dataclass(frozen=True, slots=True)
class Superseded:
    """A worker reported a fact that forbids the plan, before any failure."""

    attempt: Attempt
    seen: Seen


Outcome = Succeeded | Failed | Interrupted | Superseded


def outcome_of(attempt: Attempt, part: AttemptEnd) -> Outcome:
    """The outcome, in order of precedence: finished, interrupted, superseded, failed."""
    ended = list(part.ended.values())
    seen = Seen(part.observed, part.model, part.saves, part.rows, part.span)
    broken = part.lost.keys() - {rank for rank, end in part.ended.items() if end.is_success}
    if not broken and all(end.is_success for end in ended):
        return Succeeded(attempt, tuple(remark for end in ended for remark in end.remarks), seen)
    signals = [end.signal for end in ended if end.signal is not None]
    if signals:
        return Interrupted(attempt, signals[0], seen)
    if part.is_superseded and not part.lost:
        return Superseded(attempt, seen)
    records = [record for end in ended for record in end.records]
    for rank in part.failing.keys() - part.ended.keys():
        records += part.failing[rank]
    for rank in broken:
        at, text = part.lost[rank]
        records.append(FailureRecord(None, at, message=text, log_tail=(text,)))
    records.sort(key=lambda record: record.at)
    return Failed(attempt, tuple(records), seen, frozenset(part.lost))
