"""Looks at how epochs begin: a DistributedSampler may repeat the first one's order."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check, Finding
from ...core.errors import EXPLAINED
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from .reporting import is_on, report, safely
from .schedules import schedules

HOOKED = ("torch.utils.data.dataloader",)

_epochs: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
"""By sampler: its epoch and the optimizer steps when it last began."""


def install(module: ModuleType) -> None:
    """Wraps loaders' `__iter__`."""

    def begin(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        schedules.accumulated.begin()
        if is_on(Check.DATA):
            safely(Check.DATA, _look, instance)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "DataLoader.__iter__", begin)


def _look(loader: Any) -> None:
    """Compares the epoch with the previous one, if there were training steps between."""
    import torch
    from torch.utils.data import DistributedSampler

    sampler = loader.sampler
    if not isinstance(sampler, DistributedSampler):
        sampler = getattr(loader.batch_sampler, "sampler", None)
    if not isinstance(sampler, DistributedSampler) or not sampler.shuffle:
        return
    models = list(data_parallel.dividing())
    if not torch.is_grad_enabled() or not models or not all(each.training for each in models):
        return  # the order of an evaluation doesn't matter
    steps = observations.steps_of_all() or 0
    before, done = _epochs.get(sampler, (sampler.epoch, steps))
    _epochs[sampler] = sampler.epoch, steps
    if sampler.epoch == before and steps > done + 1:  # one: the loader is begun for each batch
        report(_finding(sampler.epoch, steps))


def _finding(epoch: int, steps: int) -> Finding:
    return Finding(
        Check.DATA,
        certain=False,
        sentence="a DistributedSampler orders the samples as in the last epoch, and gives each "
        f"rank the same part of them: its epoch is still {epoch}",
        advice=f"Call sampler.set_epoch(epoch) before each epoch ({EXPLAINED})",
        step=steps + 1,
        where=user_place(),
    )
