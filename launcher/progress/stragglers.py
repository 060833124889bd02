"""Stragglers: ranks that keep the others waiting, step after step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from .board import WINDOW, RankProgress

FACTOR = 1.5
"""Factor of a straggler's time over the median of the others: beyond the effect of batches of
different lengths, as a step's own time is without the waiting that evens ranks out."""
SHARE = 0.1
"""Least part of a whole step that it costs the others."""
LEAST = 0.005
"""Least seconds of a step that it costs the others: below that, the time slices of a busy host's
scheduler dominate, of a few milliseconds (sched(7))."""
PARTS = 4
"""Parts of the window, in each of which a straggler must be slower on average: a loader that
delivers several batches at a time is detected, a pause of a step or two is ignored."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that keeps the others waiting.

    Attributes:
        factor: its own time over the median of the others'.
        seconds: what it costs them, each step.
    """

    rank: int
    factor: float
    seconds: float

    def text(self, host: str) -> str:
        """A sentence for a person."""
        times = f"{self.factor:.1f}" if self.factor < 10 else f"{self.factor:.0f}"
        return (
            f"rank {self.rank} on {host} keeps the others waiting, {self.seconds:.2g} s a step: "
            f"its own part of a step takes {times} times as long as theirs"
        )


def stragglers(rows: Sequence[RankProgress]) -> tuple[Straggler, ...]:
    """The ranks whose own times stand out over the latest `WINDOW` steps, the slowest first.

    None while a rank has done fewer steps, and none if as many ranks are slow as aren't: then
    the two halves do different things, which a single rank of two hardly does.
    """
    if len(rows) < 2 or any(len(row.own) < WINDOW for row in rows):
        return ()
    means = [fmean(row.own) for row in rows]
    found = []
    for place, row in enumerate(rows):
        usual = median(means[:place] + means[place + 1 :])
        seconds = means[place] - usual
        matters = seconds >= max(LEAST, SHARE * fmean(row.whole))
        if matters and min(_parts(row.own)) > FACTOR * usual:
            found.append(Straggler(row.rank, means[place] / max(usual, 1e-6), seconds))
    if len(found) > 1 and 2 * len(found) >= len(rows):
        return ()
    return tuple(sorted(found, key=lambda straggler: -straggler.seconds))


def _parts(times: Sequence[float]) -> list[float]:
    """The mean of each part of the window."""
    size = WINDOW // PARTS
    return [fmean(times[begin : begin + size]) for begin in range(0, WINDOW, size)]
