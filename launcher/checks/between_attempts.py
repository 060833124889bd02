"""Checks that a run changed by the launcher trains like the original.

Compares two attempts whose first steps begin alike: with the same weights, samples, random states
and loss. Later differences come from the change. If the attempts begin differently, the training
isn't reproducible, and nothing is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.errors import Refused
from .between_ranks import Compared, Shared
from .finding import Check, Finding
from .seen_gradients import Row, decoded

STEPS = 3
"""Steps of an attempt to record."""
NEAR, DIVIDED = 1e-3, 1e-5
"""Maximum relative difference of the first losses; the second if batches are divided differently,
which itself changes a loss that is weighted by batch and not by sample."""
LOSS, GRADIENT = 0.05, 0.1
"""Minimum relative difference of later losses, and of gradient directions, to report. An update
amplifies rounding errors: Adam makes a full step of a gradient that is only rounding error."""
ROUNDINGS = 96
"""Roundings on the longest path to a gradient: over three times those of the sweep's models
(`benchmarks/sweep/tolerance.py`). In deeper models the errors partly cancel."""


@dataclass(frozen=True, slots=True)
class Step:
    """An optimizer step of all ranks.

    Attributes:
        loss: sums of the losses over each rank's passes, averaged over ranks.
        random: digests of the ranks' random states.
        drawn: number and digest of the samples drawn by all ranks after each of their batches: the
            step's, and those of the next step's first pass.
    """

    loss: float
    random: tuple[str, ...]
    drawn: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """Record of an attempt's first steps.

    Attributes:
        where: the user's line that calls backward.
        steps: the first steps, by number.
        weights: digests of sampled weights before the first step, by name.
        gradients: the optimizer's gradients of sampled parameters in two steps.
        step: the later of the two.
        roundoff: of the coarsest type on the gradients' way.
    """

    where: str = ""
    steps: Mapping[int, Step] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    gradients: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    step: int = 0
    roundoff: float = 0.0


def encoded(loss: float, random: str, drawn: Sequence[tuple[int, int]]) -> str:
    """Encodes a rank's step: the loss, the random states, and the drawn samples."""
    return " ".join((repr(loss), random, *(f"{count}:{digest:x}" for count, digest in drawn)))


def with_compared(begun: Begun, compared: Compared, values: Mapping[int, str]) -> Begun:
    """Adds a quantity that all ranks have sent; only the first optimizer's counts."""
    messages = [values[rank] for rank in sorted(values)]
    match compared.what:
        case Shared.STEP if len(begun.steps) < STEPS:
            step = _step(messages)
            if step is not None:
                steps = {**begun.steps, compared.step or 0: step}
                return replace(begun, steps=steps, where=begun.where or compared.place)
        case Shared.WEIGHTS if not (begun.weights or compared.step):
            digests = messages[0].split()
            if len({*messages}) == 1 and len(digests) == len(compared.names):
                return replace(begun, weights=dict(zip(compared.names, digests, strict=True)))
        case Shared.GRADIENTS if not begun.gradients:
            return _with_gradients(begun, compared, messages)
    return begun


def _step(messages: Sequence[str]) -> Step | None:
    """Decodes a step of all ranks; None if any message is invalid."""
    losses, states, lists = [], [], []
    try:
        for message in messages:
            loss, random, *words = message.split()
            losses.append(float(loss))
            states.append(random)
            parts = [word.partition(":") for word in words]
            lists.append([(int(count), int(digest, 16)) for count, _, digest in parts])
        drawn = tuple(
            (sum(count for count, _ in values), sum(digest for _, digest in values) % (1 << 32))
            for values in zip(*lists, strict=True)
        )
    except ValueError:
        return None
    return Step(sum(losses) / len(losses), tuple(states), drawn)


def _with_gradients(begun: Begun, compared: Compared, messages: Sequence[str]) -> Begun:
    seen = [decoded(message, len(compared.names)) for message in messages]
    samples = [samples for samples in seen if samples is not None]
    if len(samples) < len(messages):
        return begun
    gradients = {
        name: tuple(
            _whole([of_rank.windows[step][place].reached for of_rank in samples])
            for step in range(len(samples[0].windows))
        )
        for place, name in enumerate(compared.names)
    }
    roundoff = max(of_rank.roundoff for of_rank in samples)
    return replace(begun, gradients=gradients, step=compared.step or 0, roundoff=roundoff)


