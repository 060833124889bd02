"""Samples an optimizer's parameters before and after a step."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...checks import trained, updated
from ...checks.finding import Check, Finding
from ...checks.updated import Update
from .copies import Copy, copied, local, sample, spread
from .models import parameters_of
from .reporting import is_certain, is_found, report, skip

ADAPTER = "lora_B"
"""PEFT's name of the zero-initialized matrix, unlike `lora_embedding_B`."""
MOST_ADAPTERS = 4
LOOKED = 32
"""Candidates to choose sampled parameters from."""
ZEROS = 5
"""Inspections in a row with zero sampled gradients before all gradients are inspected."""

done: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Inspected steps of each optimizer with a rate and a gradient."""


def adapters_in(named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Names and matrices of trained adapters that begin with zeros."""
    return [(name, param) for name, param in named if ADAPTER in name and param.requires_grad]


@dataclass(frozen=True, slots=True)
class Around:
    """An inspected step.

    Attributes:
        step: its number.
        trained: the sampled parameters, without values yet.
        frozen: the sampled frozen parameters.
        is_rising: whether the rate is higher than at the last inspection, in warmup.
        adapters: names of the sampled adapter matrices.
        before: values, gradients, frozen values and adapters.
        largest: the largest gradient of each parameter; None if not inspected.
    """

    step: int
    trained: tuple[Update, ...]
    frozen: tuple[Update, ...]
    is_rising: bool
    adapters: tuple[str, ...]
    before: Copy
    largest: Copy | None = None


