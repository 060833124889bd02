"""Checks that attention, recurrence and softmax mix only what they may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.quantities import count_of
from .finding import Check, Finding

CALLS = 3
"""Steps that must agree."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The sizes of a layer's input.

    Attributes:
        batch: the samples of a batch, as the loader has them.
        given: the first two sizes of the layer's input, of which the first is its sequence.
        inputs: those of the model's inputs.
    """

    batch: int
    given: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]

    @property
    def is_over_batch(self) -> bool:
        """Whether the sequence is the batch, as the model's input has it."""
        is_batch = len(self.given) == 2 and self.given[0] == self.batch > 1
        return is_batch and 1 < self.given[1] != self.batch and self.given in self.inputs


def over_batch(kind: str, calls: Sequence[Shapes]) -> Finding | None:
    """Reports a layer whose sequence is the batch.

    Args:
        kind: the layer's class.
        calls: the sizes in a call of each first step.
    """
    if len(calls) < CALLS or not all(call.is_over_batch for call in calls):
        return None
    samples, length = calls[0].given
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"a layer runs over the batch: {kind} is given {count_of(samples, 'sample')} by "
        f"{length}, and with batch_first=False it takes the first size for the sequence, so that "
        "samples are mixed and places of one aren't",
        advice="Make it, or the layer that it is a part of, with batch_first=True",
        step=1,
    )


def normalized_over_batch(sizes: Sequence[tuple[int, ...]]) -> Finding | None:
    """Reports a softmax over the samples of a batch.

    Args:
        sizes: those of its input in each first step.
    """
    if len(sizes) < CALLS:
        return None
    shape = " by ".join(map(str, sizes[0]))
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"a softmax runs over the batch: it is taken over the first dimension of {shape}, "
        "the samples, so that a sample's output depends on the others",
        advice="Give it the dimension to normalize, such as dim=1 for places or dim=-1 for classes",
        step=1,
    )


def sees_ahead(shown: Sequence[bool]) -> Finding | None:
    """Reports attention without a causal mask in a model that learns the next words.

    Args:
        shown: whether the labels of each first step are the next words.
    """
    if len(shown) < CALLS or not all(shown):
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="the model sees the words that it learns to predict: the labels are the next "
        "words of its input, and none of its attention has a mask of those",
        advice="Pass a causal mask, nn.Transformer.generate_square_subsequent_mask(length), or "
        "is_causal=True with it",
        step=1,
    )


def inverted(shown: Sequence[bool]) -> Finding | None:
    """Reports a mask of padding that leaves out everything else.

    Args:
        shown: whether the mask of each first step is that of the words.
    """
    if len(shown) < CALLS or not all(shown):
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence="attention sees nothing but padding: key_padding_mask is True for each word and "
        "False for padding, and what is True is left out",
        advice="Invert the mask: ~mask, or ids == padding_idx",
        step=1,
    )
