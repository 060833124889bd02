"""Whether a failed attempt is restarted with the same plan, as --max-restarts asks."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ..catalogue.entry import Finding, Kind
from ..core.refused import Refused
from ..evidence.failure_record import FailureRecord

SENT = (signal.SIGKILL, signal.SIGTERM)
"""Signals from outside, after which a restart may succeed (docs/using/exit-codes.md)."""


def next_restart(limit: int, used: int, roots: Sequence[Finding]) -> int | Refused:
    """The number of the next restart, 1 for the first; or why there is none.

    The `roots` are the root causes of the failed attempts, the latest last.
    """
    *earlier, root = roots
    is_sent = root.record.signal in SENT
    if root.entry is not None and root.entry.kind is Kind.USER and not is_sent:
        return Refused(f"the same input fails with {root.entry.id} every time")
    if any(_failure_key(root.record) == _failure_key(before.record) for before in earlier):
        return Refused("it has ended in the same way twice")
    if used >= limit:
        return Refused("no restart is left")
    return used + 1


def _failure_key(record: FailureRecord) -> tuple[object, ...]:
    """A failure's identity: exception, place and step."""
    frame = record.frames[-1] if record.frames else None
    death = (record.exit_code, record.signal)
    return record.exception, record.message, frame, record.step, death
