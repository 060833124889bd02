"""Looks at how epochs begin: with the last one's order or random state, or skipped batches.

A random state counts if the epoch has drawn from it by its third batch, and if one optimizer is
stepped in both epochs: a search over rates begins each training alike.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from types import ModuleType
from typing import Any

import wrapt

from ...checks import data, sampling
from ...checks.finding import Check
from ...checks.resumed import ordered_anew
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from .collectives import padding
from .evaluations import Phase, Wait, is_training
from .reporting import is_on, report, report_here, safely
from .samplers import samplers_of

ACCELERATE, OPTIMIZER = "accelerate.data_loader", "torch.optim.optimizer"
HOOKED = (ACCELERATE, OPTIMIZER)
DRAWN = 3
"""Batches after which an epoch has drawn what it draws."""

_epochs: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
"""By sampler: its epoch and the optimizer steps when it last began."""
_skipping: weakref.WeakKeyDictionary[Any, tuple[int, str, int | None]]
_skipping = weakref.WeakKeyDictionary()
"""By loader: the skipped batches, the user's line, and the optimizer steps when it last began."""


def install(module: ModuleType) -> None:
    """Wraps accelerate's `skip_first_batches`, or watches the first step of each epoch."""
    if module.__name__ == ACCELERATE:
        wrapt.wrap_function_wrapper(module, "skip_first_batches", _skip)
        return

    def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if seeds.is_waiting and is_on(Check.DATA):
            safely(Check.DATA, seeds.step, optimizer)

    module.register_optimizer_step_post_hook(stepped)


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

    *_, sampler = samplers_of(loader)
    is_later = getattr(loader, "iteration", 0) > 0  # by set_epoch
    if is_later and type(sampler) is torch.utils.data.RandomSampler:
        report_here(ordered_anew())


def begin(loader: Any) -> None:
    """Looks at a loader that begins, and at a DistributedSampler's epoch or padding."""
    from torch.utils.data import DistributedSampler

    if loader in _skipping:
        _look_at_skipped(loader)
    samplers = loader.sampler, getattr(loader.batch_sampler, "sampler", None)
    sampler = next((one for one in samplers if isinstance(one, DistributedSampler)), None)
    padding.begin(None if is_training() else sampler)
    models = list(data_parallel.dividing())
    if sampler is not None and models and is_training() and sampler.shuffle:
        _look_at_order(sampler)


def _look_at_skipped(loader: Any) -> None:
    """Reports a second epoch, if there were training steps in the first."""
    count, where, done = _skipping[loader]
    steps = observations.steps_of_all() or 0
    _skipping[loader] = count, where, steps
    if done is not None and steps > done + 1:
        report(data.SKIPPED_AGAIN.found(steps + 1, count=count), where=where)


def _look_at_order(sampler: Any) -> None:
    """Compares a sampler's epoch with the previous one, if there were steps between."""
    steps = observations.steps_of_all() or 0
    before, done = _epochs.get(sampler, (sampler.epoch, steps))
    _epochs[sampler] = sampler.epoch, steps
    if sampler.epoch == before and steps > done + 1:  # 1: the loader restarts for each batch
        report_here(data.SAME_ORDER.found(steps + 1, epoch=before))


@dataclass(slots=True)
class Epoch:
    """An epoch of a training.

    Attributes:
        begun: digests of the random states as it begins, by device.
        moved: the devices whose state the epoch has moved.
        optimizer: a reference to what is stepped first; None before.
        steps: optimizer steps before it.
        where: the user's line.
    """

    begun: dict[str, str]
    steps: int
    where: str
    moved: set[str] = field(default_factory=set)
    optimizer: Any = None


class Seeds:
    """The random states of a process's first epochs.

    Attributes:
        is_waiting: whether an epoch has no step yet.
    """

    def __init__(self) -> None:
        self.is_waiting = False
        self._epochs: list[Epoch] = []
        self._is_over = False
        self._within: dict[str, str] = {}

    def begin(self, now: Phase) -> None:
        """Notes the states before a loader's iterator is made, which draws a seed."""
        if self._is_over or now is not Phase.TRAINING:
            return
        epoch = Epoch(_states(), observations.steps_of_all() or 0, user_place())
        self._epochs = [*self._epochs[-1:], epoch]
        self.is_waiting = True

    def begun(self, wait: Wait, now: Phase) -> None:
        """Notes the states from which the epoch itself draws."""
        if not self._is_over and now is Phase.TRAINING:
            self._within = _states()
            wait(DRAWN, partial(self.drawn, self._epochs[-1]))

    def drawn(self, epoch: Epoch) -> None:
        """Looks at the states after the first batches of the last epoch."""
        if epoch is self._epochs[-1]:
            now = _states()
            epoch.moved = {device for device in now if now[device] != self._within.get(device)}

    def step(self, optimizer: Any) -> None:
        """Notes the optimizer of an epoch; judges the epoch before."""
        self.is_waiting = False
        *before, epoch = self._epochs
        epoch.optimizer = weakref.ref(optimizer)
        for last in before:
            is_same = last.optimizer is not None and last.optimizer() is optimizer
            same = {device for device in last.moved if last.begun[device] == epoch.begun[device]}
            if is_same and same and epoch.steps > last.steps + 1:
                self._is_over = True
                report(sampling.SEEDED_AGAIN.found(epoch.steps), where=epoch.where)


seeds = Seeds()


def _states() -> dict[str, str]:
    """Digests of the random states of the host and of the current device."""
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        states["cuda"] = torch.cuda.get_rng_state()
    return {
        device: blake2b(state.numpy().tobytes(), digest_size=8).hexdigest()
        for device, state in states.items()
    }
