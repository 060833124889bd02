"""Looks at what ranks exchange: counts of evaluations, gradients, or nothing before a decision.

A decision is by an evaluation of one rank's share if a divided loader has given all of its batches,
and the script has called no collective since it began. Gradients that are equal on all ranks become
as many times as large by a sum over the ranks: they are sampled before and after it, and when the
optimizer gets them.
"""

from __future__ import annotations

import ast
import functools
import re
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from types import ModuleType
from typing import Any

from ...checks import data, divided, sampling
from ...checks.finding import Check
from ...core.quantities import count_of
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from . import early_steps
from .copies import Copy, copied, sample
from .evaluations import Phase, Wait
from .reporting import is_on, report, report_here, safely
from .samplers import is_divided
from .user_source import conditions

SERIALIZATION = "torch.serialization"
HOOKED = ("torch.distributed.distributed_c10d", SERIALIZATION)
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
BEST = re.compile(r"best|lowest|highest", re.IGNORECASE)
"""Parts of names for the best value so far."""
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


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


class LocalEvaluations:
    """The last evaluation of this rank's share.

    Attributes:
        is_open: whether to look at further decisions.
        has_exchanged: whether the ranks have exchanged anything since it began.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.has_exchanged = False
        self._begun = 0
        self._is_whole = False

    def begun(self, wait: Wait, loader: Any, now: Phase) -> None:
        """Notes an evaluation that begins; a training ends the last one."""
        self._is_whole = self.has_exchanged = False
        self._begun += 1
        is_evaluation = now is Phase.EVALUATION and self.is_open
        if is_evaluation and observations.steps_of_all() and is_divided(loader):
            wait(len(loader), functools.partial(self.drawn, self._begun))

    def drawn(self, begun: int) -> None:
        """Notes the end of an evaluation, unless another loader has begun since."""
        self._is_whole = self._is_whole or begun == self._begun

    @property
    def is_alone(self) -> bool:
        """Whether one has ended, and the ranks have exchanged nothing since it began."""
        return self.is_open and self._is_whole and not self.has_exchanged

    def decide(self, what: str) -> None:
        """Reports a decision by it."""
        if what == sampling.SAVES and not any(starmap(_is_of_best, conditions())):
            return
        self.is_open = False
        report_here(sampling.OF_ONE_SHARE.found(observations.steps_of_all() or 0, what=what))


local_evaluations = LocalEvaluations()


@dataclass(slots=True)
class Sum:
    """A gradient that is summed.

    Attributes:
        model: a reference to the model.
        name: the parameter's.
        where: the user's line.
        before: elements before the sum.
        after: elements after it; None until then.
    """

    model: weakref.ref[Any]
    name: str
    where: str
    before: Copy
    after: Copy | None = None


class Reduced:
    """Sums of gradients in the first steps.

    Attributes:
        left: reductions of this step to inspect.
    """

    def __init__(self) -> None:
        self.left = LOOKS
        self._is_over = False
        self._sum: Sum | None = None  # the last one of this step
        self._used: list[tuple[tuple[Copy, Copy, Copy], str]] = []  # by step, with its line

    def begin(self, tensor: Any) -> None:
        """Samples a gradient that is about to be reduced."""
        self.left -= 1
        self._sum = None
        if not tensor.is_floating_point() or not observations.steps_of_all():
            return
        place = tensor.data_ptr(), tensor.numel()
        for model in data_parallel.wrapped:
            for name, parameter in model.named_parameters():
                grad = parameter.grad
                if grad is not None and (grad.data_ptr(), grad.numel()) == place:
                    if before := _copied(grad):
                        self._sum = Sum(weakref.ref(model), name, user_place(), before)
                    return

    def end(self, tensor: Any) -> None:
        """Samples the gradient again after it was reduced."""
        if self._sum is not None:
            self._sum.after = _copied(tensor)
            self.left = 0

    def step(self, _optimizer: Any, step: int) -> None:
        """Samples the gradient that an optimizer gets; judges earlier ones."""
        noted, self._sum = self._sum, None
        model = None if noted is None else noted.model()
        if noted is not None and noted.after is not None and model is not None:
            used = _copied(model.get_parameter(noted.name).grad)
            if used is not None:
                self._used.append(((noted.before, noted.after, used), noted.where))
        self._is_over |= step > STEPS + 1
        for copies, where in self._used[:-1]:
            if all(copy.is_there for copy in copies):
                before, after, now = (copy.parts()[0] for copy in copies)
                found = divided.summed_again(before, after, now, data_parallel.world())
                report(found, where=where)
                self._is_over = True
        self.left = 0 if self._is_over else LOOKS
        if self._is_over:
            self._used.clear()


def _copied(gradient: Any) -> Copy | None:
    part = sample(gradient)
    return None if part is None else copied([part])


reduced = Reduced()


def install(module: ModuleType) -> None:
    """Wraps the functions in plain ones, which compiled graphs don't see, and `torch.save`."""
    if module.__name__ == SERIALIZATION:
        module.save = _saving(module.save)  # type: ignore[attr-defined]
        return
    early_steps.looking(Check.GRADIENTS, reduced.step)
    for name in filter(module.__dict__.__contains__, EXCHANGES):
        wrap = _summing if name == "all_reduce" else _noting
        setattr(module, name, wrap(getattr(module, name)))


def _noting(function: Any) -> Any:
    import torch

    @functools.wraps(function)
    def exchange(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            local_evaluations.has_exchanged = True
        return function(*args, **kwargs)

    return exchange


def _summing(function: Any) -> Any:
    """Wraps the sum over ranks, whose result is there if it returns None."""
    import torch

    @functools.wraps(function)
    def all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(tensor, *args, **kwargs)
        local_evaluations.has_exchanged = True
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


def _saving(function: Any) -> Any:
    @functools.wraps(function)
    def save(*args: Any, **kwargs: Any) -> Any:
        decide(sampling.SAVES)
        return function(*args, **kwargs)

    return save


def decide(what: str) -> None:
    """Looks at a decision of the script's."""
    if local_evaluations.is_alone and is_on(Check.DATA):
        safely(Check.DATA, local_evaluations.decide, what)


def _is_of_best(test: ast.expr, values: Mapping[str, Any]) -> bool:
    """Whether a condition compares with the best value so far, or is its result."""
    compares = any(
        isinstance(node, ast.Compare) and isinstance(node.ops[0], ORDERS) for node in ast.walk(test)
    )
    return any(
        value is True or (compares and (isinstance(value, float) or hasattr(value, "dtype")))
        for name, value in _named(test, values)
        if BEST.search(name)
    )


def _named(test: ast.expr, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names in a condition, with the variables' values; None for what would have to be run."""
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and node.id in values:
            yield node.id, values[node.id]
        elif isinstance(node, ast.Attribute):
            owner = values.get(node.value.id) if isinstance(node.value, ast.Name) else None
            yield node.attr, getattr(owner, "__dict__", {}).get(node.attr)
