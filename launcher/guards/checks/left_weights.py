"""Checks that an evaluation leaves the weights of the last step, not an average of them.

Sampling after every step would cost too much, so the steps before evaluations are foreseen from
the distance of the last two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...checks import sampled
from ..callers import user_place
from .copies import Copy, copied, local, sample, spread
from .models import names_of, parameters_of
from .modes import Mode
from .replicas import unjudged
from .reporting import report

MOST = 2
"""Evaluations to foresee."""
STEADY = 6
"""Steps before one in which nothing but the optimizer may change weights, as an average of models
or a mask does."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Samples of weights after a step.

    Attributes:
        step: its number.
        tensors: the sampled parameters.
        values: their values then.
    """

    step: int
    tensors: tuple[Any, ...]
    values: Copy


class LeftWeights:
    """The weights of one optimizer around evaluations."""

    def __init__(self) -> None:
        self._evaluations = Mode.evaluations
        self._last = self._every = 0  # the step before the last evaluation, and their distance
        self._left = MOST
        self._kept: Kept | None = None
        self._pair: tuple[Kept, Copy] | None = None  # the same weights before the next step
        self._steady = 0  # pairs without an evaluation between them, and without a change
        self._is_moved = False  # something else changes the weights as well
        self._waiting: list[tuple[Kept, Copy, str]] = []

    def before(self, steps: int) -> None:
        """Samples the weights again before the step that follows a sampled one.

        Args:
            steps: steps so far.
        """
        kept, self._kept = self._kept, None
        is_after = Mode.evaluations != self._evaluations and steps > 0
        self._evaluations = Mode.evaluations
        now = None if kept is None else _copied(kept.tensors)
        if kept is not None and now is not None:
            if is_after:
                self._waiting.append((kept, now, user_place()))
            else:
                self._pair = kept, now
        if is_after:
            self._last, self._every = steps, steps - self._last

    def after(self, optimizer: Any, steps: int) -> None:
        """Samples the weights after the steps that a foreseen evaluation follows.

        Args:
            optimizer: the optimizer.
            steps: steps so far.
        """
        self._read(optimizer)
        foreseen = self._last + self._every
        if not self._every or not self._left or not foreseen - STEADY <= steps <= foreseen:
            return
        if self._is_moved or unjudged:
            return
        if steps == foreseen:
            self._left -= 1
        held = [p for p in parameters_of(optimizer) if p.requires_grad and p.grad is not None]
        tensors = tuple(p for p in spread(held) if sample(local(p.detach())) is not None)
        values = _copied(tensors) if tensors else None
        self._kept = None if values is None else Kept(steps, tensors, values)

    def _read(self, optimizer: Any) -> None:
        """Judges samples that have arrived."""
        if self._pair is not None and self._pair[1].is_there:
            kept, now = self._pair
            self._pair = None
            self._is_moved |= bool(_exchanged(kept, now))
            self._steady += 1
        while self._waiting and self._waiting[0][1].is_there:
            kept, now, where = self._waiting.pop(0)
            others = _exchanged(kept, now)
            is_steady = self._steady > 0 and not self._is_moved
            if is_steady and 2 * len(others) > len(kept.tensors):
                names = names_of(optimizer)
                held = [names[id(kept.tensors[place])] for place in others]
                report(sampled.left_by_evaluation(held, kept.step, where))


def _exchanged(kept: Kept, now: Copy) -> list[int]:
    """The places of tensors whose values have changed, beyond rounding in their dtype."""
    import torch

    rounding = [4 * torch.finfo(tensor.dtype).eps for tensor in kept.tensors]
    return sampled.exchanged(kept.values.parts(), now.parts(), rounding)


def _copied(tensors: tuple[Any, ...]) -> Copy | None:
    return copied([sample(local(tensor.detach())) for tensor in tensors])
