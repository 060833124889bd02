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
    r"\bgrad(?:ient)?[ _]?norm['\"]?\s*[:=]?\s*['\"]?"
    r"(?P<value>\d+(?:\.\d*)?(?:e[-+]?\d+)?)(?![\w.])",
    re.IGNORECASE,
)
LEAST, MANY = 5, 20
"""Minimum steps at the end with the same number: of zeros, and of what a warmup, rounding or equal
rewards may also explain for a while."""
SMALL = 0.05
"""A smaller loss may stay because it is learned."""
EXACT = re.compile(r"0(?:\.0|\.0{5,})?")
"""A zero that isn't rounded to few digits."""
REWARD = re.compile(r"\b(?:reward|advantage|completion|kl)", re.IGNORECASE)
"""Words beside numbers that are zero by their definition while all rewards are equal (GRPO)."""
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
    is_learned = bool(losses) and 0 < float(losses[-1][1]) < SMALL
    if norms and EXACT.fullmatch(norms[-1][1]) and not is_learned:
        return _evidence(NORM, norms) if _is_still(norms, _least(norms)) else None
    if not losses or is_learned:
        return None
    line, value = losses[-1]
    if float(value) == 0:
        is_shown = not norms and not REWARD.search(line.text) and _is_still(losses, LEAST)
    else:
        is_shown = float(value) > 0 and len(value.partition(".")[2]) > 2
        is_shown = is_shown and _is_still(losses, MANY)
    return _evidence(LOSS, losses) if is_shown else None


def _least(norms: Sequence[Number]) -> int:
    """The steps with a gradient of zero that prove something."""
    return MANY if REWARD.search(norms[-1][0].text) else LEAST


def _is_still(numbers: Sequence[Number], least: int) -> bool:
    """Whether so many last steps have the same number; several ranks may print the same step."""
    steps = {
        (found[0] if (found := COUNT.findall(line.text)) else line.number)
        for line, _ in _same(numbers)
    }
    return len(steps) >= least


def _same(numbers: Sequence[Number]) -> list[Number]:
    """The last numbers, as far back as they are equal, in reverse."""
    return list(takewhile(lambda number: number[1] == numbers[-1][1], reversed(numbers)))


def _evidence(what: str, numbers: Sequence[Number]) -> Evidence:
    first, value = _same(numbers)[-1]
    message = STILL.format(what=what, value=value, first=first.number)
    record = FailureRecord(None, float(first.number), message=message)
    return Evidence(record, first.file, ((first.number, first.text.strip()),))
