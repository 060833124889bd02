"""Detects gradients cleared between passes that should accumulate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ...checks import divided
from .. import data_parallel
from ..callers import LOOPS, is_called_by, user_place
from . import scalers
from .models import parameters_of
from .reporting import report

MOST = 192
"""Maximum passes to inspect."""


class Stepping(Protocol):
    """An optimizer's steps so far."""

    steps: int


class Clearing:
    """Backward passes of the first steps by line, and those that began without gradients.

    Attributes:
        is_open: whether to inspect further passes.
    """

    def __init__(self, optimizers: Callable[[], Iterable[tuple[Any, Stepping]]]) -> None:
        self.is_open = True
        self._optimizers = optimizers
        self._counts: dict[str, list[tuple[int, int]]] = {}  # by line: passes and cleared ones
        self._looked = 0
        self._done = 0
        self._version: int | None = None  # of a parameter that a step may change

    def look(self) -> None:
        """Inspects which gradients this step's earlier passes left, before the next pass."""
        steps = sum(watch.steps for _, watch in self._optimizers())
        held = list(self._parameters())
        is_plain = not (scalers.used or data_parallel.others or is_called_by(*LOOPS, "deepspeed"))
        self._looked += 1
        self.is_open = bool(held) and is_plain and all(map(_is_plain, held))
        self.is_open = self.is_open and self._looked <= MOST
        if not self.is_open:
            return
        where = user_place()
        version = held[0]._version
        if steps != self._done or version != self._version:
            self._done, self._version = steps, version
            for counts in self._counts.values():
                counts.append((0, 0))
        counts = self._counts.setdefault(where, [(0, 0)])
        passes, cleared = counts[-1]
        is_cleared = passes > 0 and all(param.grad is None for param in held)
        counts[-1] = passes + 1, cleared + is_cleared
        if steps >= divided.STEPS:
            self.is_open = False
            if len(self._counts) == 1:  # of several, some are for the inputs, or for other models
                seen = self._counts[where][: divided.STEPS]
                report(divided.cleared(seen, where))

    def _parameters(self) -> Iterator[Any]:
        for optimizer, _ in self._optimizers():
            yield from (param for param in parameters_of(optimizer) if param.requires_grad)


def _is_plain(parameter: Any) -> bool:
    """Whether the gradient is in `grad`; FSDP2 stores it elsewhere between passes."""
    return not hasattr(parameter, "to_local")
