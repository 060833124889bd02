"""Checks how an epoch's samples are chosen and made, and by which samples a script decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..core.quantities import count_of
from .finding import Check, Fault, Finding

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
        certain=certain,
        sentence=f"WeightedRandomSampler has {count_of(weights, 'weight')} for "
        f"{count_of(samples, 'sample')}: it draws the first {weights} alone",
        advice="Give it a weight for each sample, e.g. class_weights[labels]",
    )


SHARED_TRANSFORM = Fault(
    "training and evaluation are subsets of one data set, whose {name} was set after they were "
    "made: it holds for both",
    "Make two data sets with the same files, and take a Subset of each",
)
"""An attribute of a data set was set for one of its subsets."""
SHARED_SAMPLES = Fault(
    "{common} of the evaluation's {samples} are among those that the training's Subset has",
    "Take both from one random_split, with a generator of a fixed seed if it is made again",
)
"""Samples are both trained on and evaluated."""
KEPT_BY_WORKERS = Fault(
    "persistent workers keep the data set as it was when they began: {names}, which it makes "
    "samples with, has changed since in this process alone",
    "Set persistent_workers=False, or keep the value in shared memory, e.g. a "
    "torch.multiprocessing.Value",
    certain=True,
)
"""Attributes with which samples are made have changed since persistent workers began."""
DRAWN_BY_WORKERS = Fault(
    "a loader's worker processes draw the same random values in each epoch, for other samples: "
    "{name} begins with the same state in both",
    "Seed it in worker_init_fn by torch.initial_seed(), which is another in each epoch and worker, "
    "or draw with torch",
)
"""A generator of worker processes begins each epoch alike."""
SEEDED_AGAIN = Fault(
    "an epoch begins with the random state of the one before it, and draws the same values again: "
    "the seed is set anew",
    "Set the seed once, or by the epoch; draw an evaluation's values with a torch.Generator, or "
    "within torch.random.fork_rng()",
)
"""An epoch begins with the random state of the last."""
DIVIDED_AGAIN = Fault(
    "the data are divided twice: {kind} gives each rank its part, and accelerate takes one of "
    "{ranks} parts of that again, so that the ranks miss most samples",
    "Let the {what} give every rank all samples in the same order, or leave the loader out of "
    "accelerator.prepare",
)
"""accelerate divides the samples of a sampler or stream (`what`, of class `kind`) once more."""
SAVES, LOWERS = "the best weights are chosen", "a schedule lowers the rate"
"""What a script decides by a value of an evaluation."""
OF_ONE_SHARE = Fault(
    "{what} by an evaluation of this rank's share of the samples alone: since it began, the ranks "
    "have exchanged nothing",
    "Sum the values and the number of samples over the ranks first, by all_reduce (with "
    "accelerate: gather_for_metrics)",
)
"""A decision by values of one rank's share of an evaluation's samples."""


def overlap_of(trained: Sequence[int], evaluated: Sequence[int]) -> int:
    """How many samples are in both, if each has others; a part of the training is meant."""
    common = {*trained} & {*evaluated}
    return len(common) if len(common) < min(len({*trained}), len({*evaluated})) else 0
