"""Whether what the launcher has changed trains as what it has replaced.

Two attempts are compared whose first steps begin alike: with the same weights, samples, random
states and loss. What differs afterwards comes from the change. Wherever they don't begin alike,
nothing is said: the training is another one by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.refused import Refused
from .between_ranks import Compared, Shared
from .finding import Check, Finding
from .rounding import gamma
from .seen_gradients import Row, decoded

STEPS = 3
"""Steps of an attempt whose losses are noted."""
NEAR, DIVIDED = 1e-3, 1e-5
"""The share by which the losses of the first step of both may differ; the second if batches are
divided otherwise: there a loss that weighs by batch and not by sample is another one by itself."""
LOSS, GRADIENT = 0.05, 0.1
"""The share by which a later loss differs, and the direction of a gradient, if it is another's.
An update amplifies roundings: Adam makes a whole step of a gradient that is nothing but one."""
ROUNDINGS = 96
"""On the longest path to a gradient: more than three times those of the sweep's models
(`benchmarks/sweep/tolerance.py`). The errors of deeper ones partly cancel each other."""


@dataclass(frozen=True, slots=True)
class Step:
    """An optimizer step of all ranks.

    Attributes:
        loss: what backward was called on, as sums over each rank's passes, the mean of all ranks.
        random: digests of the ranks' random states.
        drawn: samples that all ranks had drawn, after each of their batches, and their digests;
            the step's all, and what the next one's first pass takes.
    """

    loss: float
    random: tuple[str, ...]
    drawn: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """How an attempt has begun.

    Attributes:
        where: the user's line that calls backward.
        steps: the first ones, by their numbers.
        weights: digests of sampled weights before the first step, by name.
        gradients: what the optimizer got in two steps, of sampled parameters.
        step: the later one.
        roundoff: of the coarsest type on the gradients' way.
    """

    where: str = ""
    steps: Mapping[int, Step] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    gradients: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    step: int = 0
    roundoff: float = 0.0


def encoded(loss: float, random: str, drawn: Sequence[tuple[int, int]]) -> str:
    """A rank's step as words: the loss, its random states, and what it had drawn."""
    return " ".join((repr(loss), random, *(f"{count}:{digest:x}" for count, digest in drawn)))


def with_told(begun: Begun, compared: Compared, values: Mapping[int, str]) -> Begun:
    """What is known once all ranks have told a quantity; that of the first optimizer counts."""
    told = [values[rank] for rank in sorted(values)]
    match compared.what:
        case Shared.STEP if len(begun.steps) < STEPS:
            step = _step(told)
            if step is not None:
                steps = {**begun.steps, compared.step or 0: step}
                return replace(begun, steps=steps, where=begun.where or compared.place)
        case Shared.WEIGHTS if not (begun.weights or compared.step):
            digests = told[0].split()
            if all(each == told[0] for each in told) and len(digests) == len(compared.names):
                return replace(begun, weights=dict(zip(compared.names, digests, strict=True)))
        case Shared.GRADIENTS if not begun.gradients:
            return _with_gradients(begun, compared, told)
    return begun


def _step(told: Sequence[str]) -> Step | None:
    """A step of all ranks; None if any has sent something else."""
    losses, states, lists = [], [], []
    try:
        for value in told:
            loss, random, *words = value.split()
            losses.append(float(loss))
            states.append(random)
            parts = [word.partition(":") for word in words]
            lists.append([(int(count), int(digest, 16)) for count, _, digest in parts])
        drawn = tuple(
            (sum(count for count, _ in each), sum(digest for _, digest in each) % (1 << 32))
            for each in zip(*lists, strict=True)
        )
    except ValueError:
        return None
    return Step(sum(losses) / len(losses), tuple(states), drawn)


def _with_gradients(begun: Begun, compared: Compared, told: Sequence[str]) -> Begun:
    seen = [decoded(value, len(compared.names)) for value in told]
    windows = [each.windows for each in seen if each is not None]
    if len(windows) < len(told):
        return begun
    found = {
        name: tuple(
            _whole([of_rank[step][place].reached for of_rank in windows])
            for step in range(len(windows[0]))
        )
        for place, name in enumerate(compared.names)
    }
    roundoff = max(each.roundoff for each in seen if each is not None)
    return replace(begun, gradients=found, step=compared.step or 0, roundoff=roundoff)


