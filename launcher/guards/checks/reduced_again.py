"""Detects gradients that a script sums over the ranks after they have been averaged.

If they are equal on all ranks before, a sum over the ranks makes them as many times as large. They
are sampled before and after the sum, and when the optimizer gets them.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...checks import divided
from ...checks.finding import Check
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from .copies import Copy, copied, sample
from .reporting import is_on, report, safely

REDUCTIONS, OPTIMIZER = "torch.distributed.distributed_c10d", "torch.optim.optimizer"
HOOKED = (REDUCTIONS, OPTIMIZER)
STEPS = 3
"""First steps to inspect."""
LOOKS = 4
"""Reductions of a step to inspect: the first may be of a loss."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A gradient that was summed.

    Attributes:
        model: a reference to the model.
        name: the parameter's.
        before: elements before the sum.
        after: elements after it.
        where: the user's line.
    """

    model: weakref.ref[Any]
    name: str
    before: Copy
    after: Copy
    where: str


class Reduced:
    """Sums of gradients in the first steps.

    Attributes:
        is_open: whether to inspect further steps.
        left: reductions of this step to inspect.
        noted: the gradient that was summed in this step.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.left = LOOKS
        self.noted: Sum | None = None
        self._steps = 0
        self._waiting: list[tuple[Sum, Copy]] = []

    def begin(self, tensor: Any) -> tuple[Any, str, Copy] | None:
        """The model, the name and elements of a gradient that is about to be reduced."""
        self.left -= 1
        if not tensor.is_floating_point() or not observations.steps_of_all():
            return None
        place = tensor.data_ptr(), tensor.numel()
        for model in data_parallel.wrapped:
            for name, parameter in model.named_parameters():
                grad = parameter.grad
                if grad is not None and (grad.data_ptr(), grad.numel()) == place:
                    part = sample(grad)
                    copy = None if part is None else copied([part])
                    return None if copy is None else (model, name, copy)
        return None

    def end(self, begun: tuple[Any, str, Copy], tensor: Any) -> None:
        """Samples the gradient again after it was reduced."""
        model, name, before = begun
        part = sample(tensor)
        after = None if part is None else copied([part])
        if after is not None:
            self.noted = Sum(weakref.ref(model), name, before, after, user_place())
            self.left = 0

    def step(self) -> None:
        """Samples the gradient that an optimizer gets; judges earlier ones."""
        noted, self.noted = self.noted, None
        self.left = LOOKS
        model = None if noted is None else noted.model()
        if noted is not None and model is not None:
            part = sample(model.get_parameter(noted.name).grad)
            used = None if part is None else copied([part])
            if used is not None:
                self._waiting.append((noted, used))
        self._steps += 1
        for noted, used in self._waiting:
            copies = noted.before, noted.after, used
            if used is not self._waiting[-1][1] and all(copy.is_there for copy in copies):
                before, after, now = (copy.parts()[0] for copy in copies)
                found = divided.summed_again(before, after, now, data_parallel.world())
                report(found, where=noted.where)
                self.is_open = False
        self.is_open &= self._steps <= STEPS + 1
        if not self.is_open:
            self._waiting.clear()


reduced = Reduced()


def install(module: ModuleType) -> None:
    """Wraps the sum over ranks in a plain function, and watches optimizers."""
    if module.__name__ == REDUCTIONS:
        module.__dict__["all_reduce"] = _looking(module.__dict__["all_reduce"])
        return

    def stepping(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if reduced.is_open and is_on(Check.GRADIENTS):
            safely(Check.GRADIENTS, reduced.step)

    module.register_optimizer_step_pre_hook(stepping)


def _looking(function: Any) -> Any:
    import torch

    @functools.wraps(function)
    def all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not (reduced.is_open and reduced.left):
            return function(tensor, *args, **kwargs)
        begun: list[Any] = []
        if is_on(Check.GRADIENTS):
            safely(Check.GRADIENTS, lambda: begun.append(reduced.begin(tensor)))
        result = function(tensor, *args, **kwargs)
        if result is None and begun and begun[0] is not None:
            safely(Check.GRADIENTS, reduced.end, begun[0], tensor)
        return result

    return all_reduce
