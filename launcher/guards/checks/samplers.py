"""Looks at how loaders choose samples: without shuffling, or divided among the ranks twice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain
from types import ModuleType
from typing import Any

import wrapt

from ...checks import sampling
from ...checks.finding import Check
from ...core.private_names import TARGET
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from .copies import Copy, copied, spread
from .evaluations import Phase
from .graphs import AROUND, before
from .reporting import is_on, report, report_here, safely
from .user_source import names_used

HOOKED = ("accelerate.accelerator",)
RANK = re.compile(r"_?(global_|process_|data_parallel_|dp_)?rank|get_rank|process_index|shard_id")
RANKS = re.compile(
    r"_?(global_|dp_)?world(_size)?|get_world_size|_?num_(processes|replicas|ranks|shards)"
)
"""Whole names for this rank, and for the number of ranks."""
OWN = ("torch.", "accelerate.", "datasets.")
"""Packages whose samplers and streams aren't looked at: accelerate knows them."""
LOSS = "NllLossBackward0"
"""The autograd node of a loss of one label for each sample."""
SPREAD = 256
"""Labels of a data set to look at."""


def samplers_of(loader: Any) -> Iterator[Any]:
    """A loader's sampler, after the batch samplers around it: accelerate's is around torch's.

    With a batch sampler of the script's, `loader.sampler` isn't used.
    """
    batches: Any = getattr(loader, "batch_sampler", None)
    if batches is None:
        yield getattr(loader, "sampler", None)
    while batches is not None:
        yield batches
        inner = getattr(batches, "batch_sampler", None)
        if inner is None:
            yield getattr(batches, "sampler", None)
        batches = inner


def is_divided(loader: Any) -> bool:
    """Whether each rank gets its share of a loader's samples."""
    from torch.utils.data import DistributedSampler

    ranks = data_parallel.world()
    for sampler in samplers_of(loader):
        is_of_torch = isinstance(sampler, DistributedSampler)
        is_of_accelerate = type(sampler).__module__ == "accelerate.data_loader"
        parts = "num_replicas" if is_of_torch else "num_processes" if is_of_accelerate else ""
        if parts and getattr(sampler, parts, 1) == ranks > 1:
            return True
    return False


def install(module: ModuleType) -> None:
    """Wraps accelerate's function that prepares a loader."""

    def prepared(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        loader = args[0] if args else kwargs.get("data_loader")
        made = wrapped(*args, **kwargs)
        if made is not loader and is_on(Check.DATA):
            safely(Check.DATA, _look, loader, made)
        return made

    wrapt.wrap_function_wrapper(module, "Accelerator.prepare_data_loader", prepared)


def _look(loader: Any, made: Any) -> None:
    from torch.utils.data import IterableDataset

    ranks = data_parallel.world()
    if ranks < 2 or not type(made).__module__.startswith("accelerate."):
        return
    is_stream = isinstance(loader.dataset, IterableDataset)
    for maker in (loader.dataset,) if is_stream else samplers_of(loader):
        if is_by_rank(maker, ranks) and (is_stream or _is_share(loader, maker, ranks)):
            seen = {"what": "stream" if is_stream else "sampler", "kind": type(maker).__name__}
            report_here(sampling.DIVIDED_AGAIN.found(ranks=ranks, **seen))


def is_by_rank(maker: Any, ranks: int) -> bool:
    """Whether a script's sampler or stream takes this rank's part, by its attributes or code."""
    kind = type(maker)
    if maker is None or f"{kind.__module__}.".startswith(OWN):
        return False
    held = {
        name: value
        for name, value in getattr(maker, "__dict__", {}).items()
        if isinstance(value, int)
    }
    counts = {value for name, value in held.items() if RANKS.fullmatch(name)}
    own = {value for name, value in held.items() if RANK.fullmatch(name)}
    if counts or own:
        return counts == {ranks} and own == {int(os.environ.get("RANK", "-1"))}
    names = names_used(kind, ("__iter__",))
    return any(map(RANK.fullmatch, names)) and any(map(RANKS.fullmatch, names))


def _is_share(loader: Any, sampler: Any, ranks: int) -> bool:
    """Whether a sampler has a rank's part of the data set's samples."""
    count = len(sampler)
    if not isinstance(loader.batch_size, int) and hasattr(sampler, "batch_size"):
        count *= int(sampler.batch_size)  # a batch sampler's length is of batches
    size = len(loader.dataset)
    return 0 < count <= size / ranks + max(ranks, size / ranks / 4)


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
