"""Detects evaluations that count the samples which a DistributedSampler repeats."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from ...checks import data
from ...checks.finding import Check
from ...evidence.observations import observations
from ..callers import user_place
from .reporting import is_on, report, safely

HOOKED = ("torch.distributed.distributed_c10d",)
MOST = 64
"""Maximum elements of a reduced tensor to look at, and maximum tensors."""


class Padded:
    """Evaluations whose samples are repeated so that each rank has as many.

    Attributes:
        looks: number of further reductions to look at.
    """

    def __init__(self) -> None:
        self.looks = MOST
        self._sizes = 0, 0  # of the data, and with the repeated samples
        self._where = ""

    def begin(self, sampler: Any) -> None:
        """Notes the sampler of a loader that begins.

        Args:
            sampler: None if it isn't a DistributedSampler, or if a model is trained.
        """
        count = 0 if sampler is None else len(sampler.dataset)
        padded = 0 if sampler is None else sampler.total_size
        self._sizes = (count, padded) if padded > count else (0, 0)
        self._where = user_place()

    @property
    def is_open(self) -> bool:
        """Whether the next reduction may be of a padded evaluation."""
        return self.looks > 0 and self._sizes != (0, 0)

    def look(self, tensor: Any) -> None:
        """Looks for the number of all samples in a sum over the ranks."""
        if tensor.numel() > MOST or tensor.is_complex() or tensor.requires_grad:
            return
        self.looks -= 1
        values = tensor.detach().flatten().tolist()
        count, padded = self._sizes
        if padded in values and count not in values:
            self.looks = 0
            report(data.counted_twice(count, padded, observations.steps_of_all(), self._where))


padding = Padded()


def install(module: ModuleType) -> None:
    """Wraps the sum over ranks in a plain function, which compiled graphs don't see."""
    import torch

    function = module.__dict__["all_reduce"]

    @functools.wraps(function)
    def all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not padding.is_open:
            return function(tensor, *args, **kwargs)
        result = function(tensor, *args, **kwargs)
        if result is None and is_on(Check.DATA):
            safely(Check.DATA, padding.look, tensor)
        return result

    module.__dict__["all_reduce"] = all_reduce
