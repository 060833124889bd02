"""Counts the backward passes that each step adds up, to find those left over by an epoch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ...checks import divided
from ...evidence.observations import Observations
from ..callers import user_place
from .told import tell


class Accumulated:
    """The passes since the last step, or since gradients were cleared after it.

    Attributes:
        is_open: whether to count further passes: a loop with one optimizer accumulates.
    """

    def __init__(
        self, observations: Observations, optimizers: Callable[[], Collection[Any]]
    ) -> None:
        self.is_open = True
        self._observations = observations
        self._optimizers = optimizers
        self._place: tuple[int, int] | None = None  # of a parameter with a gradient
        self._optimizer: Any = None
        self._passes = 0
        self._left = 0
        self._usual = 0  # passes of the first step

    def passing(self) -> None:
        """Counts a backward pass before it begins."""
        if self._place is not None:
            group, number = self._place
            if self._optimizer.param_groups[group]["params"][number].grad is None:
                self._passes = 0
        self._passes += 1

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
            self._optimizer, self._place = optimizer, _with_gradient(optimizer)
            self._usual = self._passes
        passes, left = self._passes, self._left
        self._passes = self._left = 0
        has_left = passes == left + self._usual > self._usual
        if has_left:
            about = passes, left, steps + 1, user_place()
            tell(self._observations, divided.left_over(*about))
        is_alone = self._place is not None and len(self._optimizers()) == 1
        self.is_open = is_alone and self._usual > 1 and not has_left


def _with_gradient(optimizer: Any) -> tuple[int, int] | None:
    """Group and number of a parameter whose gradient is in `grad`; FSDP2 keeps it elsewhere."""
    for place, group in enumerate(optimizer.param_groups):
        for number, each in enumerate(group["params"]):
            if each.grad is not None:
                return None if hasattr(each, "to_local") else (place, number)
    return None
