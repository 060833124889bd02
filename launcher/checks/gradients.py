"""Checks that an optimizer's gradient is the mean over ranks of all backward additions.

Each rank sends a few elements of every backward pass's addition and of the optimizer's gradient.
Scales (accumulation, loss scale, clipping) aren't judged: any multiple of the mean is right. A
fault is reported only if it explains the gradient: a rank's local gradient, or the mean of only
some passes. Custom gradient changes in a script match neither.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.errors import EXPLAINED
from ..core.quantities import count_of
from .finding import Check, Finding
from .seen_gradients import PARTS, WINDOWS, Passed, Row, Seen, Way, decoded

LEAST = 8
"""Minimum elements with a gradient to judge."""
NEAR, FAR = 1e-3, 0.02
"""Errors as shares of the additions: up to the first, an explanation matches; beyond the second, or
five times the rounding error, it doesn't."""
COARSE = 0.05
"""Rounding error, as a share, that hides every fault."""
GATHERING = 3
"""First steps in which to inspect gathers."""
TRIED = 8
"""Ranks to find an explanation for; the others are compared with theirs."""


class Fate(StrEnum):
    """Fate of one addition."""

    MEAN = "mean"
    OWN = "own"
    LOST = "lost"


Fates = tuple[Fate, ...]


def judged(names: Sequence[str], values: Mapping[int, str]) -> Finding | None:
    """The finding; None for correct or unexplained gradients.

    Args:
        names: of the parameters.
        values: the messages of the ranks.
    """
    messages = {rank: decoded(value, len(names)) for rank, value in sorted(values.items())}
    seen = {rank: samples for rank, samples in messages.items() if samples is not None}
    ways = {samples.way for samples in seen.values()}
    if len(seen) < len(values) or len(ways) != 1:
        return None
    (way,) = ways
    if idle := _idle(seen):
        return _contributes_nothing(idle, names[0])
    roundoff = max(samples.roundoff for samples in seen.values())
    windows = next(iter(seen.values())).windows
    for place, name in enumerate(names):
        first, *others = (
            _fates({rank: seen[rank].windows[number][place] for rank in seen}, roundoff)
            for number in range(WINDOWS)
        )
        if any(other != first for other in others):
            continue
        if finding := _misled(first, way, name):
            return finding
        are_right = all({*fates} <= {Fate.MEAN} for fates in first.values())
        if first and are_right and _is_kept(windows, place):
            return never_cleared(name, tuple(seen))
    return None


def _is_kept(windows: Sequence[Sequence[Passed]], place: int) -> bool:
    """Whether a step begins with the previous gradients and accumulates onto them."""
    before, after = (window[place] for window in windows)
    first = after.parts[0] if len(after.parts) > 1 else ()
    return any(first) and [*first] == [*before.reached]


def never_cleared(name: str, ranks: tuple[int, ...] = ()) -> Finding:
    """Reports gradients that each step finds as the one before has used them."""
    return Finding(
        Check.GRADIENTS,
        certain=True,
        sentence=f"gradients are never cleared: what a step has used of {name} is still there in "
        "the next, and is used again",
        advice="Call optimizer.zero_grad() after each step",
        ranks=ranks,
        parameter=name,
    )


def _idle(seen: Mapping[int, Seen]) -> tuple[int, ...]:
    """Ranks that add nothing to several parameters, to each of which another rank adds."""
    has = {
        rank: [any(map(any, passed.parts)) for window in samples.windows for passed in window]
        for rank, samples in seen.items()
    }
    is_several = all(len(window) > 1 for samples in seen.values() for window in samples.windows)
    idle = tuple(rank for rank, added in has.items() if not any(added))
    return idle if is_several and any(map(all, has.values())) else ()


@dataclass(frozen=True, slots=True)
class _Added:
    """A step's additions to some elements on one rank, and the optimizer's gradient.

    Attributes:
        rows: for each addition, its possible fates.
        reached: the optimizer's gradient.
        size: sum of the additions, each as large as on its largest rank.
    """

    rows: tuple[Mapping[Fate, Row], ...]
    reached: Row
    size: float

    def miss(self, fates: Fates) -> float:
        """Minimum distance of a multiple of the combination from `reached`, relative to `size`."""
        rows = (row[fate] for row, fate in zip(self.rows, fates, strict=True) if fate in row)
        made = [sum(values) for values in zip(*rows, strict=True)] or [0.0] * len(self.reached)
        square = sum(value * value for value in made)
        pairs = list(zip(made, self.reached, strict=True))
        scale = sum(sent * got for sent, got in pairs) / square if square else 0.0
        if scale <= 0 or not math.isfinite(scale):
            return math.inf
        return math.hypot(*(got / scale - sent for sent, got in pairs)) / self.size


def _fates(ranks: Mapping[int, Passed], roundoff: float) -> dict[int, Fates]:
    """Fate of each addition, on ranks with enough elements; empty if any is unexplained."""
    count = max(len(passed.parts) for passed in ranks.values())
    noise = roundoff * math.sqrt(4 + count + len(ranks))
    near, far = max(NEAR, noise), max(FAR, 5 * noise)
    fates_of: dict[int, Fates] = {}
    for rank, added in _added(ranks, count).items() if noise <= COARSE else ():
        right = (Fate.MEAN,) * count
        if added.miss(right) <= far:
            fates_of[rank] = right
            continue
        every = itertools.product(Fate, repeat=count) if len(fates_of) < TRIED else ()
        ordered = sorted(every, key=lambda fates: -fates.count(Fate.MEAN))
        candidates = itertools.chain(dict.fromkeys(fates_of.values()), ordered)
        explanation = next((fates for fates in candidates if added.miss(fates) <= near), None)
        if explanation is None:
            return {}
        fates_of[rank] = explanation
    return fates_of


