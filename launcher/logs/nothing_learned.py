"""Detects a training whose gradient or loss doesn't move, by the numbers of its last steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ..diagnosis.next_step.nothing_learned import LOSS, NORM, STILL
from ..evidence.failure_record import FailureRecord
from .attempts import Evidence
from .lost_loss import training_loss
from .progress_signs import COUNT, Written

GRADIENT = re.compile(
    r"\bgrad(?:ient)?[ _]?norm['\"]?\s*[:=]?\s*['\"]?(?P<value>\d[\d.]*(?:e[-+]?\d+)?)(?![\w.])",
    re.IGNORECASE,
)
LEAST = 5
"""Minimum steps at the end with the same number."""
SMALL = 0.05
"""A smaller loss may stay because it is learned, and a number with few digits by rounding."""
REWARD = re.compile(r"\b(?:reward|advantage|completion|kl)", re.IGNORECASE)
"""Words beside a loss that is about zero by its definition (GRPO)."""
OVERFLOW = re.compile(r"overflow|skipping step", re.IGNORECASE)
"""Words of a loss scaler that still looks for its scale, whose steps have no gradient."""
Number = tuple[Written, str]
"""A line, and the number in it."""


def nothing_learned(lines: Sequence[Written]) -> Evidence | None:
    """Evidence that the last steps have no gradient, or all the same loss."""
    norms = [(line, match["value"]) for line in lines if (match := GRADIENT.search(line.text))]
    losses = [(line, match["value"]) for line in lines if (match := training_loss(line.text))]
    if any(OVERFLOW.search(line.text) for line in lines):
        return None
    if _is_still(norms) and float(norms[-1][1]) == 0:
        return _evidence(NORM, norms)
    if not _is_still(losses):
        return None
    line, value = losses[-1]
    is_zero = float(value) == 0 and not norms and not REWARD.search(line.text)
    is_large = float(value) >= SMALL and len(value.partition(".")[2]) > 2
    return _evidence(LOSS, losses) if is_zero or is_large else None


def _is_still(numbers: Sequence[Number]) -> bool:
    """Whether the last steps have the same number; several ranks may print the same step."""
    steps = {
        (found[0] if (found := COUNT.findall(line.text)) else line.number)
        for line, _ in _same(numbers)
    }
    return len(steps) >= LEAST


def _same(numbers: Sequence[Number]) -> list[Number]:
    """The last numbers, as far back as they are equal, in reverse."""
    return list(takewhile(lambda number: number[1] == numbers[-1][1], reversed(numbers)))


def _evidence(what: str, numbers: Sequence[Number]) -> Evidence:
    first, value = _same(numbers)[-1]
    message = STILL.format(what=what, value=value, first=first.number)
    record = FailureRecord(None, float(first.number), message=message)
    return Evidence(record, first.file, ((first.number, first.text.strip()),))
