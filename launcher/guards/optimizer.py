"""Observes the optimizer, and counts its steps for loops without a counter."""

from __future__ import annotations

import weakref
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Optimizer
from ..core.private_names import INITIAL_STATE
from ..evidence.observations import observations, size_of
from ..frameworks.config_files.vocabulary import optimizer_named

HOOKED = ("torch.optim.optimizer", INITIAL_STATE.module)
NAMED = {"torch", "deepspeed", "transformers"}
"""Packages whose optimizer class names determine the states; bitsandbytes reports bits later."""


class Steps:
    """Counts a loop's steps from its optimizers' steps.

    A step may involve several optimizers, each stepping once or more. If a new optimizer steps
    twice while no earlier one does, another training has begun.

    Attributes:
        most: number of steps; None if no optimizer exists: the loop may have a custom update.
        largest: elements of the largest optimizer.
    """

    def __init__(self) -> None:
        self.most: int | None = None
        self.largest = 0
        self._in_step: list[weakref.ref[Any]] = []  # the optimizers that have stepped in it
        self._is_new = False  # the last of these had never stepped before
        self._over: list[weakref.ref[Any]] = []  # those of an earlier training, as it seems
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_counting = True

    @property
    def is_preparing(self) -> bool:
        """Whether torch makes a step only to have the optimizer's states."""
        return not self._is_counting

    def begin(self) -> None:
        """Begins counting, as an optimizer exists."""
        self.most = self.most or 0

    def count(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Counts an optimizer's step."""
        if not self._is_counting:
            return
        done, here = self.most or 0, [reference() for reference in self._in_step]
        if here == [optimizer]:
            self.most = done + 1
            return
        if any(reference() is optimizer for reference in self._over):
            self.most, self._over = done - 1, []  # they are of one training
            done = self.most
        alive = [other for other in here if other is not None]
        if alive and all(other is not optimizer for other in alive):
            self._is_new = optimizer not in self._known
            self._in_step.append(weakref.ref(optimizer))
        else:
            is_other_training = self._is_new and bool(alive) and alive[-1] is optimizer
            if is_other_training:
                self._over = [weakref.ref(other) for other in alive[:-1]]
            self.most = done + 1 + is_other_training
            self._is_new, self._in_step = False, [weakref.ref(optimizer)]
        self._known.add(optimizer)

    def prepare(self, wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        """Initializes an optimizer's states with a step that isn't counted."""
        self._is_counting = False
        try:
            return wrapped(*args, **kwargs)
        finally:
            self._is_counting = True


steps = Steps()


def install(module: ModuleType) -> None:
    """Wraps the constructor and counts steps, except those torch makes before loading a state."""
    if module.__name__ == INITIAL_STATE.module:
        with observations.going_on():
            INITIAL_STATE.of(module)
            wrapt.wrap_function_wrapper(module, INITIAL_STATE.path, steps.prepare)
        return
    module.register_optimizer_step_post_hook(steps.count)
    observations.count_steps(lambda: steps.most)
    wrapt.wrap_function_wrapper(module, "Optimizer.__init__", _construct)


def _construct(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Notes the optimizer with the most elements so far."""
    wrapped(*args, **kwargs)
    steps.begin()
    with suppress(AttributeError, KeyError, TypeError):  # an optimizer of an unusual kind
        groups = instance.param_groups
        size = sum(size_of(parameter) for group in groups for parameter in group["params"])
        if size > steps.largest:
            steps.largest = size
            observations.see(optimizer=_kind(instance), fused_step=_is_fused(instance))


def _kind(optimizer: Any) -> str | None:
    """Kind of the optimizer's states; None if its class doesn't determine them."""
    home = type(optimizer).__module__.partition(".")[0]
    kind = optimizer_named(type(optimizer).__name__) if home in NAMED else None
    if kind is Optimizer.SGD and optimizer.defaults.get("momentum"):
        kind = Optimizer.LION
    return None if kind is None else kind.value


def _is_fused(optimizer: Any) -> bool | None:
    """Whether the step needs no temporaries for all parameters at once; None if unknown."""
    home = type(optimizer).__module__
    if home.startswith("torch.optim."):
        return bool(optimizer.defaults.get("fused"))
    return True if home.startswith("deepspeed.ops.") else None
