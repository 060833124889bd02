"""Checks that losses are given what they are defined for: probabilities, negatives, rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .finding import BATCHES, Check, Fault, Finding

CALLS = 3
"""Calls of a loss that must agree."""
POSITIVE = 1e-3
"""Least logarithm of a probability that is too large for one, beyond rounding."""
NEAR = 0.02
"""Deviation of a sum of probabilities that may be due to rounding."""
TOO_MUCH = 1.1
"""Least sum of probabilities that is too large, even in half precision."""
OUTSIDE = 0.5
"""Distance from 0..1 of targets that smoothing doesn't explain."""
CLASSES = 1000
"""Least number of classes by which nobody divides a loss willingly."""
SHOWING = 2
"""Least number of contrastive batches that show a fault."""
SHARE = 0.1
"""Least share of samples that are drawn twice."""
STEPS = 10
"""Batches whose advantages are inspected."""
LEAST_P, FEW = 0.95, 20
"""Sampling cuts much with a smaller top_p, or a top_k up to this."""

MIXED_GROUPS = Fault(
    "groups of completions have several prompts: advantages compare answers to different questions",
    "Keep the trainer's sampler, which repeats each prompt num_generations times, or do the same "
    "in one's own",
    certain=True,
)


@dataclass(frozen=True, slots=True)
class Given:
    """What one call of a loss got, by a sample of rows.

    Attributes:
        most: the largest element of the input.
        least: the smallest.
        highest: the largest sum of a row's elements.
        lowest: the smallest.
        mass: the largest sum of a row's exponentials.
        rest: the smallest.
        target: the largest element of the target.
        under: the smallest.
    """

    most: float = 0.0
    least: float = 0.0
    highest: float = 0.0
    lowest: float = 0.0
    mass: float = 1.0
    rest: float = 1.0
    target: float = 0.0
    under: float = 0.0

    @property
    def are_probabilities(self) -> bool:
        """Whether the rows are probabilities."""
        is_within = self.least >= 0 and self.most <= 1 + NEAR
        return is_within and self.lowest >= 1 - NEAR and self.highest <= 1 + NEAR

    @property
    def are_logarithms(self) -> bool:
        """Whether the rows are logarithms of probabilities."""
        is_one = self.rest >= 1 - 5 * NEAR and self.mass <= 1 + 5 * NEAR
        return self.most <= POSITIVE and is_one


def no_logarithms(function: str, calls: Sequence[Given], *, is_normalizing: bool) -> Finding | None:
    """Reports an input that isn't logarithms of probabilities.

    Args:
        function: the loss.
        calls: what its first calls got.
        is_normalizing: whether the input has a row of logarithms for each of its labels.
    """
    if len(calls) < CALLS:
        return None
    advice = "Give it log_softmax(logits, dim) over the classes"
    if function == "nll_loss":
        advice += ", or the logits to cross_entropy"
    if all(call.are_probabilities for call in calls):
        given = "probabilities"
    elif all(call.most > POSITIVE for call in calls):
        largest = max(call.most for call in calls)
        given = f"values up to {largest:.3g}, such as probabilities or a model's raw output"
    elif is_normalizing and all(call.mass > TOO_MUCH for call in calls):
        mass = max(call.mass for call in calls)
        given = f"logarithms of numbers that add up to {mass:.3g} for one label"
        advice = "Take log_softmax over the dimension of the classes"
    else:
        return None
    return Finding(
        Check.TRAINED,
        certain=function == "kl_div" and given == "probabilities",
        sentence=f"{function} isn't given logarithms of probabilities: its input has {given}, and "
        "its value isn't a loss of the model's predictions",
        advice=advice,
        step=1,
    )


def no_probabilities(calls: Sequence[Given], *, is_logarithm: bool) -> Finding | None:
    """Reports targets of kl_div that are neither probabilities nor, if so asked, logarithms.

    Args:
        calls: what its first calls got.
        is_logarithm: whether the targets are to be logarithms.
    """
    shown: dict[str, Callable[[Given], bool]] = {
        "greater than 0 and log_target=True": lambda call: is_logarithm and call.target > POSITIVE,
        "less than 0": lambda call: not is_logarithm and call.under < -POSITIVE,
        "greater than 1": lambda call: not is_logarithm and call.target > TOO_MUCH,
    }
    for words, is_shown in shown.items():
        if len(calls) >= CALLS and all(map(is_shown, calls)):
            return Finding(
                Check.TRAINED,
                certain=words == "less than 0",
                sentence=f"kl_div's targets aren't probabilities: some are {words}",
                advice="Give it softmax(logits, dim) over the classes, or log_softmax with "
                "log_target=True",
                step=1,
            )
    return None


