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
from .reporting import report

MOST = 3
"""Evaluations to foresee."""


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
        self._is_steady = False  # without an evaluation nothing changes between steps
        self._waiting: list[tuple[Kept, Copy, str]] = []

    def before(self, steps: int) -> None:
        """Samples the weights again before the step that follows a sampled one.

        Args:
            steps: steps so far.
        """
        kept, self._kept = self._kept, None
        is_after = Mode.evaluations != self._evaluations and steps > 0
        self._evaluations = Mode.evaluations
        now = None if kept is None else copied([_part(tensor) for tensor in kept.tensors])
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
        if not self._every or not self._left or steps not in (foreseen - 1, foreseen):
            return
        if steps == foreseen:
            self._left -= 1
        held = [p for p in parameters_of(optimizer) if p.requires_grad and p.grad is not None]
        tensors = tuple(p for p in spread(held) if _part(p) is not None)
        values = copied([_part(tensor) for tensor in tensors])
        self._kept = None if values is None or not tensors else Kept(steps, tensors, values)

    def _read(self, optimizer: Any) -> None:
        """Judges samples that have arrived."""
        if self._pair is not None and self._pair[1].is_there:
            kept, now = self._pair
            self._pair = None
            self._is_steady = not sampled.exchanged(kept.values.parts(), now.parts())
        while self._waiting and self._waiting[0][1].is_there:
            kept, now, where = self._waiting.pop(0)
            others = sampled.exchanged(kept.values.parts(), now.parts())
            if self._is_steady and 2 * len(others) > len(kept.tensors):
                names = names_of(optimizer)
                held = [names[id(kept.tensors[place])] for place in others]
                report(sampled.left_by_evaluation(held, kept.step, where))


def _part(parameter: Any) -> Any | None:
    return sample(local(parameter))
