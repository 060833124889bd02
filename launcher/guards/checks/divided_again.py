"""Detects data that accelerate divides among the ranks though its sampler or stream has done so."""

from __future__ import annotations

import os
import re
from types import ModuleType
from typing import Any

import wrapt

from ...checks import sampling
from ...checks.finding import Check, Finding
from .. import data_parallel
from .class_source import used_by
from .phases import samplers_of
from .reporting import is_on, report_here, safely

HOOKED = ("accelerate.accelerator",)
RANK = re.compile(r"_?(global_|process_|data_parallel_|dp_)?rank|get_rank|process_index|shard_id")
RANKS = re.compile(
    r"_?(global_|dp_)?world(_size)?|get_world_size|_?num_(processes|replicas|ranks|shards)"
)
"""Whole names for this rank, and for the number of ranks."""
OWN = ("torch.", "accelerate.", "datasets.")
"""Packages whose samplers and streams aren't looked at: accelerate knows them."""


def install(module: ModuleType) -> None:
    """Wraps the function that prepares a loader."""

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
    data = loader.dataset
    if isinstance(data, IterableDataset):
        if is_by_rank(data, ranks):
            report_here(_found("stream", data, ranks))
        return
    for sampler in samplers_of(loader):
        if is_by_rank(sampler, ranks) and _is_share(loader, sampler, ranks):
            report_here(_found("sampler", sampler, ranks))


def _found(what: str, maker: Any, ranks: int) -> Finding:
    return sampling.DIVIDED_AGAIN.found(what=what, kind=type(maker).__name__, ranks=ranks)


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
    names = used_by(kind, ("__iter__",)).names
    return any(map(RANK.fullmatch, names)) and any(map(RANKS.fullmatch, names))


def _is_share(loader: Any, sampler: Any, ranks: int) -> bool:
    """Whether a sampler has a rank's part of the data set's samples."""
    count = len(sampler)
    if not isinstance(loader.batch_size, int) and hasattr(sampler, "batch_size"):
        count *= int(sampler.batch_size)  # a batch sampler's length is of batches
    size = len(loader.dataset)
    return 0 < count <= size / ranks + max(ranks, size / ranks / 4)
