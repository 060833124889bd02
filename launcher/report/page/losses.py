"""The losses of an attempt, as the Trainer has printed them into a rank's log."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...system import regular_files

LINE = re.compile(rb"\{'loss': '?([-+.\deE]+|nan|inf)'?,[^{}]*?'epoch': '?([.\deE+-]+)'?\}")
"""A line of the Trainer's, by its callback for printing or for a progress bar."""
LONGEST = 64 << 20
"""Bytes of a log that are read."""
MOST = 1000
"""Points that are kept; a curve shows no more."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss, and the epochs done by then."""

    epoch: float
    loss: float


def losses(attempt: Path) -> tuple[Loss, ...]:
    """The losses in rank 0's log; none if no Trainer has printed any."""
    try:
        log = attempt / "rank-0.log"
        if not log.is_file():
            return ()
        with regular_files.opened(log) as file:
            parsed = list(_parsed(file.read(LONGEST)))
    except OSError:
        return ()
    stride = -(-len(parsed) // MOST) or 1
    return (*parsed[:-1:stride], *parsed[-1:])


def _parsed(text: bytes) -> Iterator[Loss]:
    for loss, epoch in LINE.findall(text):
        try:
            point = Loss(float(epoch), float(loss))
        except ValueError:
            continue
        if math.isfinite(point.epoch) and math.isfinite(point.loss):
            yield point