def _added(ranks: Mapping[int, Passed], count: int) -> dict[int, _Added]:
    """The additions by rank; empty if their numbers differ or one is infinite."""
    length = min(len(passed.reached) for passed in ranks.values())
    nothing = ((0.0,) * length,) * count
    parts = {rank: passed.parts or nothing for rank, passed in ranks.items()}
    if any(len(rows) != count for rows in parts.values()):
        return {}
    every = [list(zip(*rows, strict=True)) for rows in zip(*parts.values(), strict=True)]
    if not all(math.isfinite(value) for part in every for values in part for value in values):
        return {}
    means = [[sum(values) / len(ranks) for values in part] for part in every]
    sizes = [sum(max(map(abs, part[place])) for part in every) for place in range(length)]
    added = {}
    for rank, passed in ranks.items():
        places = [
            place
            for place in range(length)
            if math.isfinite(passed.reached[place]) and sizes[place]
        ]
        if every and len(places) >= LEAST:
            rows = tuple(
                {
                    Fate.MEAN: [mean[place] for place in places],
                    Fate.OWN: [rows_of_rank[place] for place in places],
                }
                for mean, rows_of_rank in zip(means, parts[rank], strict=True)
            )
            reached = [passed.reached[place] for place in places]
            added[rank] = _Added(rows, reached, math.hypot(*(sizes[place] for place in places)))
    return added


def _misled(fates: Mapping[int, Fates], way: Way, name: str) -> Finding | None:
    """The finding; gradients that a script clears between passes are ignored."""
    local = tuple(rank for rank, of_rank in fates.items() if Fate.OWN in of_rank)
    lost = tuple(rank for rank, of_rank in fates.items() if Fate.LOST in of_rank)
    if local:
        return Finding(
            Check.GRADIENTS,
            certain=way is not Way.SCRIPT,
            sentence="gradients aren't averaged over the ranks: what reaches the optimizer of "
            f"{name} is what the rank's own batches have added{_in_part(fates[local[0]])}",
            advice=AVERAGED[way],
            ranks=local,
            parameter=name,
        )
    if not lost or way not in TAKEN:
        return None
    first = fates[lost[0]]
    return Finding(
        Check.GRADIENTS,
        certain=True,
        sentence=f"gradients are lost: of {count_of(len(first), 'addition')} that backward passes "
        f"made to {name} in a step, {_numbers(first)} never reached the optimizer",
        advice=TAKEN[way],
        ranks=lost,
        parameter=name,
    )


def _in_part(fates: Fates) -> str:
    if Fate.MEAN not in fates:
        return ""
    return f" in {fates.count(Fate.OWN)} of {count_of(len(fates), 'pass')}"


def _numbers(fates: Fates) -> str:
    """Formats the lost additions; the last but one represents all in between."""
    lost = [str(place + 1) for place, fate in enumerate(fates) if fate is Fate.LOST]
    is_merged = len(fates) == PARTS and fates[-2] is Fate.LOST
    more = " (with all up to the last)" if is_merged else ""
    return f"number {' and '.join(lost)}{more}"


def _contributes_nothing(ranks: tuple[int, ...], name: str) -> Finding:
    """Reports ranks that contribute nothing; a batch of padding may be intended."""
    return Finding(
        Check.GRADIENTS,
        certain=False,
        sentence="a rank contributes nothing to the gradients: its backward passes add only zeros "
        f"to {name} and the other sampled parameters, and the mean counts them",
        advice="Look at the batches of these ranks: they may be empty, or all masked",
        ranks=ranks,
        parameter=name,
    )


AVERAGED = {
    Way.DDP: "Call the wrapper and not its .module, and leave no_sync() for the forward and the "
    "backward pass of the last micro batch",
    Way.SCRIPT: "If the ranks are to train one model, wrap it in DistributedDataParallel, or "
    "average the gradients before the step",
    Way.DEEPSPEED: f"Update DeepSpeed, or take another stage ({EXPLAINED})",
    Way.FSDP: "Synchronize the last micro batch (set_requires_gradient_sync), and use "
    "non-reentrant checkpointing",
}
TAKEN = {
    Way.DEEPSPEED: "Use stage 3, which counts every pass, or update DeepSpeed to 0.19 or newer if "
    f"the lost ones are micro batches ({EXPLAINED})",
    Way.FSDP: "Use non-reentrant checkpointing (use_reentrant=False): a block that runs twice in "
    "one pass is reduced after its first backward pass",
}
"""Advice by mechanism that can lose additions."""


def gathered() -> Finding:
    """Reports features of other ranks that a loss uses as constants."""
    return Finding(
        Check.GRADIENTS,
        certain=False,
        sentence="the features that all_gather collects have no gradient: the loss takes them for "
        "constants, so that a part of each rank's gradient is missing",
        advice="Gather with torch.distributed.nn.functional.all_gather. If only the rank's own "
        "features are put back into their place, gradients are as many times too small as there "
        "are ranks, or lack what other ranks' losses add to them",
    )
