"""Looks at what ranks exchange: how often, counts of padded evaluations, and summed gradients.

If gradients are equal on all ranks, a sum over the ranks makes them as many times as large. They
are sampled before and after the sum, and when the optimizer gets them.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...checks import data, divided
from ...checks.finding import Check
from ...core.quantities import count_of
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from . import early_steps
from .copies import Copy, copied, sample
from .reporting import is_on, report, safely

HOOKED = ("torch.distributed.distributed_c10d",)
EXCHANGES = (
    *("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather", "broadcast"),
    *("send", "recv"),
)
"""The functions that exchange tensors; those of objects call them."""
MOST = 64
"""Maximum elements of a reduced tensor to look at, and maximum tensors."""
STEPS = 3
"""First steps to inspect."""
LOOKS = 4
"""Reductions of a step to inspect: the first may be of a loss."""


class Collectives:
    """The collectives of a process.

    Attributes:
        count: how many the script has called.
    """

    def __init__(self) -> None:
        self.count = 0


collectives = Collectives()


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
        sizes = (0, 0) if sampler is None else (len(sampler.dataset), sampler.total_size)
        self._sizes = sizes if sizes[1] > sizes[0] else (0, 0)
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
        left: reductions of this step to inspect.
        noted: the gradient that was summed in this step.
    """

    def __init__(self) -> None:
        self.left = LOOKS
        self.noted: Sum | None = None
        self._begun: tuple[Any, str, Copy] | None = None
        self._waiting: list[tuple[Sum, Copy]] = []

    def begin(self, tensor: Any) -> None:
        """Samples a gradient that is about to be reduced."""
        self.left -= 1
        self._begun = None
        if not tensor.is_floating_point() or not observations.steps_of_all():
            return
        place = tensor.data_ptr(), tensor.numel()
        for model in data_parallel.wrapped:
            for name, parameter in model.named_parameters():
                grad = parameter.grad
                if grad is not None and (grad.data_ptr(), grad.numel()) == place:
                    copy = _copied(grad)
                    self._begun = None if copy is None else (model, name, copy)
                    return

    def end(self, tensor: Any) -> None:
        """Samples the gradient again after it was reduced."""
        begun, self._begun = self._begun, None
        after = None if begun is None else _copied(tensor)
        if begun is not None and after is not None:
            model, name, before = begun
            self.noted = Sum(weakref.ref(model), name, before, after, user_place())
            self.left = 0

    def step(self, _optimizer: Any, step: int) -> None:
        """Samples the gradient that an optimizer gets; judges earlier ones."""
        noted, self.noted = self.noted, None
        model = None if noted is None else noted.model()
        if noted is not None and model is not None:
            used = _copied(model.get_parameter(noted.name).grad)
            if used is not None:
                self._waiting.append((noted, used))
        is_open = step <= STEPS + 1
        for noted, used in self._waiting[:-1]:
            copies = noted.before, noted.after, used
            if all(copy.is_there for copy in copies):
                before, after, now = (copy.parts()[0] for copy in copies)
                found = divided.summed_again(before, after, now, data_parallel.world())
                report(found, where=noted.where)
                is_open = False
        self.left = LOOKS if is_open else 0
        if not is_open:
            self._waiting.clear()


def _copied(gradient: Any) -> Copy | None:
    part = sample(gradient)
    return None if part is None else copied([part])


reduced = Reduced()


def install(module: ModuleType) -> None:
    """Wraps the functions in plain ones, which compiled graphs don't see."""
    early_steps.looking(Check.GRADIENTS, reduced.step)
    for name in filter(module.__dict__.__contains__, EXCHANGES):
        wrap = _summing if name == "all_reduce" else _counted
        setattr(module, name, wrap(getattr(module, name)))


def _counted(function: Any) -> Any:
    import torch

    @functools.wraps(function)
    def exchange(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            collectives.count += 1
        return function(*args, **kwargs)

    return exchange


def _summing(function: Any) -> Any:
    """Wraps the sum over ranks, whose result is there if it returns None."""
    import torch

    @functools.wraps(function)
    def all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(tensor, *args, **kwargs)
        collectives.count += 1
        is_looking = reduced.left > 0 and is_on(Check.GRADIENTS)
        if is_looking:
            safely(Check.GRADIENTS, reduced.begin, tensor)
        result = function(tensor, *args, **kwargs)
        if is_looking and result is None:
            safely(Check.GRADIENTS, reduced.end, tensor)
        if padding.is_open and result is None and is_on(Check.DATA):
            safely(Check.DATA, padding.look, tensor)
        return result

    return all_reduce