def _whole(rows: Sequence[Row]) -> tuple[float, ...]:
    """Each element from the first rank that holds it."""
    return tuple(
        next((value for value in of_all if not math.isnan(value)), 0.0)
        for of_all in zip(*rows, strict=False)
    )


def judged(before: Begun, now: Begun) -> Finding | Refused | None:
    """A finding, why there can't be one, or None as long as too little is known.

    Args:
        before: the attempt whose failure was corrected.
        now: the corrected one, so far.
    """
    if not before.steps:
        return Refused("the attempt before made no step")
    both = sorted(before.steps.keys() & now.steps.keys())
    if not both:
        return Refused("the attempts begin at other steps") if now.steps else None
    if not before.weights or not now.weights:
        return Refused("no weights are seen at the start that every rank holds alike")
    first, *later = both
    why = _another_start(before, now) or next(filter(None, _differing(before, now, both)), "")
    if why:
        return Refused(why)
    one, other = before.steps[first].loss, now.steps[first].loss
    counts = ({count for count, _ in each.steps[first].drawn} for each in (before, now))
    if not _share(one, other) <= (NEAR if next(counts) == next(counts) else DIVIDED):
        return Refused(f"the first losses differ already: {one:g} before, {other:g} now")
    for step in later:
        one, other = before.steps[step].loss, now.steps[step].loss
        if _share(one, other) > LOSS:
            return _found(now, step, f"the loss is {other:g} instead of {one:g}")
    share = _turned(before, now) if len(both) == STEPS else 0.0
    if share > max(GRADIENT, gamma(ROUNDINGS, max(before.roundoff, now.roundoff))):
        said = f"sampled gradients are turned by {share:.0%} of their length"
        return _found(now, later[-1], said)
    return None


def _another_start(before: Begun, now: Begun) -> str:
    both = before.weights.keys() & now.weights.keys()
    is_same = both and all(before.weights[name] == now.weights[name] for name in both)
    return "" if is_same else "the attempts begin with other weights"


def _differing(before: Begun, now: Begun, both: Sequence[int]) -> Iterator[str]:
    """What may be another in a step though nothing was changed; empty if nothing."""
    for step in both:
        one, other = before.steps[step], now.steps[step]
        if one.random != other.random:
            yield f"random draws differ by step {step}"
        elif not _have_same_samples(one.drawn, other.drawn):
            yield f"it isn't seen that the samples of step {step} are the same"


def _have_same_samples(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    """Whether all agree but for a batch that either has drawn ahead."""
    seen, now = dict(one), dict(other)
    counts = seen.keys() & now.keys()
    last = max(counts, default=0)
    is_covered = all(each[-2][0] <= last for each in (one, other) if len(each) > 1)
    return last > 0 and is_covered and all(seen[count] == now[count] for count in counts)


def _share(one: float, other: float) -> float:
    """By which share two numbers differ; NaN if one is."""
    return abs(one - other) / max(abs(one), abs(other), 1e-30)


def _turned(before: Begun, now: Begun) -> float:
    """How far gradients point elsewhere in both steps; their scales are free.

    Of the parameter that does second most: a gradient may be nothing but roundings.
    """
    names = before.gradients.keys() & now.gradients.keys()
    if len(names) < 2 or before.step != now.step:
        return 0.0
    shares = (min(map(_angle, before.gradients[name], now.gradients[name])) for name in names)
    return sorted(shares)[-2]


def _angle(one: Row, other: Row) -> float:
    """The distance of two directions; 0 where there is no direction."""
    long, wide = math.hypot(*one), math.hypot(*other)
    if len(one) != len(other) or not 0 < long * wide < math.inf:
        return 0.0
    return math.hypot(*(a / long - b / wide for a, b in zip(one, other, strict=True)))


def _found(now: Begun, step: int, said: str) -> Finding:
    return Finding(
        Check.OURS,
        certain=True,
        sentence=f"what was corrected trains otherwise than before: in step {step}, from the same "
        f"weights, samples and first loss, {said}",
        advice="The correction is taken back",
        step=step,
        where=now.where,
    )
