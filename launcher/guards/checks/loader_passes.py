"""Hands loaders that begin, and their batches, to the checks of samples."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...core.private_names import LOADER_ITERATOR
from ...evidence.observations import observations
from . import epochs
from .batches import draws, overlap
from .data_sets import data_sets
from .epochs import seeds
from .evaluations import evaluations, phase
from .first_steps import first_steps
from .local_evaluations import local_evaluations
from .losses import first_losses
from .reporting import is_on, safely
from .samplers import unshuffled
from .schedule_lengths import epoch
from .schedules import schedules
from .worker_draws import worker_draws

HOOKED = (LOADER_ITERATOR.module,)
MOST = 64
"""Maximum beginnings of loaders whose phase is looked at."""


def install(module: ModuleType) -> None:
    """Wraps the beginnings of loaders, and their batches."""
    with observations.going_on():
        LOADER_ITERATOR.of(module)
        wrapt.wrap_function_wrapper(module, f"{LOADER_ITERATOR.path}.__next__", _following)
    left = MOST

    def begin(wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
        nonlocal left
        schedules.accumulated.begin()
        with suppress(TypeError):  # a stream has no length
            epoch.begin(loader)
        if evaluations.left and is_on(Check.TRAINED):
            safely(Check.TRAINED, evaluations.begin)
        if not is_on(Check.DATA):
            return wrapped(*args, **kwargs)
        safely(Check.DATA, first_losses.watch)
        safely(Check.DATA, epochs.begin, loader)
        if overlap.is_open:
            safely(Check.DATA, overlap.begin)
        if left <= 0:
            return wrapped(*args, **kwargs)
        left -= 1
        return _begun(wrapped, loader, args, kwargs)

    wrapt.wrap_function_wrapper(module, "DataLoader.__iter__", begin)


def _begun(wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
    """Begins a loader, with a look at what is done with its batches."""
    now = phase()
    safely(Check.DATA, data_sets.begin, loader, now)
    safely(Check.DATA, unshuffled.begin, loader, now)
    safely(Check.DATA, seeds.begin, now)
    safely(Check.DATA, worker_draws.before, loader, now)
    try:
        iterator = wrapped(*args, **kwargs)
    finally:
        worker_draws.board = None
    safely(Check.DATA, draws.begun, loader, iterator)
    safely(Check.DATA, data_sets.begun, loader, iterator, now)
    safely(Check.DATA, seeds.begun, iterator, now)
    safely(Check.DATA, worker_draws.begun, iterator)
    safely(Check.DATA, local_evaluations.begin, loader, iterator, now)
    return iterator


def _following(wrapped: Any, iterator: Any, args: Any, kwargs: Any) -> Any:
    batch = wrapped(*args, **kwargs)
    if draws.is_due(iterator) and is_on(Check.DATA):
        safely(Check.DATA, draws.draw, iterator, batch)
    if first_steps.is_open and is_on(Check.OURS):
        safely(Check.OURS, first_steps.draw, batch)
    if overlap.is_open and is_on(Check.DATA):
        safely(Check.DATA, overlap.draw, batch)
    if local_evaluations.left:
        local_evaluations.draw(iterator)
    if seeds.left:
        safely(Check.DATA, seeds.draw, iterator)
    if worker_draws.left:
        safely(Check.DATA, worker_draws.draw, iterator)
    return batch