def divided_by_classes(classes: int, calls: Sequence[Given]) -> Finding | None:
    """Reports a mean of kl_div over many classes.

    Args:
        classes: their number.
        calls: what its first calls got.
    """
    if len(calls) < CALLS or classes < CLASSES or not all(call.are_logarithms for call in calls):
        return None
    return Finding(
        Check.TRAINED,
        sentence='kl_div with reduction="mean" also divides by the number of classes, '
        f"{classes:,}: its value is so many times smaller than the divergence",
        advice='Take reduction="batchmean", and divide by the positions of a row if there are any',
        step=1,
    )


def outside(function: str, calls: Sequence[Given]) -> Finding | None:
    """Reports targets of a binary cross entropy that are far from 0..1.

    Args:
        function: the loss.
        calls: what its first calls got.
    """
    most = max((call.target for call in calls), default=0.0)
    least = min((call.under for call in calls), default=0.0)
    if len(calls) < CALLS or not all(
        call.target > 1 + OUTSIDE or call.under < -OUTSIDE for call in calls
    ):
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{function} is given targets outside 0..1: they go from {least:.4g} to "
        f"{most:.4g}, and the loss falls without an end",
        advice="Scale the targets to 0..1, such as a mask of 0 and 255 by 255",
        step=1,
    )


@dataclass(frozen=True, slots=True)
class Pairs:
    """A batch of pairs.

    Attributes:
        samples: their number.
        are_pairs: whether each sample's label is its own place.
        repeated: samples whose text, or its other half, is also that of an earlier one.
    """

    samples: int
    are_pairs: bool
    repeated: int

    @property
    def is_conflicting(self) -> bool:
        """Whether several positives are each other's negatives; not if all texts are one."""
        return self.are_pairs and SHARE * self.samples <= self.repeated < self.samples - 1


def false_negatives(batches: Sequence[Pairs]) -> Finding | None:
    """Reports a contrastive loss of batches that have samples twice.

    Args:
        batches: the first.
    """
    shown = [one for one in batches if one.is_conflicting]
    if len(batches) < BATCHES or len(shown) < SHOWING:
        return None
    return Finding(
        Check.DATA,
        sentence="a contrastive batch has samples twice: in one of the first batches "
        f"{shown[0].repeated} of {shown[0].samples} have the text of another, and the loss takes "
        "what fits it for a negative",
        advice="Draw batches without duplicates (sentence-transformers: "
        "batch_sampler=BatchSamplers.NO_DUPLICATES), or mask the scores of equal samples",
        step=1,
    )


def alike(zeros: Sequence[bool], *, is_cut: bool) -> Finding | None:
    """Reports rewards that never differ within a group.

    Args:
        zeros: whether all advantages of each of the first batches are zero.
        is_cut: whether all of their completions have the maximum length.
    """
    if len(zeros) < STEPS or not all(zeros):
        return None
    why = ", and every completion is cut at max_completion_length" if is_cut else ""
    advice = "Print some completions with their rewards: they may never match what is looked for"
    return Finding(
        Check.TRAINED,
        sentence="the rewards teach nothing: those of a group are equal, so that all advantages of "
        f"the first {STEPS} batches are 0{why}",
        advice="Raise max_completion_length" if is_cut else advice,
        step=STEPS,
    )


def are_mixed(prompts: Sequence[Any], size: int) -> bool:
    """Whether a rank's prompts differ within a group; False if its groups aren't known.

    Args:
        prompts: of a batch, in order.
        size: completions of a group, which are in a row over all ranks.
    """
    count = len(prompts)
    if size < 2 or count < 2 or (count % size and size % count):
        return False
    width = min(size, count)
    groups = (prompts[place : place + width] for place in range(0, count, width))
    return any(prompt != group[0] for group in groups for prompt in group)


def sampled_otherwise(options: Mapping[str, float | None]) -> Finding | None:
    """Reports completions that are sampled from another distribution than the policy's.

    Args:
        options: the sampling options of the trainer.
    """
    top_p, top_k = options.get("top_p"), options.get("top_k")
    penalty = options.get("repetition_penalty")
    odd = {
        "top_p": top_p is not None and top_p < LEAST_P,
        "top_k": top_k is not None and 0 < top_k <= FEW,
        "repetition_penalty": penalty is not None and penalty != 1,
    }
    words = [f"{name}={options[name]:g}" for name, is_odd in odd.items() if is_odd]
    if not words:
        return None
    return Finding(
        Check.TRAINED,
        sentence="completions aren't sampled from the policy that is trained: "
        f"{' and '.join(words)} cut its distribution, but its log-probabilities are of all tokens",
        advice="Leave top_p, top_k and repetition_penalty at 1, 0 and 1 while it trains",
        step=1,
    )
