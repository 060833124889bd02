"""Whether what has failed is started again as it is, as --max-restarts asks."""

from __future__ import annotations

from collections.abc import Sequence

from ..catalogue.entry import Finding, Kind
from ..evidence.failure_record import FailureRecord


def verdict(most: int, used: int, roots: Sequence[Finding]) -> tuple[bool, str]:
    """Whether another attempt is made with the same plan, and why, in words.

    Args:
        most: what --max-restarts says; without it there is no word either.
        used: how often that has been done.
        roots: the root cause of each attempt that has failed, the latest last.
    """
    if not most:
        return False, ""
    *earlier, root = roots
    no, asked = "not started again", f"--max-restarts {most}"
    if root.entry is not None and root.entry.kind is Kind.USER:
        return False, f"{no} ({asked}): what doesn't change fails of {root.entry.id} every time"
    if any(_manner(root.record) == _manner(one.record) for one in earlier):
        return False, f"{no} ({asked}): it has ended in the same way twice"
    if used >= most:
        return False, f"{no}: {asked} is used up"
    return True, f"{asked}: started again as it is, {used + 1} of {most}"


def _manner(record: FailureRecord) -> tuple[object, ...]:
    """How it has ended: what was raised where, in which step."""
    frame = record.frames[-1] if record.frames else None
    death = (record.exit_code, record.signal)
    return record.exception, record.message, frame, record.step, death
