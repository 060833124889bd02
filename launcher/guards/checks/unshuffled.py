"""Detects training on samples class by class: labels of the first losses, without shuffling."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import chain
from types import ModuleType
from typing import Any

from ...checks import sampling
from ...checks.finding import Check
from ...core.private_names import TARGET
from ...evidence.observations import observations
from ..callers import user_place
from .copies import Copy, copied, spread
from .graphs import AROUND, before
from .phases import Phase, samplers_of
from .reporting import is_on, report, safely

HOOKED = ("torch.autograd",)
LOSS = "NllLossBackward0"
"""The autograd node of a loss of one label for each sample."""
SPREAD = 256
"""Labels of a data set to look at."""


class Unshuffled:
    """The labels of the first losses.

    Attributes:
        rows: the samples of a batch of the loader that trains; 0 if it shuffles, or afterwards.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._is_over = False
        self._copies: list[Copy] = []
        self._place = ""
        self._are_grouped = False

    def begin(self, loader: Any, now: Phase) -> None:
        """Notes a loader that begins; a second epoch of a training ends the look."""
        import torch

        if self._is_over or now is not Phase.TRAINING:
            return
        if self._copies:
            self._judge()
            return
        data = loader.dataset
        is_table = not isinstance(data, torch.utils.data.IterableDataset)
        self.rows = 0
        if is_table and _keeps_order(loader):
            batches: Any = loader.batch_sampler
            size = int(loader.batch_size or getattr(batches, "batch_size", None) or 0)
            self.rows = size if size >= sampling.LEAST else 0
            self._place = user_place()
            self._are_grouped = any(map(sampling.is_grouped, _labels_in(data)))

    def look(self, loss: Any) -> None:
        """Takes a loss's labels before its backward pass begins."""
        if (observations.steps_of_all() or 0) >= sampling.STEPS:
            self._judge()
            return
        node = before(getattr(loss, "grad_fn", None), AROUND)
        if node is None or node.name() != LOSS or len(self._copies) >= sampling.STEPS:
            return
        labels = TARGET.of(node)
        copy = copied([labels]) if tuple(labels.shape) == (self.rows,) else None
        if copy is not None:
            self._copies.append(copy)

    def _judge(self) -> None:
        copies = [copy for copy in self._copies if copy.is_there]
        self._is_over, self.rows, self._copies = True, 0, []
        labels = [copy.parts()[0] for copy in copies]
        if len(labels) > 1:
            found = sampling.unshuffled(labels, are_all_grouped=self._are_grouped)
            report(found, where=self._place)


unshuffled = Unshuffled()


def install(module: ModuleType) -> None:
    """Wraps `backward` in a plain function."""
    module.backward = _looking(module.backward)  # type: ignore[attr-defined]


def _looking(function: Any) -> Any:
    import torch

    @functools.wraps(function)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not unshuffled.rows:
            return function(*args, **kwargs)
        if args and is_on(Check.DATA):
            safely(Check.DATA, unshuffled.look, args[0])
        return function(*args, **kwargs)

    return backward


def _keeps_order(loader: Any) -> bool:
    """Whether a loader takes samples in the order of the data set."""
    from torch.utils import data

    *batches, sampler = samplers_of(loader)
    is_plain = all(
        type(one) is data.BatchSampler or type(one).__module__ == "accelerate.data_loader"
        for one in batches
    )
    is_divided = type(sampler) is data.DistributedSampler and not sampler.shuffle
    return is_plain and (is_divided or type(sampler) is data.SequentialSampler)


def _labels_in(data: Any) -> Iterator[list[float]]:
    """Evenly spread values of each list or 1-D array with a whole number for each sample."""
    import torch

    size = len(data) or 1
    held = list(getattr(data, "__dict__", {}).values())
    parts = chain.from_iterable(part if isinstance(part, tuple) else (part,) for part in held)
    for part in parts:
        if isinstance(part, list) and len(part) == size:
            values = spread(part, SPREAD)
            if all(type(value) is int for value in values):
                yield [float(value) for value in values]
            continue
        is_tensor = isinstance(part, torch.Tensor) and part.device.type == "cpu"
        is_whole = is_tensor and not (part.is_floating_point() or part.is_complex())
        is_array = type(part).__module__ == "numpy" and hasattr(part, "dtype")
        if (is_whole or (is_array and part.dtype.kind in "iu")) and tuple(part.shape) == (size,):
            yield [float(part[place * (size - 1) // SPREAD]) for place in range(SPREAD)]
