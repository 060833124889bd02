"""Checks for fields of the samples that a Trainer drops and its compute_loss asks for.

In one step, the inputs note which missing fields are asked for.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks import data
from ...checks.finding import Check
from ..callers import place_of
from ..loss import TRAINERS
from .reporting import is_on, report, safely

HOOKED = ("transformers.trainer",)


def install(module: ModuleType) -> None:
    """Wraps each Trainer's first step."""
    is_open = True

    def step(wrapped: Any, trainer: Any, args: Any, kwargs: Any) -> Any:
        nonlocal is_open
        may_miss = False
        if is_open and len(args) > 1 and is_on(Check.DATA):
            with suppress(Exception):  # an unusual Trainer
                may_miss = _may_miss(trainer, args[1])
        if not may_miss:
            return wrapped(*args, **kwargs)
        is_open = False
        requested: set[str] = set()
        present = frozenset(args[1])
        result = wrapped(args[0], _noting(args[1], requested), *args[2:], **kwargs)
        safely(Check.DATA, _judge, trainer, requested - present)
        return result

    wrapt.wrap_function_wrapper(module, "Trainer.training_step", step)


def _may_miss(trainer: Any, inputs: Any) -> bool:
    """Whether the Trainer drops fields, and its loss is the script's."""
    compute_loss = type(trainer).compute_loss
    return (
        trainer.args.remove_unused_columns
        and type(inputs) is dict  # others may not be made of a dict
        and compute_loss.__module__.partition(".")[0] not in TRAINERS
    )


def _noting(inputs: dict[str, Any], requested: set[str]) -> dict[str, Any]:
    """The inputs; their copies note asked fields too, as the Trainer moves them to a device."""

    class Noting(dict[str, Any]):
        def get(self, key: Any, *default: Any) -> Any:
            requested.add(key)
            return super().get(key, *default)

        def pop(self, key: Any, *default: Any) -> Any:
            requested.add(key)
            return super().pop(key, *default)

        def __contains__(self, key: object) -> bool:
            if isinstance(key, str):
                requested.add(key)
            return bool(super().__contains__(key))

    return Noting(inputs)


def _judge(trainer: Any, missed: set[str]) -> None:
    """Reports fields that only the samples have."""
    if not missed:
        return
    fields = _fields_of(trainer.train_dataset)
    function = inspect.unwrap(type(trainer).compute_loss)
    names = sorted(missed & fields)
    report(data.dropped(names, function.__qualname__, place_of(function)))


def _fields_of(dataset: Any) -> set[str]:
    """The fields of a data set's samples; a sample is drawn if it has no other list of them."""
    if isinstance(names := getattr(dataset, "column_names", None), list):
        return set(names)
    if not hasattr(dataset, "__len__"):
        return set()
    with _draws_kept():
        sample = dataset[0]
    return {key for key in sample if isinstance(key, str)} if isinstance(sample, dict) else set()


@contextmanager
def _draws_kept() -> Iterator[None]:
    """Sets the host's random states back at the end."""
    import torch

    pythons, torchs, numpys = random.getstate(), torch.get_rng_state(), None
    with suppress(ImportError):
        import numpy as np

        numpys = np.random.get_state()
    try:
        yield
    finally:
        random.setstate(pythons)
        torch.set_rng_state(torchs)
        if numpys is not None:
            np.random.set_state(numpys)
