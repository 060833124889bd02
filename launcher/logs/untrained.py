"""Detects a finished training that learned nothing: by its loss, its gradient, or its steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ..diagnosis.next_step.without_exception import FEWER, LOSS, NONE, NORM, STILL
from ..evidence.failure_record import FailureRecord
from .attempts import Evidence
from .progress_signs import COUNT, IS_COMPLETE, STEPS, Written

TRAINING_LOSS = re.compile(
    r"(?<![\w/])(?:(?:train(?:ing)?|lm)[ _/])?loss(?:_step)?['\"]?\s*[:=]?\s*['\"]?"
    r"(?P<value>nan|[-+]?\d[\d.]*(?:e[-+]?\d+)?)(?![a-z])",
    re.IGNORECASE,
)
"""A training loss with its value in any loop's line; the first counts."""
EVALUATED = re.compile(r"\b(?:val(?:id(?:ation)?)?|eval(?:uation)?|test|dev)(?:\b|_)", re.I)
"""Words before a loss other than the training's, which is NaN without samples."""
LOST = "the loss is not a number, from line {first} to the end"
"""Message of the evidence that the last losses aren't numbers."""
NO_GRADIENT = re.compile(r"grad[ _]?norm['\"]?\s*[:=]?\s*['\"]?nan\b", re.IGNORECASE)
LEAST_LOST = 2
"""Minimum lines with such a loss: a single one may belong to a skipped step."""
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
TRAINS = re.compile(rf"{STEPS}|(?:^|[\n\r]) *(?:Train: +)?\d+%\|")
"""A step, or a bar without a name as the Trainer's, or ms-swift's; others may be of data."""
SAMPLES = re.compile(
    r"(?<![\w./-])(?P<count>\d[\d,]*) (?:\w+ )?(?P<what>prompts|samples|examples|sequences|rows)\b"
    r"|\b(?:[Nn]um(?:ber of)?|[Tt]otal)[ _](?:train(?:ing)?[ _])?(?P<kind>prompts|samples|examples)"
    r"\W{1,3}(?P<number>\d[\d,]*)\b"
)
BATCH = re.compile(
    r"(?<!micro_)(?<!micro-)(?<!device_)\b(?P<name>(?:\w+[._-])*?(?:rollout|global|train|total)"
    r"(?:[._-]\w+)?[._-]batch[_-]size)['\"]?\s*[=: ]\s*(?P<size>\d+)\b"
)
"""An option with the samples of one update of all ranks."""
OF_MICRO = re.compile(r"micro|per_device|per_gpu|eval|forward")
ZERO = re.compile(
    r"Total optimization steps\W{1,3}0\b|\bno training batches\b"
    r"|\b(?:num|total|max)_(?:train(?:ing)?_|update_|optimi[sz]er_)?(?:steps|iters)\W{1,4}0\b(?!\.)"
    r"|\b0 (?:optimi[sz](?:er|ation)|training|update) steps\b"
    r"|'train_steps_per_second': 0\.0\b|Total length of `DataLoader` across ranks is zero",
    re.IGNORECASE,
)
"""Numbers of a loop that does nothing."""


def lost_loss(lines: Sequence[Written]) -> Evidence | None:
    """Evidence that the last losses aren't numbers, if so."""
    losses = [(line, loss) for line in lines if (loss := _training_loss(line.text))]
    lost = [line for line, _ in takewhile(lambda pair: _has_none(*pair), reversed(losses))]
    if len(lost) < LEAST_LOST or not _is_lost(*losses[-1]):
        return None
    first = next(
        line for line, loss in losses if line.number >= lost[-1].number and _is_lost(line, loss)
    )
    return _evidence(first, LOST.format(first=first.number))


def _training_loss(text: str) -> re.Match[str] | None:
    """The training loss in a line; None if absent or an evaluation's."""
    loss = TRAINING_LOSS.search(text)
    if loss is None or loss["value"].count(".") > 1:  # e.g. a version
        return None
    is_other = EVALUATED.search(text, 0, loss.start()) or IS_COMPLETE.search(text)
    return None if is_other else loss


