"""Counts optimizer steps, for loops that have no counter of their own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..evidence.observations import Observations

HOOKED = ("torch.optim.optimizer",)


def install(module: ModuleType, observations: Observations) -> None:
    """Counts the steps of the optimizer that has done the most."""
    counts: dict[int, int] = {}

    def count(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1

    module.register_optimizer_step_post_hook(count)
    observations.count_steps(lambda: max(counts.values(), default=0))
