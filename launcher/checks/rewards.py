"""Checks of trainers that reward groups of a prompt's completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .finding import Check, Finding

STEPS = 10
"""Batches whose advantages are inspected."""
BATCHES = 3
"""Batches whose groups are inspected."""
LEAST_P, FEW = 0.95, 20
"""Sampling cuts much with a smaller top_p, or a top_k up to this."""


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
        certain=False,
        sentence="the rewards teach nothing: those of a group are equal, so that all advantages of "
        f"the first {STEPS} batches are 0{why}",
        advice="Raise max_completion_length" if is_cut else advice,
        step=STEPS,
    )


def are_mixed(prompts: Sequence[Any], size: int) -> bool | None:
    """Whether a rank's prompts differ within a group; None if its groups aren't known.

    Args:
        prompts: of a batch, in order.
        size: completions of a group, which are in a row over all ranks.
    """
    count = len(prompts)
    if size < 2 or count < 2 or (count % size and size % count):
        return None
    width = min(size, count)
    groups = (prompts[place : place + width] for place in range(0, count, width))
    return any(prompt != group[0] for group in groups for prompt in group)


def mixed(shown: Sequence[bool | None]) -> Finding | None:
    """Reports groups of several prompts.

    Args:
        shown: whether groups of each of the first batches are mixed.
    """
    if len(shown) < BATCHES or not all(shown):
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence="groups of completions have several prompts: advantages compare answers to "
        "different questions",
        advice="Keep the trainer's sampler, which repeats each prompt num_generations times, or "
        "do the same in one's own",
        step=1,
    )


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
        certain=False,
        sentence="completions aren't sampled from the policy that is trained: "
        f"{' and '.join(words)} cut its distribution, but its log-probabilities are of all tokens",
        advice="Leave top_p, top_k and repetition_penalty at 1, 0 and 1 while it trains",
        step=1,
    )
