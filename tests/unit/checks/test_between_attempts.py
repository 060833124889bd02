"""Whether a corrected attempt trains like the previous one, by the notes of both."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from safe_launch.checks.between_attempts import Begun, Step, encoded, judged, with_compared
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import Finding
from safe_launch.checks.seen_gradients import Passed, Seen, Way
from safe_launch.checks.seen_gradients import encoded as encoded_gradients
from safe_launch.core.errors import Refused

DRAWN = ((8, 3), (16, 9), (24, 4), (32, 7))
STEPS = {
    number: Step(loss, ("r", "s"), DRAWN[:number])
    for number, loss in enumerate((2.0, 1.9, 1.7), start=1)
}
ROWS = ((1.0, 0.0), (0.0, 2.0))
BEFORE = Begun("train.py:7", STEPS, {"v": "a"}, dict.fromkeys("uvw", ROWS), 3, 2.0**-24)


def losses(*values: float) -> Begun:
    """The notes with other losses."""
    steps = {at: replace(STEPS[at], loss=loss) for at, loss in enumerate(values, start=1)}
    return replace(BEFORE, steps=steps)


def turned(*names: str, first: bool = True) -> Begun:
    """The notes with other gradients of these parameters."""
    rows = ((0.5, 0.5) if first else ROWS[0], (2.0, 0.0))
    return replace(BEFORE, gradients={**BEFORE.gradients, **dict.fromkeys(names, rows)})


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (losses(2.0, 1.7, 1.6), "in step 2, from the same weights"),
        (losses(2.0, 1.9, 1.4), "the loss is 1.4 instead of 1.7"),
        (turned("u", "v"), "sampled gradients"),
    ],
)
def test_found(now: Begun, words: str) -> None:
    """A later loss differs, or the gradients of two parameters in both steps."""
    found = judged(BEFORE, now)
    assert isinstance(found, Finding)
    assert words in found.sentence
    assert (found.certain, found.where) == (True, "train.py:7")


@pytest.mark.parametrize(
    "now",
    [
        BEFORE,
        losses(2.0005, 1.94, 1.65),
        losses(2.0),
        losses(2.0, math.nan, math.inf),
        turned("u"),
        turned("u", "v", first=False),
        replace(turned("u", "v"), step=4),
        replace(turned("u", "v"), steps={1: STEPS[1], 2: STEPS[2]}),
        replace(BEFORE, gradients=dict.fromkeys("uvw", ((3.0, 0.0), (0.0, 9.0)))),
        Begun(weights={"v": "a"}),
    ],
)
def test_nothing_found(now: Begun) -> None:
    """Roundings, scales, one parameter, one step and unknown values are no finding."""
    assert judged(BEFORE, now) is None


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (Begun(), BEFORE, "made no step"),
        (BEFORE, replace(BEFORE, steps={9: STEPS[1]}), "at different steps"),
        (BEFORE, replace(BEFORE, weights={}), "no weights are known"),
        (BEFORE, replace(BEFORE, weights={"v": "b"}), "different weights"),
        (BEFORE, losses(2.1, 1.0, 1.0), "the first losses differ"),
        (BEFORE, losses(math.nan, 1.0, 1.0), "the first losses differ"),
    ],
)
def test_skipped(before: Begun, now: Begun, words: str) -> None:
    """Attempts that begin differently aren't compared."""
    found = judged(before, now)
    assert isinstance(found, Refused)
    assert words in found.sentence


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(1.0, ("r", "t"), DRAWN[:2]), "random draws"),
        (Step(1.0, ("r", "s"), ()), "the samples of step 2"),
        (Step(1.0, ("r", "s"), ((8, 3), (16, 8))), "the samples of step 2"),
        (Step(1.0, ("r", "s"), ((4, 5), (8, 3), (12, 2), (14, 1))), "the samples of step 2"),
    ],
)
def test_another_step(step: Step, words: str) -> None:
    """Dropout, other samples or a shorter overlap prevent a comparison."""
    found = judged(BEFORE, replace(BEFORE, steps={**STEPS, 2: step}))
    assert isinstance(found, Refused)
    assert words in found.sentence


def test_smaller_micro_batches() -> None:
    """The same samples in twice as many batches; a loader prefetches one."""
    halves = ((4, 1), (8, 3), (12, 5), (16, 9), (20, 1))
    steps = {1: Step(2.0, ("r", "s"), halves[:3]), 2: Step(1.5, ("r", "s"), halves)}
    assert isinstance(judged(BEFORE, replace(BEFORE, steps=steps)), Finding)
    steps[1] = replace(steps[1], loss=2.0005)  # batches have weights
    assert isinstance(judged(BEFORE, replace(BEFORE, steps=steps)), Refused)


def test_what_ranks_tell() -> None:
    """Losses are averaged, samples summed and gradients joined; invalid values are dropped."""
    step = Compared(Shared.STEP, "", "train.py:7", 1)
    values = {1: encoded(3.0, "s", [(4, 2)]), 0: encoded(1.0, "r", [(4, 1)])}
    begun = with_compared(Begun(), step, values)
    assert begun == Begun("train.py:7", {1: Step(2.0, ("r", "s"), ((8, 3),))})
    assert with_compared(begun, step, {0: "nonsense", 1: "1.0"}) == begun
    weights = Compared(Shared.WEIGHTS, "", "train.py:7#1", 0, ("v", "w"))
    begun = with_compared(begun, weights, {0: "a b", 1: "a b"})
    assert begun.weights == {"v": "a", "w": "b"}
    nan = math.nan
    parts = [
        Seen(Way.DEEPSPEED, 2.0**-9, ((Passed((), row),), (Passed((), row),)))
        for row in ((1.0, nan), (nan, 2.0))
    ]
    told = {rank: encoded_gradients(each) for rank, each in enumerate(parts)}
    gradients = Compared(Shared.GRADIENTS, "", "train.py:7#1", 3, ("v",))
    begun = with_compared(begun, gradients, told)
    assert (begun.gradients, begun.step, begun.roundoff) == ({"v": ((1.0, 2.0),) * 2}, 3, 2.0**-9)
    assert with_compared(begun, gradients, {0: "nonsense", 1: "x"}) == begun
