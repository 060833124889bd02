"""Detects epochs that begin with the random state of the one before: the seed is set anew.

A state counts if the epoch has drawn from it by its third batch, and if one optimizer is stepped in
both epochs: a search over rates begins each training alike.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from hashlib import blake2b
from types import ModuleType
from typing import Any

from ...checks import sampling
from ...checks.finding import Check
from ...evidence.observations import observations
from ..callers import user_place
from .phases import Phase
from .reporting import is_on, report, safely

HOOKED = ("torch.optim.optimizer",)
EPOCHS = 10
"""Maximum epochs to compare."""
DRAWN = 3
"""Batches after which an epoch has drawn what it draws."""


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
        left: batches until the next look.
        is_waiting: whether an epoch has no step yet.
    """

    def __init__(self) -> None:
        self.left = 0
        self.is_waiting = False
        self._epochs: list[Epoch] = []
        self._iterator: Any = None
        self._is_over = False
        self._within: dict[str, str] = {}

    def begin(self, now: Phase) -> None:
        """Notes the states before a loader's iterator is made, which draws a seed."""
        if self._is_over or now is not Phase.TRAINING:
            return
        epoch = Epoch(_states(), observations.steps_of_all() or 0, user_place())
        self._epochs = [*self._epochs[-1:], epoch]
        self.is_waiting = True

    def begun(self, iterator: Any, now: Phase) -> None:
        """Notes the states from which the epoch itself draws."""
        if not self._is_over and now is Phase.TRAINING:
            self._iterator, self.left = weakref.ref(iterator), DRAWN
            self._within = _states()

    def draw(self, iterator: Any) -> None:
        """Looks at the states after the first batches."""
        if self._iterator() is not iterator:
            return
        self.left -= 1
        if not self.left:
            epoch = self._epochs[-1]
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
                self._is_over, self.left = True, 0
                report(sampling.SEEDED_AGAIN.found(epoch.steps), where=epoch.where)


seeds = Seeds()


def install(module: ModuleType) -> None:
    """Watches the first step of each epoch."""

    def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if seeds.is_waiting and is_on(Check.DATA):
            safely(Check.DATA, seeds.step, optimizer)

    module.register_optimizer_step_post_hook(stepped)


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
