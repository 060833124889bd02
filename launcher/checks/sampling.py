"""Checks in which order, from which data and with which draws an epoch's samples are made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

STEPS = 10
"""First steps whose labels are inspected."""
LEAST = 4
"""Minimum labels of a class in a row, and samples of a batch."""
PART = 8
"""Minimum labels per class: classes of fewer are alike by chance, or numbers of samples."""


def is_grouped(labels: Sequence[float]) -> bool:
    """Whether labels of several classes come class by class."""
    runs = [(label, len([*run])) for label, run in groupby(labels)]
    if runs and runs[-1][1] < LEAST:  # the last class has just begun
        runs.pop()
    count = sum(length for _, length in runs)
    is_apart = len(runs) == len({label for label, _ in runs}) > 1
    is_long = all(length >= LEAST for _, length in runs)
    return is_apart and is_long and count >= PART * len(runs)


def unshuffled(batches: Sequence[Sequence[float]], *, are_all_grouped: bool) -> Finding | None:
    """Reports a training without shuffling whose samples come class by class.

    Args:
        batches: the labels of the first batches.
        are_all_grouped: whether the data set's labels are, as far as it shows them.
    """
    labels = [label for batch in batches for label in batch]
    classes = len({*labels})
    is_of_one = classes == 1 and are_all_grouped and len(labels) >= PART
    if not (is_of_one or is_grouped(labels)):
        return None
    most = max(len({*batch}) for batch in batches)
    return Finding(
        Check.DATA,
        certain=False,
        sentence="the samples aren't shuffled and come class by class: the first "
        f"{count_of(len(batches), 'step')} have {count_of(classes, 'class')}, a batch "
        f"{'one' if most == 1 else f'at most {most}'}",
        advice="Shuffle them in training: shuffle=True for the DataLoader, or for the "
        "DistributedSampler, with set_epoch",
        step=len(batches),
    )


def weighted_by_class(weights: int, samples: int, *, certain: bool) -> Finding | None:
    """Reports a sampler with fewer weights than samples.

    Args:
        weights: how many it has.
        samples: of the data set.
        certain: whether the data set is one of torch's, which an index takes a sample from.
    """
    if not 0 < weights < samples:
        return None
    return Finding(
        Check.DATA,
        certain,
        sentence=f"WeightedRandomSampler has {count_of(weights, 'weight')} for "
        f"{count_of(samples, 'sample')}: it draws the first {weights} alone",
        advice="Give it a weight for each sample, e.g. class_weights[labels]",
    )


def kept_by_workers(names: Sequence[str]) -> Finding | None:
    """Reports attributes of a data set that its persistent workers don't see.

    Args:
        names: those that have changed since the workers began, and that samples are made with.
    """
    if not names:
        return None
    return Finding(
        Check.DATA,
        certain=True,
        sentence="persistent workers keep the data set as it was when they began: "
        f"{first_of(names)}, which it makes samples with, has changed since in this process alone",
        advice="Set persistent_workers=False, or keep the value in shared memory, e.g. a "
        "torch.multiprocessing.Value",
    )


def drawn_by_workers(name: str) -> Finding:
    """Reports worker processes that draw the same values in each epoch.

    Args:
        name: of the generator.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence="a loader's worker processes draw the same random values in each epoch, for other "
        f"samples: {name} begins with the same state in both",
        advice="Seed it in worker_init_fn by torch.initial_seed(), which is another in each epoch "
        "and worker, or draw with torch",
    )


def seeded_again(steps: int) -> Finding:
    """Reports an epoch that begins with the random state of the last.

    Args:
        steps: optimizer steps so far.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence="an epoch begins with the random state of the one before it, and draws the same "
        "values again: the seed is set anew",
        advice="Set the seed once, or by the epoch; draw an evaluation's values with a "
        "torch.Generator, or within torch.random.fork_rng()",
        step=steps,
    )


def shared_transform(name: str) -> Finding:
    """Reports an attribute of a data set that was set for one of its subsets.

    Args:
        name: of the attribute.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"training and evaluation are subsets of one data set, whose {name} was set after "
        "they were made: it holds for both",
        advice="Make two data sets with the same files, and take a Subset of each",
    )


def shared_samples(common: int, evaluated: int) -> Finding:
    """Reports samples that are both trained on and evaluated.

    Args:
        common: how many are.
        evaluated: samples of the evaluation.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"{common} of the evaluation's {count_of(evaluated, 'sample')} are among those "
        "that the training's Subset has",
        advice="Take both from one random_split, with a generator of a fixed seed if it is made "
        "again",
    )


def overlap_of(trained: Sequence[int], evaluated: Sequence[int]) -> int:
    """How many samples are in both, if each has others; a part of the training is meant."""
    common = {*trained} & {*evaluated}
    return len(common) if len(common) < min(len({*trained}), len({*evaluated})) else 0


def divided_again(what: str, kind: str, ranks: int) -> Finding:
    """Reports data that accelerate divides once more.

    Args:
        what: the sampler or the stream.
        kind: its class.
        ranks: number of ranks.
    """
    return Finding(
        Check.DATA,
        certain=False,
        sentence=f"the data are divided twice: {kind} gives each rank its part, and accelerate "
        f"takes one of {ranks} parts of that again, so that the ranks miss most samples",
        advice=f"Let the {what} give every rank all samples in the same order, or leave the loader "
        "out of accelerator.prepare",
    )
