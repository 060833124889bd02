"""Counts the backward passes that each step adds up, to find those left over by an epoch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any

from ...checks import divided
from ...checks.finding import Check
from .reporting import is_on, report_here


class Accumulated:
    """The passes since the last step, or since gradients were cleared after it.

    The optimizer isn't kept alive, nor are its parameters.

    Attributes:
        is_open: whether to count further passes: a loop with one optimizer accumulates.
    """

    def __init__(self, optimizers: Callable[[], Collection[Any]]) -> None:
        self.is_open = False
        self._optimizers = optimizers
        self._place: tuple[weakref.ref[Any], int, int] | None = None  # of one with a gradient
        self._passes = 0
        self._left = 0
        self._usual = 0  # passes of the first step

    def restart(self) -> None:
        """Begins to count, as a new optimizer is watched."""
        self.is_open = is_on(Check.GRADIENTS)
        self._place, self._passes, self._left = None, 0, 0

    def passing(self) -> None:
        """Counts a backward pass before it begins."""
        if self._place is not None and not self._has_gradient(*self._place):
            self._passes = 0
        self._passes += 1

    def _has_gradient(self, optimizer: weakref.ref[Any], group: int, number: int) -> bool:
        held = optimizer()
        return held is not None and held.param_groups[group]["params"][number].grad is not None

    def begin(self) -> None:
        """Notes the passes before a loader begins."""
        self._left = self._passes

    def stepping(self, optimizer: Any, steps: int) -> None:
        """Judges the passes before an optimizer's step.

        Args:
            optimizer: the stepping optimizer.
            steps: its previous steps.
        """
        if self._place is None:
            self._place, self._usual = _with_gradient(optimizer), self._passes
        passes, left = self._passes, self._left
        self._passes = self._left = 0
        has_left = passes == left + self._usual > self._usual
        if has_left:
            report_here(divided.left_over(passes, left, steps + 1))
        is_alone = self._place is not None and len(self._optimizers()) == 1
        self.is_open = is_alone and self._usual > 1 and not has_left


def _with_gradient(optimizer: Any) -> tuple[weakref.ref[Any], int, int] | None:
    """The place of a parameter whose gradient is in `grad`; FSDP2 keeps it elsewhere."""
    for place, group in enumerate(optimizer.param_groups):
        for number, param in enumerate(group["params"]):
            if param.grad is not None:
                is_whole = not hasattr(param, "to_local")
                return (weakref.ref(optimizer), place, number) if is_whole else None
    return None
