"""Checks that the samples of a contrastive batch are each other's negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .finding import Check, Finding

BATCHES = 3
"""Batches to look at."""
SHOWING = 2
"""Least number of them that show the fault."""
SHARE = 0.1
"""Least share of samples that are drawn twice."""


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
        certain=False,
        sentence="a contrastive batch has samples twice: in one of the first batches "
        f"{shown[0].repeated} of {shown[0].samples} have the text of another, and the loss takes "
        "what fits it for a negative",
        advice="Draw batches without duplicates (sentence-transformers: "
        "batch_sampler=BatchSamplers.NO_DUPLICATES), or mask the scores of equal samples",
        step=1,
    )
