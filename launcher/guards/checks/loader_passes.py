"""Hands loaders that begin, and their batches, to the checks of how samples are made."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...core.private_names import LOADER_ITERATOR
from ...evidence.observations import observations
from .data_sets import data_sets
from .local_evaluations import local_evaluations
from .phases import phase
from .reporting import is_on, safely
from .reseeded import seeds
from .unshuffled import unshuffled
from .worker_draws import worker_draws

HOOKED = (LOADER_ITERATOR.module,)
MOST = 64
"""Maximum beginnings of loaders to look at."""


def install(module: ModuleType) -> None:
    """Wraps the beginnings of loaders, and their batches."""
    left = MOST

    def begin(wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
        nonlocal left
        if left <= 0 or not is_on(Check.DATA):
            return wrapped(*args, **kwargs)
        left -= 1
        now = phase()
        safely(Check.DATA, data_sets.begin, loader, now)
        safely(Check.DATA, unshuffled.begin, loader, now)
        safely(Check.DATA, seeds.begin, now)
        safely(Check.DATA, worker_draws.before, loader, now)
        try:
            iterator = wrapped(*args, **kwargs)
        finally:
            worker_draws.board = None
        safely(Check.DATA, data_sets.begun, loader, iterator, now)
        safely(Check.DATA, seeds.begun, iterator, now)
        safely(Check.DATA, worker_draws.begun, iterator)
        safely(Check.DATA, local_evaluations.begin, loader, iterator, now)
        return iterator

    def following(wrapped: Any, iterator: Any, args: Any, kwargs: Any) -> Any:
        batch = wrapped(*args, **kwargs)
        if local_evaluations.left:
            local_evaluations.draw(iterator)
        if seeds.left:
            safely(Check.DATA, seeds.draw, iterator)
        if worker_draws.left:
            safely(Check.DATA, worker_draws.draw, iterator)
        return batch

    wrapt.wrap_function_wrapper(module, "DataLoader.__iter__", begin)
    with observations.going_on():
        LOADER_ITERATOR.of(module)
        wrapt.wrap_function_wrapper(module, f"{LOADER_ITERATOR.path}.__next__", following)
