"""Counts the collectives by which ranks exchange values."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

HOOKED = ("torch.distributed.distributed_c10d",)
EXCHANGES = (
    *("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather", "broadcast"),
    *("send", "recv"),
)
"""The functions that exchange tensors; those of objects call them."""


class Collectives:
    """The collectives of a process.

    Attributes:
        count: how many the script has called.
    """

    def __init__(self) -> None:
        self.count = 0


collectives = Collectives()


def install(module: ModuleType) -> None:
    """Wraps the functions in plain ones, which compiled graphs don't see."""
    for name in filter(module.__dict__.__contains__, EXCHANGES):
        setattr(module, name, _counted(getattr(module, name)))


def _counted(function: Any) -> Any:
    import torch

    @functools.wraps(function)
    def exchange(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            collectives.count += 1
        return function(*args, **kwargs)

    return exchange
