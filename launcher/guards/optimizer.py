"""Observes the optimizer, and counts its steps for loops that have no counter of their own."""

from __future__ import annotations

import functools
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Optimizer
from ..core.private_names import INITIAL_STATE
from ..evidence.observations import Observations
from ..evidence.other_models import size_of
from ..workload.readers.vocabulary import optimizer_named

HOOKED = ("torch.optim.optimizer", INITIAL_STATE.module)
NAMED = {"torch", "deepspeed", "transformers"}
"""Packages whose classes tell by their names what they keep; bitsandbytes' take the bits later."""


class Steps:
    """The steps of the optimizer that has done the most.

    Attributes:
        most: their number; None where no optimizer has been made: the loop may have an update of
            its own.
        largest: elements of the largest optimizer.
    """

    def __init__(self) -> None:
        self.most: int | None = None
        self.largest = 0
        self._counts: dict[int, int] = {}
        self._is_counting = True

    def begin(self) -> None:
        """There is an optimizer to count."""
        self.most = self.most or 0

    def count(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Counts a step."""
        if self._is_counting:
            self._counts[id(optimizer)] = done = self._counts.get(id(optimizer), 0) + 1
            self.most = max(self.most or 0, done)

    def prepare(self, wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        """Makes an optimizer's states, by a step that isn't the training's."""
        self._is_counting = False
        try:
            return wrapped(*args, **kwargs)
        finally:
            self._is_counting = True


_steps = functools.cache(lambda _observations: Steps())


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the constructor and counts steps, but for one that torch makes before it loads."""
    steps: Steps = _steps(observations)
    if module.__name__ == INITIAL_STATE.module:
        with observations.going_on():
            INITIAL_STATE.of(module)
            wrapt.wrap_function_wrapper(module, INITIAL_STATE.path, steps.prepare)
        return
    module.register_optimizer_step_post_hook(steps.count)
    observations.count_steps(lambda: steps.most)
    made = partial(_construct, observations, steps)
    wrapt.wrap_function_wrapper(module, "Optimizer.__init__", made)


def _construct(
    observations: Observations,
    steps: Steps,
    wrapped: Any,
    instance: Any,
    args: Any,
    kwargs: Any,
) -> None:
    """Notes the optimizer that has the most elements so far."""
    wrapped(*args, **kwargs)
    steps.begin()
    with suppress(AttributeError, KeyError, TypeError):  # an optimizer of an unusual kind
        groups = instance.param_groups
        size = sum(size_of(parameter) for group in groups for parameter in group["params"])
        if size > steps.largest:
            steps.largest = size
            observations.see(optimizer=_kind(instance), fused_step=_is_fused(instance))


def _kind(optimizer: Any) -> str | None:
    """The optimizer by its states; None where its class doesn't tell."""
    home = type(optimizer).__module__.partition(".")[0]
    kind = optimizer_named(type(optimizer).__name__) if home in NAMED else None
    if kind is Optimizer.SGD and optimizer.defaults.get("momentum"):
        kind = Optimizer.LION
    return None if kind is None else kind.value


def _is_fused(optimizer: Any) -> bool | None:
    """Whether its step needs no temporaries for all parameters; None where that isn't known."""
    home = type(optimizer).__module__
    if home.startswith("torch.optim."):
        return bool(optimizer.defaults.get("fused"))
    return True if home.startswith("deepspeed.ops.") else None
