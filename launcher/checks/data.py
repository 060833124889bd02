"""Whether the batches differ from step to step, and have labels."""

from __future__ import annotations

from collections.abc import Sequence

from .finding import Check, Finding

BATCHES = 3
"""Batches in a row that say something."""


def ignored_labels(shares: Sequence[bool], where: str) -> Finding | None:
    """Labels that are all ignored (-100, torch's default for cross entropy), batch after batch.

    Args:
        shares: of the first batches, whether any label counts.
        where: the user's line that trains on them.
    """
    if len(shares) < BATCHES or any(shares):
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence=f"every label of the first {BATCHES} batches is -100, which the loss ignores: "
        "nothing is learnt",
        advice="Look at how the labels are masked: the template that marks answers may not match, "
        "or the texts are cut before their answers",
        step=1,
        where=where,
    )


def same_batch(digests: Sequence[str], steps: Sequence[int], where: str) -> Finding | None:
    """One batch again and again, with steps in between.

    Args:
        digests: of the first batches in their order; empty for one that says nothing.
        steps: the optimizer's steps by then.
        where: the user's line that draws them.
    """
    last = digests[-BATCHES:]
    is_same = len(last) == BATCHES and len({*last}) == 1 and bool(last[0])
    if not is_same or len({*steps[-BATCHES:]}) < 2:  # a look at the data before the training
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"the same batch was drawn {BATCHES} times in a row, with a step in between, of a "
        "data set that has others",
        advice="A loader that is begun anew in every step gives its first batch: keep its iterator",
        step=steps[-1] + 1,
        where=where,
    )
