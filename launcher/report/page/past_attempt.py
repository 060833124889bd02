"""An attempt for its page, read from the attempt's folder; broken files give less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ...checks import kept
from ...core.constraint import Cause
from ...core.errors import Refused
from ...diagnosis.allocator_message import allocation_of
from ...evidence.failure_record import FailureRecord, title_of
from ...hangs.report import HangReport
from ...progress import snapshot
from ...progress.board import RankProgress
from ...progress.snapshot import Snapshot
from ...system import typed_files
from ...system.terminal import Row
from .. import explain_hang
from .losses import Loss, losses
from .source_excerpt import Excerpt, excerpt

MOST_HANGS = 4
MOST_FAILURES = 8


@dataclass(frozen=True, slots=True)
class Hang:
    """A report on a run that stood still: a headline, and rows."""

    headline: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank's failure.

    Attributes:
        who: the rank and its host.
        what: the exception and the first line of its message.
        entry: the known failure's id; empty if none explains it.
        role: as the diagnosis has it.
        excerpt: the user's line; None if there is none.
        traceback: as Python prints it, with the whole message.
    """

    who: str
    what: str
    entry: str = ""
    role: str = ""
    excerpt: Excerpt | None = None
    traceback: str = ""


class PlannedChange(msgspec.Struct, frozen=True):
    """A setting that a plan changes, as `plan.json` has it."""

    setting: str
    old: Any
    source: str
    new: Any
    cause: Cause


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt.

    Attributes:
        number: from 1.
        span: start and end in seconds of the wall clock since the epoch; None if unknown.
        plan: `plan.json`.
        failures: the root cause first, at most `MOST_FAILURES`.
        rows: the launch's rows on the failure.
        failed: the number of failed ranks.
        hangs: the reports on standstills.
        nodes: the progress of each node's ranks.
        losses: as the Trainer has printed them.
        points: seconds since the epoch and steps done by then.
        observed_memory: bytes by name: the memory held, and a failure's limit.
        checks: findings and skipped checks.
    """

    number: int
    span: tuple[float, float] | None
    plan: Mapping[str, Any]
    failures: tuple[Failure, ...]
    rows: tuple[Row, ...]
    failed: int
    hangs: tuple[Hang, ...]
    nodes: tuple[Snapshot, ...]
    losses: tuple[Loss, ...]
    points: tuple[snapshot.Point, ...]
    observed_memory: Mapping[str, int]
    checks: kept.Document = field(default_factory=kept.Document)

    @property
    def changes(self) -> list[PlannedChange]:
        """The plan's changes to the request; invalid rows are left out."""
        changes = []
        for change in _dicts(self.plan.get("changes")):
            with suppress(msgspec.ValidationError):
                changes.append(msgspec.convert(change, PlannedChange))
        return changes

    @property
    def has_trained(self) -> bool:
        """Whether any rank is known to have done a step."""
        steps = (row.step for node in self.nodes for row in node.rows)
        return bool(self.losses or self.points) or any(map(bool, steps))

    @property
    def components(self) -> dict[str, int]:
        """The predicted memory by component in bytes; empty if it isn't estimated."""
        estimate = self.plan.get("estimate")
        components = estimate.get("components") if isinstance(estimate, dict) else None
        sizes = components.items() if isinstance(components, dict) else ()
        return {str(name): size for name, size in sizes if isinstance(size, int) and size > 0}


def read_attempt(folder: Path, number: int, nodes: int) -> PastAttempt:
    """An attempt of a run on that number of nodes."""
    failed = _json(folder / "failures.json")
    findings = _dicts(failed.get("findings"))
    records = [finding["record"] for finding in findings if isinstance(finding.get("record"), dict)]
    span = _json(folder / "observed.json").get("span")
    is_span = isinstance(span, list) and [type(part) for part in span] == [float, float]
    read = [snapshot.read(folder, node) for node in range(nodes)]
    snapshots = [finding for finding in read if isinstance(finding, Snapshot)]
    rows = [row for finding in snapshots for row in finding.rows]
    return PastAttempt(
        number,
        (span[0], span[1]) if is_span and isinstance(span, list) else None,
        _json(folder / "plan.json"),
        _without_repeated_lines([_failure(finding) for finding in findings[:MOST_FAILURES]]),
        _rows(failed.get("rows")),
        len(findings),
        tuple(_hangs(folder)),
        tuple(snapshots),
        losses(folder),
        snapshot.read_pace(folder),
        _memory(records[0]) if records else _peak(rows),
        kept.read(folder),
    )


def _failure(finding: Mapping[str, Any]) -> Failure:
    record = finding.get("record")
    record = record if isinstance(record, dict) else {}
    host = f" on {record['host']}" if record.get("host") else ""
    rank = record.get("rank")
    return Failure(
        f"a node{host}" if rank is None else f"rank {rank}{host}",
        title_of(record).partition("\n")[0],
        str(finding.get("entry") or ""),
        str(finding.get("role") or ""),
        excerpt(_dicts(record.get("frames"))),
        str(record.get("traceback") or str(record.get("message") or "").strip()),
    )


def _without_repeated_lines(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """The failures; of those at the same line only the first shows it."""
    seen: set[tuple[str, int]] = set()
    result: list[Failure] = []
    for failure in failures:
        place = failure.excerpt and (failure.excerpt.file, failure.excerpt.line)
        result.append(replace(failure, excerpt=None) if place in seen else failure)
        seen |= {place} if place else set()
    return tuple(result)


def _peak(rows: Sequence[RankProgress]) -> dict[str, int]:
    """The memory of the rank that held the most; empty if unknown."""
    peak = max((row.peak for row in rows), default=0)
    return {"held": peak} if peak else {}


def _memory(record: Mapping[str, Any]) -> dict[str, int]:
    """Memory held by the process or device, by a failure's message or the worker's figures."""
    measured = record.get("memory")
    sizes = measured if isinstance(measured, dict) else {}
    text = FailureRecord(
        0,
        0.0,
        exception=str(record.get("exception") or ""),
        message=str(record.get("message") or ""),
        memory={str(name): size for name, size in sizes.items() if isinstance(size, int)},
    )
    seen = allocation_of(text)
    held = {
        "held": seen.allocated or seen.process,
        "limit": seen.capacity,
        "asked": seen.requested,
    }
    return {name: size for name, size in held.items() if size} if seen.requested else {}


def _hangs(folder: Path) -> list[Hang]:
    paths = (folder / f"standings-{number}.json" for number in range(1, MOST_HANGS + 1))
    reports = (typed_files.read_json(path, HangReport) for path in paths)
    return [
        Hang(explain_hang.headline(report), tuple(explain_hang.rows(report)))
        for report in reports
        if not isinstance(report, Refused)
    ]


def _rows(value: object) -> tuple[Row, ...]:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, tuple[Row, ...])
    return ()


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _json(path: Path) -> dict[str, Any]:
    """A file's document; empty if it can't be read, for which the status has the reason."""
    document = typed_files.read_json(path, dict[str, Any])
    return {} if isinstance(document, Refused) else document
