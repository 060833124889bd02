"""Checks that batches differ between steps and ranks, and that each sample counts once."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

BATCHES = 3
"""Minimum batches in a row to judge."""


def counted_twice(count: int, padded: int, step: int | None, where: str) -> Finding:
    """Reports an evaluation that counts the samples which a sampler repeats.

    Args:
        count: samples of the data.
        padded: samples that are counted.
        step: optimizer steps so far.
        where: the user's line that begins the evaluation.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"the evaluation counts {count_of(padded, 'sample')} of {count:,}: "
        "DistributedSampler repeats some, so that each rank has as many",
        advice="Leave the last results of a rank with repeated samples out: rank r has "
        "len(range(r, len(data), world_size)); accelerate's gather_for_metrics does so",
        step=step,
        where=where,
    )


def dropped(fields: Sequence[str], function: str, where: str) -> Finding | None:
    """Reports fields of the samples that a loss asks for and a Trainer drops.

    Args:
        fields: their names.
        function: the qualified name of the loss.
        where: its first line.
    """
    if not fields:
        return None
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"{function} asks for {first_of(fields)}, which the samples have and the Trainer "
        "drops, as the model's forward doesn't take it",
        advice="Set remove_unused_columns=False",
        step=1,
        where=where,
    )


def read_by_all(digests: Sequence[str], workers: int) -> Finding | None:
    """Reports a stream that each worker process of a loader reads as a whole.

    Args:
        digests: of an iterator's first batches, which it takes from one worker after the other.
        workers: number of worker processes.
    """
    rounds = [{*digests[:workers]}, {*digests[workers : 2 * workers]}]
    is_same = all(len(drawn) == 1 for drawn in rounds) and rounds[0] != rounds[1]
    if len(digests) < 2 * workers or not is_same or "" in digests:
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence=f"each of a loader's {workers} worker processes reads the whole stream: every "
        f"batch comes {workers} times in a row",
        advice="Divide the samples in the IterableDataset's __iter__ by "
        "torch.utils.data.get_worker_info(), or take one worker",
        step=1,
    )


def skipped_again(count: int, steps: int, where: str) -> Finding:
    """Reports a second epoch without the batches that were to be skipped once.

    Args:
        count: the skipped batches.
        steps: optimizer steps so far.
        where: the user's line that called `skip_first_batches`.
    """
    return Finding(
        Check.DATA,
        certain=True,
        sentence=f"the loader of skip_first_batches is used for another epoch: its first {count} "
        "batches are skipped in each",
        advice="Use it for the resumed epoch alone, and the loader itself in later ones",
        step=steps + 1,
        where=where,
    )


def drawn_again(step: int, where: str) -> Finding:
    """Reports random values that a loop draws again in the next step.

    Args:
        step: the last inspected step.
        where: the user's line that draws them.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence="the loop draws the same random values in each step: it sets the seed again",
        advice="Set the seed once, before the loop",
        step=step,
        where=where,
    )


def same_batch(digests: Sequence[str], steps: Sequence[int]) -> Finding | None:
    """Reports the same batch repeated with steps in between.

    Args:
        digests: of the first batches, in order; empty for batches that prove nothing.
        steps: optimizer steps before each batch.
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
        advice="A loader that is restarted in every step gives its first batch: keep its iterator",
        step=steps[-1] + 1,
    )