def _has_none(line: Written, loss: re.Match[str]) -> bool:
    """Whether a loss or its gradient is NaN."""
    return _is_lost(line, loss) or NO_GRADIENT.search(line.text) is not None


def _is_lost(line: Written, loss: re.Match[str]) -> bool:
    """Whether a loss is NaN; transformers' `logging_nan_inf_filter` turns it into 0."""
    value = loss["value"].lower()
    return value == "nan" or (float(value) == 0 and NO_GRADIENT.search(line.text) is not None)


def nothing_learned(lines: Sequence[Written]) -> Evidence | None:
    """Evidence that the last steps have no gradient, or all the same loss."""
    norms = [(line, match["value"]) for line in lines if (match := GRADIENT.search(line.text))]
    losses = [(line, match["value"]) for line in lines if (match := _training_loss(line.text))]
    if any(OVERFLOW.search(line.text) for line in lines):
        return None
    is_learned = bool(losses) and 0 < float(losses[-1][1]) < SMALL
    if norms and EXACT.fullmatch(norms[-1][1]) and not is_learned:
        return _first_same(NORM, norms) if _is_still(norms, _least(norms)) else None
    if not losses or is_learned:
        return None
    line, value = losses[-1]
    if float(value) == 0:
        is_shown = not norms and not REWARD.search(line.text) and _is_still(losses, LEAST)
    else:
        is_shown = float(value) > 0 and len(value.partition(".")[2]) > 2
        is_shown = is_shown and _is_still(losses, MANY)
    return _first_same(LOSS, losses) if is_shown else None


def _least(norms: Sequence[Number]) -> int:
    """The steps with a gradient of zero that prove something."""
    return MANY if REWARD.search(norms[-1][0].text) else LEAST


def _is_still(numbers: Sequence[Number], least: int) -> bool:
    """Whether so many last steps have the same number; several ranks may print the same step."""
    return len({_step_of(line) for line, _ in _same(numbers)}) >= least


def _step_of(line: Written) -> object:
    """The number of a line's step, or its text: a part of an epoch stays the same in many steps."""
    counts = COUNT.findall(line.text)
    whole = (count for count in counts if "." not in count[0])
    return next(whole, line.text if counts else line.number)


def _same(numbers: Sequence[Number]) -> list[Number]:
    """The last numbers, as far back as they are equal, in reverse."""
    return list(takewhile(lambda number: number[1] == numbers[-1][1], reversed(numbers)))


def _first_same(what: str, numbers: Sequence[Number]) -> Evidence:
    first, value = _same(numbers)[-1]
    return _evidence(first, STILL.format(what=what, value=value, first=first.number))


def trained_nothing(lines: Sequence[Written]) -> Evidence | None:
    """Evidence that a finished training made no step, from all the lines of its log."""
    if not any(IS_COMPLETE.search(line.text) for line in lines) or has_trained(lines):
        return None
    if zero := next((line for line in lines if ZERO.search(line.text)), None):
        return _evidence(zero, NONE.format(line=zero.number))
    counts = [(line, match) for line in lines for match in SAMPLES.finditer(line.text)]
    batches = [(line, match) for line in lines for match in BATCH.finditer(line.text)]
    sizes = [
        (int(match["size"]), match["name"])
        for _, match in batches
        if not OF_MICRO.search(match["name"])
    ]
    if not counts or not sizes:
        return None
    most, line, what = max(
        (
            (int(number.replace(",", "")), line, match["what"] or match["kind"])
            for line, match in counts
            if (number := match["count"] or match["number"])
        ),
        key=lambda count: count[0],
    )
    larger = [(size, name) for size, name in sizes if size > most > 0]
    if not larger:
        return None
    size, name = min(larger)
    return _evidence(line, FEWER.format(count=most, what=what, name=name, size=size))


def has_trained(lines: Sequence[Written]) -> bool:
    """Whether any line is of a running training."""
    return any(TRAINS.search(line.text) for line in lines)


def _evidence(line: Written, message: str) -> Evidence:
    record = FailureRecord(None, float(line.number), message=message)
    return Evidence(record, line.file, ((line.number, line.text.strip()),))
