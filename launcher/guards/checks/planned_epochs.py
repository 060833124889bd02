"""Reads how many epochs and steps a script plans, by its variables' names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from types import ModuleType
from typing import Any

from ..callers import user_values

EPOCHS = re.compile(r"(?:(?:num|n|max|total|train|training)_)*epochs", re.IGNORECASE)
"""Names of a number of epochs; not of one that counts them, as a schedule's `last_epoch`."""
UNIT = r"(?:(?:train|training|update|optimizer|optimization)_)?(?:steps|iters|iterations|updates)"
LIMIT = re.compile(rf"max_{UNIT}", re.IGNORECASE)
"""Names of the number of optimizer steps after which a loop ends."""
STEPS = re.compile(rf"(?:(?:max|total|num|n)_)*{UNIT}", re.IGNORECASE)
"""Names of any number of steps, such as that of a schedule's."""
MOST = 200
"""Maximum variables to look at in one place."""


class Epoch:
    """The epoch that is being trained.

    Attributes:
        batches: of this rank, by the loader begun last with gradients enabled; 0 if it has no
            length.
    """

    batches = 0

    def begin(self, loader: Any) -> None:
        """Records a loader whose batches begin; not one of an evaluation."""
        import torch

        if torch.is_grad_enabled():
            self.batches = 0
            self.batches = len(loader)  # a stream has none, and raises


epoch = Epoch()


def planned_epochs() -> set[int]:
    """Numbers of epochs among the variables of all functions of the user's that are running."""
    return _named(EPOCHS)


def planned_steps() -> set[int]:
    """Numbers of optimizer steps among them after which a loop ends."""
    return _named(LIMIT)


def named_steps() -> set[int]:
    """All numbers of steps among them."""
    return _named(STEPS)


def _named(names: re.Pattern[str]) -> set[int]:
    return {number for values in user_values() for number in _numbers(values, names)}


def _numbers(values: Mapping[str, Any], names: re.Pattern[str], depth: int = 2) -> Iterator[int]:
    """Numbers by the names of variables and attributes."""
    for name, value in [*islice(values.items(), MOST)]:
        if type(value) is int and names.fullmatch(str(name)):
            yield value
        elif depth and not isinstance(value, ModuleType | type):
            inner = value if isinstance(value, dict) else getattr(value, "__dict__", {})
            yield from _numbers(inner, names, depth - 1)