def _whole(rows: Sequence[Row]) -> tuple[float, ...]:
    """Combines elements from the first ranks that hold them."""
    return tuple(
        next((value for value in of_all if not math.isnan(value)), 0.0)
        for of_all in zip(*rows, strict=False)
    )


def judged(before: Begun, now: Begun) -> Finding | Refused | None:
    """A finding, a reason to skip the check, or None while data is missing.

    Args:
        before: the failed attempt.
        now: the corrected attempt, so far.
    """
    if not before.steps:
        return Refused("the attempt before made no step")
    both = sorted(before.steps.keys() & now.steps.keys())
    if not both:
        return Refused("the attempts start at different steps") if now.steps else None
    if not before.weights or not now.weights:
        return Refused("no weights are known to be equal on all ranks at the start")
    first, *later = both
    if difference := next(_differences(before, now, both), ""):
        return Refused(difference)
    old, new = before.steps[first].loss, now.steps[first].loss
    counts = ({count for count, _ in attempt.steps[first].drawn} for attempt in (before, now))
    if not _share(old, new) <= (NEAR if next(counts) == next(counts) else DIVIDED):
        return Refused(f"the first losses differ already: {old:g} before, {new:g} now")
    for step in later:
        old, new = before.steps[step].loss, now.steps[step].loss
        if _share(old, new) > LOSS:
            return _changed(now, step, f"the loss is {new:g} instead of {old:g}")
    share = _turned(before, now) if len(both) == STEPS else 0.0
    if share > max(GRADIENT, gamma(ROUNDINGS, max(before.roundoff, now.roundoff))):
        effect = f"sampled gradients are turned by {share:.0%} of their length"
        return _changed(now, later[-1], effect)
    return None


def _differences(before: Begun, now: Begun, both: Sequence[int]) -> Iterator[str]:
    """Differences between the attempts' beginnings that the change doesn't explain."""
    names = before.weights.keys() & now.weights.keys()
    if not names or any(before.weights[name] != now.weights[name] for name in names):
        yield "the attempts start with different weights"
    for step in both:
        old, new = before.steps[step], now.steps[step]
        if old.random != new.random:
            yield f"random draws differ by step {step}"
        elif not _have_same_samples(old.drawn, new.drawn):
            yield f"the samples of step {step} aren't known to be the same"


def _have_same_samples(old: Sequence[tuple[int, int]], new: Sequence[tuple[int, int]]) -> bool:
    """Whether samples are equal except for a prefetched batch."""
    seen, now = dict(old), dict(new)
    counts = seen.keys() & now.keys()
    last = max(counts, default=0)
    is_covered = all(drawn[-2][0] <= last for drawn in (old, new) if len(drawn) > 1)
    return last > 0 and is_covered and all(seen[count] == now[count] for count in counts)


def _share(first: float, second: float) -> float:
    """Relative difference of two numbers; NaN if either is NaN."""
    return abs(first - second) / max(abs(first), abs(second), 1e-30)


def _turned(before: Begun, now: Begun) -> float:
    """Smallest deviation of gradient directions in both steps; scales are ignored.

    Uses the second most deviating parameter: a single gradient may be only rounding error.
    """
    names = before.gradients.keys() & now.gradients.keys()
    if len(names) < 2 or before.step != now.step:
        return 0.0
    shares = (min(map(_angle, before.gradients[name], now.gradients[name])) for name in names)
    return sorted(shares)[-2]


def _angle(first: Row, second: Row) -> float:
    """Distance of two directions; 0 for zero vectors."""
    long, wide = math.hypot(*first), math.hypot(*second)
    if len(first) != len(second) or not 0 < long * wide < math.inf:
        return 0.0
    return math.hypot(*(a / long - b / wide for a, b in zip(first, second, strict=True)))


def _changed(now: Begun, step: int, effect: str) -> Finding:
    return Finding(
        Check.OURS,
        certain=True,
        sentence=f"the correction changes the training: in step {step}, from the same "
        f"weights, samples and first loss, {effect}",
        advice="The correction is reverted",
        step=step,
        where=now.where,
    )


def gamma(roundings: int, unit: float) -> float:
    """Bound of the relative rounding error (Higham, Accuracy and Stability, chapter 3)."""
    return (1 + unit) ** roundings - 1