class Values:
    """Inspections of one optimizer, read after their values arrive."""

    def __init__(self, optimizer: Any, where: str) -> None:
        self._stepping = weakref.ref(optimizer)
        self._optimizer = type(optimizer).__name__
        self._where = where
        self._open: Around | None = None  # between the two sides of a step
        self._held: tuple[list[Any], list[Any]] = ([], [])
        self._waiting: list[tuple[Around, Copy]] = []  # with what the step has made
        self._rates: dict[int, float] = {}
        self._lost: Finding | None = None  # updates lost at the last look without a rising rate
        self._zeros = 0  # the same at which all sampled gradients were zero

    def before(
        self, optimizer: Any, names: dict[int, str], matrices: list[tuple[str, Any]], step: int
    ) -> None:
        """Begins to copy parameters before a step.

        Args:
            optimizer: the stepping optimizer.
            names: its parameters' names, by id.
            matrices: names and matrices of zero-initialized adapters.
            step: its number.
        """
        self._read()
        if any(hasattr(group.get("lr"), "item") for group in optimizer.param_groups):
            skip(Check.TRAINED, "the learning rate is a tensor")
            return
        is_scaled = any(
            getattr(optimizer, name, None) is not None for name in ("grad_scale", "found_inf")
        )  # a fused step, which the scaler may make do nothing
        rates = {id(p): float(g.get("lr", 1)) for g in optimizer.param_groups for p in g["params"]}
        params = list(parameters_of(optimizer))
        is_whole = not any(hasattr(p, "to_local") for p in params)  # of zeros, others may have more
        candidates = [p for p in params if p.grad is not None and p.device == params[0].device]
        fixed = spread([p for p in candidates if _is_frozen(p) and _part(p) is not None])
        some = [] if is_scaled else [p for p in candidates if p.requires_grad and p.numel() > 1]
        some = [p for p in spread(some, LOOKED) if _part(p) is not None]
        moving = spread([p for p in some if _part(p.grad) is not None])
        known = [(name, p) for name, p in matrices if p.device == params[0].device]
        zeros = spread([(name, p) for name, p in known if _part(p) is not None], MOST_ADAPTERS)
        is_rising = any(rates[id(p)] > self._rates.get(id(p), math.inf) for p in moving)
        before = copied(
            [
                *map(_part, moving),
                *(_part(p.grad) for p in moving),
                *map(_part, fixed),
                *(_part(p) for _, p in zeros),
            ]
        )
        if before is None:
            skip(Check.TRAINED, "a graph of the device is being captured")
            return
        self._rates = rates
        self._held = moving, fixed
        self._open = Around(
            step,
            tuple(Update(names[id(p)], _type(p), rates[id(p)], (), ()) for p in moving),
            tuple(Update(names[id(p)], "", 0.0, (), ()) for p in fixed),
            is_rising,
            tuple(name for name, _ in zeros),
            before,
            _largest(params) if self._zeros >= ZEROS and not is_scaled and is_whole else None,
        )

    def after(self, _optimizer: Any, step: int) -> None:
        """Begins to copy parameters after a step; reads earlier copies."""
        if self._open is not None and self._open.step == step:
            moving, fixed = self._held
            after = copied([*map(_part, moving), *map(_part, fixed)])
            if after is not None:
                self._waiting.append((self._open, after))
        self._open, self._held = None, ([], [])
        self._read()

    def _read(self) -> None:
        """Judges inspections whose values have arrived."""
        while self._waiting and self._waiting[0][1].is_there:
            self._judge(*self._waiting.pop(0))

    def _judge(self, around: Around, copy: Copy) -> None:
        count, fixed = len(around.trained), len(around.frozen)
        before, after = around.before.parts(), copy.parts()
        made = [
            replace(known, before=before[i], after=after[i], gradient=_finite(before[count + i]))
            for i, known in enumerate(around.trained)
        ]
        kept = [
            replace(known, before=before[2 * count + i], after=after[count + i])
            for i, known in enumerate(around.frozen)
        ]
        if not around.is_rising:
            lost = updated.unchanged(made, self._optimizer)
            before_that, self._lost = self._lost, lost
            if lost is not None and before_that is not None:
                is_sure = lost.certain and before_that.certain
                if is_sure or not is_found(Check.PRECISION):  # the type is named there
                    self._report(around.step, replace(lost, certain=is_sure))
        optimizer = self._stepping()
        has_slopes = any(any(row) for row in before[count : 2 * count])
        self._zeros = 0 if has_slopes or not made else self._zeros + 1
        largest = [] if around.largest is None else around.largest.parts()[0]
        is_explained = is_certain(Check.DATA)  # all labels are ignored
        if largest and not any(largest) and not is_explained:
            self._report(around.step, trained.only_zeros(self._optimizer, len(largest)))
        is_explained_by_type = is_certain(Check.PRECISION)  # a type that explains NaN
        steps = 0 if optimizer is None else done.get(optimizer, 0)
        samples = dict(zip(around.adapters, before[2 * count + fixed :], strict=True))
        self._report(
            around.step,
            updated.moved(kept, self._optimizer),
            None if is_explained_by_type else updated.not_numbers(made, self._optimizer),
            updated.still_zero(samples, steps),
        )
        if optimizer is not None and any(
            update.rate > 0 and any(update.gradient) for update in made
        ):
            done[optimizer] = steps + 1

    def _report(self, step: int, *findings: Finding | None) -> None:
        report(*findings, where=self._where, step=step)


def _part(parameter: Any) -> Any | None:
    """A sample of this rank's part."""
    return None if parameter is None else sample(local(parameter))


def _largest(parameters: list[Any]) -> Copy | None:
    """The largest gradient of each parameter that has one."""
    import torch

    gradients = [p.grad.detach() for p in parameters if p.grad is not None and p.grad.numel()]
    return (
        copied([torch.stack([gradient.abs().max().float() for gradient in gradients])])
        if gradients
        else None
    )


def _is_frozen(parameter: Any) -> bool:
    """Whether steps mustn't change a parameter; an engine's copies may need no gradient."""
    import torch

    return isinstance(parameter, torch.nn.Parameter) and not parameter.requires_grad


def _type(parameter: Any) -> str:
    return str(parameter.dtype).removeprefix("torch.")


def _finite(values: list[float]) -> list[float]:
    """Gradients with 0 for overflows, as their step may be skipped."""
    return [value if math.isfinite(value) else 0.0 for value in values]
