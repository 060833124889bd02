"""Tells a training's loaders from an evaluation's, and finds their samplers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from .. import data_parallel
from .models import known_models


class Phase(Enum):
    """What a loop does with the batches of a loader."""

    TRAINING = auto()
    EVALUATION = auto()
    UNKNOWN = auto()
    """Some of its models are in training mode."""


def phase() -> Phase:
    """The phase of a loop that begins now."""
    import torch

    models = list(data_parallel.dividing()) or known_models()
    if not models:
        return Phase.UNKNOWN
    if not torch.is_grad_enabled() or not any(model.training for model in models):
        return Phase.EVALUATION
    return Phase.TRAINING if all(model.training for model in models) else Phase.UNKNOWN


def samplers_of(loader: Any) -> Iterator[Any]:
    """A loader's sampler, after the batch samplers around it: accelerate's is around torch's.

    With a batch sampler of the script's, `loader.sampler` isn't used.
    """
    batches: Any = getattr(loader, "batch_sampler", None)
    if batches is None:
        yield getattr(loader, "sampler", None)
    while batches is not None:
        yield batches
        inner = getattr(batches, "batch_sampler", None)
        if inner is None:
            yield getattr(batches, "sampler", None)
        batches = inner


def is_divided(loader: Any) -> bool:
    """Whether each rank gets its share of a loader's samples."""
    from torch.utils.data import DistributedSampler

    ranks = data_parallel.world()
    for sampler in samplers_of(loader):
        is_of_torch = isinstance(sampler, DistributedSampler)
        is_of_accelerate = type(sampler).__module__ == "accelerate.data_loader"
        parts = "num_replicas" if is_of_torch else "num_processes" if is_of_accelerate else ""
        if parts and getattr(sampler, parts, 1) == ranks > 1:
            return True
    return False
