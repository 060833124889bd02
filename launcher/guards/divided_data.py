"""Reports seeds and the first training batch, so that node 0 can compare ranks' samples.

No rank waits, and no batch is drawn from a loader early.
"""

from __future__ import annotations

import hashlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ..checks.between_ranks import Compared, Shared
from ..checks.finding import Check, is_on
from ..evidence.observations import observations
from . import data_parallel
from .callers import user_place

TENSORS = 8
ELEMENTS = 1 << 16
"""Elements of each tensor of a batch in its digest."""
FIRST = 256
"""Samples of a list in its digest."""
CHOSEN = 1 << 12
"""Samples of a subset in its digest."""

Report = Callable[[Shared, str, str], None]
"""Callback for the kind of comparison, this rank's value, and the user's line."""
Look = Callable[[Any, Any], None]
"""Callback for the owner of a method that returned, and its result."""


def install(module: ModuleType) -> None:
    """Wraps functions that divide samples among ranks, or begin a loader."""
    reported: set[tuple[Shared, str]] = set()

    def report(what: Shared, value: str, place: str) -> None:
        if (what, place) not in reported and is_on(Check.DATA, os.environ):
            reported.add((what, place))
            observations.send(Compared(what, value, place))

    path, look = LOOKS[module.__name__]
    looked = look(report)

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        with suppress(Exception):  # the training itself fails on odd arguments
            looked(instance, result)
        return result

    wrapt.wrap_function_wrapper(module, path, wrapper)


def _prepared(report: Report, accelerator: Any, loader: Any) -> None:
    """Reports the seed with which each rank shuffles all samples before taking its part."""
    data = sys.modules["accelerate.data_loader"]
    sampler = data.get_sampler(loader)
    is_divided = isinstance(loader, data.DataLoaderShard) and accelerator.num_processes > 1
    if is_divided:
        _report_subset(report, getattr(loader, "dataset", None))
    if is_divided and isinstance(sampler, data.SeedableRandomSampler):
        report(Shared.SEED, str(sampler.initial_seed), user_place())


def _sampled(report: Report, sampler: Any, _result: Any) -> None:
    """Reports the seed of torch's DistributedSampler, if it divides the samples among all ranks."""
    if sampler.num_replicas == data_parallel.world() > 1:
        _report_subset(report, sampler.dataset)
        if sampler.shuffle:
            report(Shared.SEED, str(sampler.seed), user_place())


def _report_subset(report: Report, data: Any) -> None:
    """Reports a digest of a subset's first samples."""
    import torch

    if isinstance(data, torch.utils.data.Subset):
        first = [int(index) for index in data.indices[:CHOSEN]]
        digest = hashlib.blake2b(repr((len(data), first)).encode(), digest_size=16)
        report(Shared.SUBSET, digest.hexdigest(), user_place())


def _watching(report: Report) -> Look:
    """Reports the first training batch of an undivided loader, once.

    The batch is taken at the model, as a loop may itself take the rank's part of a loader's batch.
    """
    import torch

    place = ""  # of the loader that has begun last; empty if it is divided
    samples, rows = "", 0  # a digest of its data set, and the samples of a batch
    what = Shared.BATCH
    handles: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def begun(loader: Any, _iterator: Any) -> None:
        nonlocal place, what, samples, rows
        is_stream = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        what = Shared.STREAM if is_stream else Shared.BATCH
        place = user_place() if _is_undivided(loader, is_stream=is_stream) else ""
        new = [model for model in data_parallel.dividing() if place and model not in handles]
        samples = ""
        if new and not is_stream:
            with suppress(Exception):  # a data set may be anything
                samples = digest_of_all(loader.dataset)
        rows = loader.batch_size or 0
        for model in new:
            handles[model] = model.register_forward_pre_hook(seen, with_kwargs=True)

    def seen(model: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():  # then the rest isn't compiled
            return
        with suppress(Exception):  # a batch may be anything
            if model.training and torch.is_grad_enabled():
                handles[model].remove()
                if place and (digest := digest_of((args, kwargs))):
                    is_whole = any(one.shape[:1] == (rows,) for one in tensors_in((args, kwargs)))
                    report(what, f"{digest} {samples if is_whole else ''}".strip(), place)

    return begun


def _is_undivided(loader: Any, *, is_stream: bool) -> bool:
    """Whether a loader takes batches from all samples in torch's order.

    Also true of a stream, which accelerate's loaders divide among ranks.
    """
    import torch.utils.data as data

    of_some = data.WeightedRandomSampler, data.SubsetRandomSampler
    if is_stream:
        return not type(loader).__module__.startswith("accelerate.")
    return (
        type(loader.batch_sampler) is data.BatchSampler
        and type(loader.sampler) in (data.RandomSampler, data.SequentialSampler, *of_some)
        and len(loader.dataset) > (loader.batch_size or 0)
    )


def digest_of_all(data: Any) -> str:
    """Digest of what a data set holds of all of its samples; empty if it can't be read.

    Those of ranks that were given different samples differ.
    """
    import torch

    size = len(data)
    digest, is_whole = hashlib.blake2b(f"{type(data)} {size}".encode(), digest_size=16), False
    values = [data] if isinstance(data, list | tuple) else list(vars(data).values())
    for value in values:
        for part in value if isinstance(value, tuple) and len(value) < TENSORS else (value,):
            if isinstance(part, torch.Tensor) or type(part).__module__ == "numpy":
                flat = torch.as_tensor(part).detach().contiguous().flatten()[:ELEMENTS].cpu()
                digest.update(flat.view(torch.uint8).numpy().tobytes())
            elif isinstance(part, list | tuple | range) and all(map(_is_plain, part[:1])):
                digest.update(repr(part[:FIRST])[:ELEMENTS].encode())
            elif _is_plain(part):
                digest.update(repr(part)[:ELEMENTS].encode())
            else:
                continue
            is_whole |= isinstance(part, Sized) and not isinstance(part, str) and len(part) >= size
    return digest.hexdigest() if is_whole else ""


def _is_plain(value: object, depth: int = 3) -> bool:
    """Whether a value's text says all of it, and is cheap: a tensor's may wait for a device."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_plain(part, depth - 1) for part in value[:FIRST])
    return value is None or isinstance(value, str | bytes | int | float | Path)


def digest_of(batch: object, elements: int = ELEMENTS) -> str:
    """Digest of a batch's tensors; empty if all are constant, such as zeros."""
    import torch

    samples = [tensor.detach() for tensor in islice(tensors_in(batch), TENSORS)]
    if not any(
        tensor.numel() > 1 and bool((tensor != tensor.flatten()[0]).any()) for tensor in samples
    ):
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in samples:
        part = tensor.contiguous().flatten()[:elements].cpu()
        digest.update(part.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def tensors_in(batch: object) -> Iterator[Any]:
    """The tensors in a possibly nested batch."""
    import torch

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping | list | tuple):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from tensors_in(part)


LOOKS: dict[str, tuple[str, Callable[[Report], Look]]] = {
    "accelerate.accelerator": (
        "Accelerator.prepare_data_loader",
        lambda report: partial(_prepared, report),
    ),
    "torch.utils.data.distributed": (
        "DistributedSampler.__init__",
        lambda report: partial(_sampled, report),
    ),
    "torch.utils.data.dataloader": ("DataLoader.__iter__", _watching),
}
"""Watched calls by module."""
HOOKED = tuple(LOOKS)
