"""Hands loaders that begin, and their batches, to the checks of samples."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...core.private_names import LOADER_ITERATOR
from ...evidence.observations import observations
from . import epochs
from .batches import draws, overlap
from .collectives import local_evaluations
from .data_sets import data_sets
from .epochs import seeds
from .evaluations import evaluations, phase
from .first_steps import first_steps
from .losses import first_losses
from .mixing import mixing
from .passes import passes
from .reporting import is_on, safely
from .resumes import resumes
from .samplers import unshuffled
from .schedules import schedules
from .worker_draws import worker_draws

HOOKED = (LOADER_ITERATOR.module,)
MOST = 64
"""Maximum beginnings of loaders whose phase is looked at."""

_waiting: weakref.WeakKeyDictionary[Any, tuple[int, list[tuple[int, Callable[[], None]]]]]
_waiting = weakref.WeakKeyDictionary()
"""By iterator: its batches so far, and what to call after how many."""


def install(module: ModuleType) -> None:
    """Wraps the beginnings of loaders, and their batches."""
    with observations.going_on():
        LOADER_ITERATOR.of(module)
        wrapt.wrap_function_wrapper(module, f"{LOADER_ITERATOR.path}.__next__", _following)
    left = MOST

    def begin(wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
        iterator = looking(wrapped, loader, args, kwargs)
        with suppress(Exception):  # a stream has no length, and a sampler may refuse it
            schedules.begin(loader)  # torch warns of more samples, if an iterator comes after len()
        return iterator

    def looking(wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
        nonlocal left
        if evaluations.left and is_on(Check.TRAINED):
            safely(Check.TRAINED, evaluations.begin)
        if mixing.is_open and is_on(Check.TRAINED):
            safely(Check.TRAINED, mixing.begin, loader)
        if resumes.open and is_on(Check.RESUMED):
            safely(Check.RESUMED, resumes.begin)
        if passes.left and is_on(Check.DATA, Check.TRAINED):
            safely(Check.DATA, passes.begin)
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
    waiting: list[tuple[int, Callable[[], None]]] = []

    def wait(batches: int, look: Callable[[], None]) -> None:
        waiting.append((batches, look))

    safely(Check.DATA, draws.begun, loader, iterator)
    safely(Check.DATA, data_sets.begun, loader, iterator, now)
    safely(Check.DATA, seeds.begun, wait, now)
    safely(Check.DATA, worker_draws.begun, wait, loader)
    safely(Check.DATA, local_evaluations.begun, wait, loader, now)
    if waiting:
        safely(Check.DATA, _waiting.__setitem__, iterator, (0, waiting))
    return iterator


def _following(wrapped: Any, iterator: Any, args: Any, kwargs: Any) -> Any:
    batch = wrapped(*args, **kwargs)
    if draws.is_due(iterator) and is_on(Check.DATA):
        safely(Check.DATA, draws.draw, iterator, batch)
    if first_steps.is_open and is_on(Check.OURS):
        safely(Check.OURS, first_steps.draw, batch)
    if overlap.is_open and is_on(Check.DATA):
        safely(Check.DATA, overlap.draw, batch)
    if _waiting and iterator in _waiting:
        _count(iterator)
    return batch


def _count(iterator: Any) -> None:
    """Counts a batch; calls who has waited for it."""
    before, waiting = _waiting.pop(iterator)
    count = before + 1
    for batches, look in waiting:
        if batches == count:
            safely(Check.DATA, look)
    later = [each for each in waiting if each[0] > count]
    if later:
        _waiting[iterator] = count, later
