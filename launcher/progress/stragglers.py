"""Detects stragglers: ranks that repeatedly make others wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from .board import WINDOW, RankProgress

FACTOR = 1.5
"""Minimum ratio of a straggler's time to the others' median, above the effect of different batch
lengths, as own times exclude the waiting that evens ranks out."""
SHARE = 0.1
"""Minimum share of a whole step lost by the others."""
LEAST = 0.005
"""Minimum seconds per step lost by the others, above a busy host's scheduler time slices of a few
milliseconds (sched(7))."""
PARTS = 4
"""Parts of the window; a straggler must be slower on average in each: that detects a loader which
delivers several batches at a time, and ignores a pause of a step or two."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that makes others wait.

    Attributes:
        factor: ratio of its own time to the others' median.
        seconds: time lost by the others per step.
    """

    rank: int
    factor: float
    seconds: float

    def text(self, host: str) -> str:
        """Formats the straggler as a sentence."""
        times = f"{self.factor:.1f}" if self.factor < 10 else f"{self.factor:.0f}"
        return (
            f"rank {self.rank} on {host} keeps the others waiting, {self.seconds:.2g} s a step: "
            f"its own part of a step takes {times} times as long as theirs"
        )


def stragglers(rows: Sequence[RankProgress]) -> tuple[Straggler, ...]:
    """Ranks with outlying own times in the latest `WINDOW` steps, slowest first.

    Empty while a rank has fewer steps, or if half of more than two ranks are slow: then both halves
    do different work.
    """
    if len(rows) < 2 or any(len(row.own) < WINDOW for row in rows):
        return ()
    means = [fmean(row.own) for row in rows]
    stragglers = []
    for place, row in enumerate(rows):
        usual = median(means[:place] + means[place + 1 :])
        seconds = means[place] - usual
        matters = seconds >= max(LEAST, SHARE * fmean(row.whole))
        if matters and min(_parts(row.own)) > FACTOR * usual:
            stragglers.append(Straggler(row.rank, means[place] / max(usual, 1e-6), seconds))
    if len(stragglers) > 1 and 2 * len(stragglers) >= len(rows):
        return ()
    return tuple(sorted(stragglers, key=lambda straggler: -straggler.seconds))


def _parts(times: Sequence[float]) -> list[float]:
    """The mean of each part of the window."""
    size = WINDOW // PARTS
    return [fmean(times[begin : begin + size]) for begin in range(0, WINDOW, size)]
