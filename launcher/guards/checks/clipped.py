"""Detects clipping of gradients that another backward pass adds to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...checks.divided import clipped_early
from ...core.private_names import VERSION
from ...evidence.observations import observations
from ..callers import user_place
from .copies import local, spread
from .models import parameters_of
from .reporting import report

STEPS = 10
"""First steps to inspect."""


class Clipped:
    """The gradients that were clipped last, until they are used, cleared, or added to."""

    def __init__(self, optimizers: Callable[[], Iterable[Any]]) -> None:
        self._optimizers = optimizers
        self._marks: dict[int, tuple[int, int]] = {}  # by parameter: its gradient, as clipped
        self._where = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the next backward pass may add to clipped gradients."""
        return bool(self._marks)

    def note(self, parameters: Iterable[Any]) -> None:
        """Notes gradients that were just clipped."""
        self._marks = {}
        if (observations.steps_of_all() or 0) < STEPS:
            chosen = spread([param for param in parameters if param.grad is not None])
            with observations.going_on():
                self._marks = {id(param): _mark(param.grad) for param in chosen}
            self._where = user_place()

    def used(self, optimizer: Any) -> None:
        """Drops the gradients that an optimizer's step uses."""
        for param in parameters_of(optimizer) if self._marks else ():
            self._marks.pop(id(param), None)

    def before(self) -> None:
        """Drops the gradients that were cleared since, before a backward pass."""
        self._marks = dict(self._found(is_changed=False))

    def after(self) -> None:
        """Reports gradients that the pass has added to."""
        added = any(self._found(is_changed=True))
        self._marks = {}
        if added:
            report(clipped_early(self._where))

    def _found(self, *, is_changed: bool) -> Iterator[tuple[int, tuple[int, int]]]:
        for optimizer in self._optimizers():
            for param in parameters_of(optimizer):
                mark = self._marks.get(id(param))
                if mark and param.grad is not None and (_mark(param.grad) != mark) is is_changed:
                    yield id(param), mark


def _mark(gradient: Any) -> tuple[int, int]:
    """The place of a gradient's values on this rank, and how often they were changed."""
    part = local(gradient.detach())
    return part.data_ptr(), VERSION.of(part)
