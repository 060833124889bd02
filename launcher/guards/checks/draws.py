"""Compares random values that a loop draws between ranks, from its second step to its third.

Loops that draw all of their data are left out: most are tries, without a seed for each rank.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ...checks import data
from ...checks.between_ranks import Compared, Shared
from ...checks.finding import Check
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import place, user_frames
from .copies import ELEMENTS, Copy, copied
from .first_steps import first_steps
from .replicas import digest_of
from .reporting import is_on, report, safely

HOOKED = ("torch.optim.optimizer",)
DRAWING = ("rand", "rand_like", "randint", "randint_like", "randn", "randn_like")
"""torch's functions that draw; those that permute samples must often be equal on all ranks."""
LEAST = 8
"""Elements of a draw that isn't a decision, which ranks may have to make alike."""


def install(module: ModuleType) -> None:
    """Watches draws between two steps of the process's first optimizer."""
    draws = Draws()

    def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        # Asked here: an import that reads a worker's variable can't be shared by all workers.
        if not draws.is_over and is_on(Check.DATA):  # the hook stays, as torch iterates over it
            safely(Check.DATA, draws.step, optimizer)

    module.register_optimizer_step_post_hook(stepped)


class Draws:
    """The user's first line that draws in every step, and its values.

    Attributes:
        is_over: whether to stop watching.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._first: Any = None
        self._steps = 0
        self._place = ""
        self._copies: list[Copy] = []  # one of each step
        self._wrapped: dict[str, tuple[Any, Any]] = {}  # by name: the wrapper, and the original

    def step(self, optimizer: Any) -> None:
        """Begins after the first step; compares after the third."""
        self._first = self._first or id(optimizer)
        if id(optimizer) != self._first:
            return
        self._steps += 1
        if self._steps == 1 and data_parallel.replicated():
            self._watch()
        elif self._steps >= 3:
            self.is_over = True
            self._put_back()
            has_data = first_steps.batches > 0
            if has_data and self._copies and all(copy.is_there for copy in self._copies):
                rows = [row for copy in self._copies for row in copy.parts()]
                if len(rows) > 1 and rows[0] == rows[1] and len({*rows[0]}) > 1:
                    report(data.drawn_again(self._steps, self._place))
                elif len(rows) > 1 and all(len({*row}) > 1 for row in rows):
                    compared = Compared(Shared.DRAWS, digest_of(*rows), self._place, self._steps)
                    observations.send(compared)

    def _watch(self) -> None:
        """Wraps torch's functions for these steps; compiled code has the original ones."""
        import torch

        for name in DRAWING:
            original = getattr(torch, name)
            self._wrapped[name] = self._noting(original), original
            setattr(torch, name, self._wrapped[name][0])

    def _put_back(self) -> None:
        """Sets the functions back, unless the script has replaced them in the meantime."""
        import torch

        for name, (wrapper, original) in self._wrapped.items():
            if getattr(torch, name) is wrapper:
                setattr(torch, name, original)

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        @functools.wraps(function)
        def drawing(*args: Any, **kwargs: Any) -> Any:
            drawn = function(*args, **kwargs)
            if not torch.compiler.is_compiling() and kwargs.get("generator") is None:
                frame = sys._getframe(1)
                file, line = frame.f_code.co_filename, frame.f_lineno
                safely(Check.DATA, self._note, drawn, file, line)
            return drawn

        return drawing

    def _note(self, drawn: Any, file: str, line: int) -> None:
        import torch

        if drawn.numel() < LEAST or not torch.is_grad_enabled() or len(self._copies) >= self._steps:
            return
        where = place(file, line)
        if self._place not in ("", where) or next(user_frames(), ("", 0)) != (file, line):
            return
        copy = copied([drawn.detach().reshape(-1)[:ELEMENTS]])
        if copy is not None:
            self._place = where
            self._copies.append(copy)
