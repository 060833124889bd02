"""Looks at how epochs begin: with the first one's order of samples, skipped or repeated samples."""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import Any

import wrapt

from ...checks import data
from ...checks.finding import Check
from ...checks.resumed import ordered_anew
from ...core.quantities import count_of
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from .reporting import is_on, report, report_here, safely
from .schedules import schedules

ACCELERATE, LOADER = "accelerate.data_loader", "torch.utils.data.dataloader"
REDUCTIONS = "torch.distributed.distributed_c10d"
HOOKED = (ACCELERATE, LOADER, REDUCTIONS)
MOST = 64
"""Maximum elements of a reduced tensor to look at, and maximum tensors."""


_epochs: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
"""By sampler: its epoch and the optimizer steps when it last began."""
_skipping: weakref.WeakKeyDictionary[Any, tuple[int, str, int | None]]
_skipping = weakref.WeakKeyDictionary()
"""By loader: the skipped batches, the user's line, and the optimizer steps when it last began."""


def install(module: ModuleType) -> None:
    """Wraps accelerate's `skip_first_batches`, loaders' `__iter__`, or sums over ranks."""
    match module.__name__:
        case name if name == ACCELERATE:
            wrapt.wrap_function_wrapper(module, "skip_first_batches", _skip)
        case name if name == LOADER:
            wrapt.wrap_function_wrapper(module, "DataLoader.__iter__", _begin)
        case _:
            module.__dict__["all_reduce"] = _looking(module.__dict__["all_reduce"])


def _skip(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    loader = wrapped(*args, **kwargs)
    count = args[1] if len(args) > 1 else kwargs.get("num_batches", 0)
    if count and is_on(Check.DATA):
        _skipping[getattr(loader, "base_dataloader", loader)] = count, user_place(), None
        safely(Check.RESUMED, _look_at_begun, args[0] if args else kwargs.get("dataloader"))
    return loader


def _look_at_begun(loader: Any) -> None:
    """Reports a loader whose batches aren't in the order that the interrupted epoch had.

    That of the first epoch is drawn again, if the script sets its seed.
    """
    import torch

    sampler: Any = getattr(loader, "sampler", None)
    batches: Any = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):  # accelerate's, of one rank
        batches = batches.batch_sampler
    sampler = getattr(batches, "sampler", sampler)
    is_later = getattr(loader, "iteration", 0) > 0  # by set_epoch
    if is_later and type(sampler) is torch.utils.data.RandomSampler:
        report_here(ordered_anew())


def _begin(wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
    schedules.accumulated.begin()
    if is_on(Check.DATA):
        safely(Check.DATA, _look_at_sampler, loader)
    if loader in _skipping:
        safely(Check.DATA, _look_at_skipped, loader)
    return wrapped(*args, **kwargs)


def _look_at_skipped(loader: Any) -> None:
    """Reports a second epoch, if there were training steps in the first."""
    count, where, done = _skipping[loader]
    steps = observations.steps_of_all() or 0
    _skipping[loader] = count, where, steps
    if done is not None and steps > done + 1:
        report(data.SKIPPED_AGAIN.found(steps + 1, count=count), where=where)


def _look_at_sampler(loader: Any) -> None:
    """Looks at a DistributedSampler's epoch in a training, at its padding in an evaluation."""
    import torch
    from torch.utils.data import DistributedSampler

    sampler = loader.sampler
    if not isinstance(sampler, DistributedSampler):
        sampler = getattr(loader.batch_sampler, "sampler", None)
    models = list(data_parallel.dividing())
    is_training = torch.is_grad_enabled() and all(model.training for model in models)
    is_of_torch = isinstance(sampler, DistributedSampler)
    padding.begin(sampler if is_of_torch and not is_training else None)
    if is_of_torch and is_training and models and sampler.shuffle:
        _look_at_order(sampler)


def _look_at_order(sampler: Any) -> None:
    """Compares a sampler's epoch with the previous one, if there were steps between."""
    steps = observations.steps_of_all() or 0
    before, done = _epochs.get(sampler, (sampler.epoch, steps))
    _epochs[sampler] = sampler.epoch, steps
    if sampler.epoch == before and steps > done + 1:  # 1: the loader restarts for each batch
        report_here(data.SAME_ORDER.found(steps + 1, epoch=before))


class Padded:
    """Evaluations whose samples are repeated so that each rank has as many.

    Attributes:
        looks: number of further reductions to look at.
    """

    def __init__(self) -> None:
        self.looks = MOST
        self._sizes = 0, 0  # of the data, and with the repeated samples
        self._where = ""

    def begin(self, sampler: Any) -> None:
        """Notes the sampler of a loader that begins.

        Args:
            sampler: None if it isn't a DistributedSampler, or if a model is trained.
        """
        count = 0 if sampler is None else len(sampler.dataset)
        padded = 0 if sampler is None else sampler.total_size
        self._sizes = (count, padded) if padded > count else (0, 0)
        self._where = user_place()

    @property
    def is_open(self) -> bool:
        """Whether the next reduction may be of a padded evaluation."""
        return self.looks > 0 and self._sizes != (0, 0)

    def look(self, tensor: Any) -> None:
        """Looks for the number of all samples in a sum over the ranks."""
        if tensor.numel() > MOST or tensor.is_complex() or tensor.requires_grad:
            return
        self.looks -= 1
        values = tensor.detach().flatten().tolist()
        count, padded = self._sizes
        if padded in values and count not in values:
            self.looks = 0
            seen = {"count": count, "padded": count_of(padded, "sample")}
            report(data.COUNTED_TWICE.found(observations.steps_of_all(), **seen), where=self._where)


padding = Padded()


def _looking(function: Any) -> Any:
    """Wraps the sum over ranks in a plain function, which compiled graphs don't see."""
    import torch

    @functools.wraps(function)
    def all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not padding.is_open:
            return function(tensor, *args, **kwargs)
        result = function(tensor, *args, **kwargs)
        if result is None and is_on(Check.DATA):
            safely(Check.DATA, padding.look, tensor)
        return result

    return all_reduce
