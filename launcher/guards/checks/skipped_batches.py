"""Detects a loader of accelerate's `skip_first_batches` that is used for more than an epoch."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import wrapt

from ...checks import data
from ...checks.finding import Check
from ...evidence.observations import observations
from ..callers import user_place
from .reporting import is_on, report, safely

ACCELERATE, LOADER = "accelerate.data_loader", "torch.utils.data.dataloader"
HOOKED = (ACCELERATE, LOADER)

_skipping: weakref.WeakKeyDictionary[Any, tuple[int, str, int | None]]
_skipping = weakref.WeakKeyDictionary()
"""By loader: the skipped batches, the user's line, and the optimizer steps when it last began."""


def install(module: ModuleType) -> None:
    """Wraps the function, and loaders' `__iter__`."""
    if module.__name__ == ACCELERATE:

        def skip(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
            loader = wrapped(*args, **kwargs)
            count = args[1] if len(args) > 1 else kwargs.get("num_batches", 0)
            if count and is_on(Check.DATA):
                _skipping[getattr(loader, "base_dataloader", loader)] = count, user_place(), None
            return loader

        wrapt.wrap_function_wrapper(module, "skip_first_batches", skip)
        return

    def begin(wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
        if loader in _skipping:
            safely(Check.DATA, _look, loader)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "DataLoader.__iter__", begin)


def _look(loader: Any) -> None:
    """Reports a second epoch, if there were training steps in the first."""
    count, where, done = _skipping[loader]
    steps = observations.steps_of_all() or 0
    _skipping[loader] = count, where, steps
    if done is not None and steps > done + 1:
        report(data.skipped_again(count, steps, where))
