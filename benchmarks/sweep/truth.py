"""The expected result of a cell: one process with the global batch, in double precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from .cells import Cell
from .models import STEPS, batches_of, model_of
from .tolerance import UNIT, of_gradient

MOVE = 0.1
"""The largest relative change of a weight in the first step."""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step.

    Attributes:
        total: the sum of the gradient that reaches the optimizer.
        norm: its norm.
        weights: the trained weights after the step, by name.
    """

    total: float
    norm: float
    weights: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Expected:
    """A right step and its tolerance.

    Attributes:
        step: the right values.
        gradient: the bound of the relative error of the gradient's sum and norm.
        bounds: the bound of each weight's error, by name.
    """

    step: Step
    gradient: float
    bounds: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Truth:
    """A right training.

    Attributes:
        rate: its learning rate.
        limit: the norm that gradients are clipped to; 0 for none.
        steps: the expected result of each step.
    """

    rate: float
    limit: float
    steps: tuple[Expected, ...]


def truth_of(cell: Cell) -> Truth:
    """The right training of a cell, independent of its engine."""
    return _truth_of(replace(cell, engine="", offload="", checkpointing=""))


@cache
def _truth_of(cell: Cell) -> Truth:
    model = model_of(cell.model, "off").double()
    batches = batches_of(cell.accumulation).double()
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    off = {name: torch.zeros_like(value.detach()) for name, value in trained.items()}
    rate = limit = 0.0
    steps = []
    unit = UNIT[cell.precision]
    for number in range(STEPS):
        model.zero_grad()
        model(batches[number].flatten(0, 2)).backward()
        gradients = {name: _gradient(value) for name, value in trained.items()}
        norm = float(torch.stack([value.norm() for value in gradients.values()]).norm())
        if number == 0:
            shares = [gradients[name] / trained[name].detach() for name in trained]
            fastest = max(float(share.max()) for share in shares)
            rate = MOVE / fastest
            limit = norm / 2 if cell.clipping == "clipped" else 0.0
        scale = min(1.0, limit / (norm + 1e-6)) if limit else 1.0
        share = max(float((off[name] / trained[name].detach()).max()) for name in trained)
        bound = of_gradient(cell, share)
        with torch.no_grad():
            for name, value in trained.items():
                moved = rate * scale * gradients[name]
                value -= moved
                off[name] = off[name] + bound * moved + 2 * UNIT["fp32"] * value
        total = scale * sum(float(value.sum()) for value in gradients.values())
        weights = {name: value.detach().clone() for name, value in trained.items()}
        bounds = {name: off[name] + unit * weights[name] for name in trained}
        steps.append(Expected(Step(total, scale * norm, weights), bound, bounds))
    return Truth(rate, limit, tuple(steps))


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach().clone()
