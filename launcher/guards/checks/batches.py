"""Checks the first batches for ignored labels and repeated data."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks import data
from ...checks.finding import BATCHES, Check
from ...core.private_names import LOADER_ITERATOR
from ...evidence.observations import observations
from ..batches import TRAINERS
from ..callers import is_called_by, user_place
from ..divided_data import digest_of, tensors_in
from .copies import Copy, copied
from .evaluations import evaluations
from .first_steps import first_steps
from .losses import first_losses
from .overlap import overlap
from .planned_epochs import epoch
from .reporting import is_on, report, report_here, safely, skip
from .texts import IGNORED, cut_texts, text_faults, trained_padding

TRAINER, DDP, LOADER = (
    "transformers.trainer",
    "torch.nn.parallel.distributed",
    LOADER_ITERATOR.module,
)
HOOKED = (TRAINER, DDP, LOADER)
FAULTS = (
    *(data.IGNORED_LABELS, data.TRAINED_PADDING),
    *(data.SHIFTED_LABELS, data.ENDLESS_ANSWERS, data.UNTRAINED_WORDS),
    *(data.BEGUN_TWICE, data.JOINED_TEXTS),
)
"""The faults of labels, and then of texts, in the order in which a batch is asked for them."""
DRAWN = 8
"""Batches inspected per process."""
WORKERS = range(2, 33)
"""Numbers of worker processes whose stream is inspected."""


def install(module: ModuleType) -> None:
    """Wraps models' forward passes and loaders' iterators."""
    match module.__name__:
        case name if name == TRAINER:
            labels = Labels()

            def stepping(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
                if labels.is_open:
                    if not labels.has_begun:
                        safely(Check.DATA, labels.begin, instance)
                    batch = args[1] if len(args) > 1 else kwargs.get("inputs")
                    model = args[0] if args else kwargs.get("model")
                    loss = _has_own_loss(instance)
                    look = partial(labels.look, has_own_loss=loss)
                    safely(Check.DATA, look, batch, model)
                return wrapped(*args, **kwargs)

            wrapt.wrap_function_wrapper(module, "Trainer.training_step", stepping)
        case name if name == DDP:
            labels = Labels()

            def constructed(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
                wrapped(*args, **kwargs)
                if is_on(Check.DATA):
                    labels.watch(instance)

            wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", constructed)
        case _:
            with observations.going_on():
                LOADER_ITERATOR.of(module)
                draws = Draws()
                wrapt.wrap_function_wrapper(module, f"{LOADER_ITERATOR.path}.__next__", draws.next)
                wrapt.wrap_function_wrapper(module, "DataLoader.__iter__", draws.begin)


class Labels:
    """Which labels of the first batches count, read asynchronously."""

    def __init__(self) -> None:
        self.is_open = True
        self.has_begun = False
        self._copies: list[Copy] = []
        self._where = ""

    def begin(self, trainer: Any) -> None:
        """Inspects the texts of a Trainer's data set."""
        self.has_begun = True
        if is_on(Check.DATA):
            report(cut_texts(trainer.train_dataset, trainer.model), where=user_place())

    def watch(self, wrapper: Any) -> None:
        """Inspects a model's first training batches."""
        import torch

        def see(model: Any, _args: Any, kwargs: Mapping[str, Any]) -> None:
            if torch.compiler.is_compiling() or not model.training:
                return
            is_within = is_called_by("transformers")  # a Trainer, whose step was seen
            look = partial(self.look, has_own_loss=is_within)
            safely(Check.DATA, look, kwargs, model)
            if not self.is_open:
                handle.remove()

        handle = wrapper.register_forward_pre_hook(see, with_kwargs=True)

    def look(self, batch: Any, model: Any = None, *, has_own_loss: bool = False) -> None:
        """Begins to read which labels of a batch count; judges earlier batches.

        Args:
            batch: the model's arguments, by name.
            model: the model or its wrapper.
            has_own_loss: whether another loss than the model's may be used.
        """
        labels: Any = batch.get("labels") if isinstance(batch, Mapping) else None
        is_whole = hasattr(labels, "is_floating_point") and not labels.is_floating_point()
        if not is_whole or not is_on(Check.DATA):
            self.is_open = False
            return
        if len(self._copies) < BATCHES:
            self._where = self._where or user_place()
            padding = trained_padding(batch, labels, None if has_own_loss else model)
            facts = [(labels == IGNORED).all(), padding, *text_faults(batch, labels, model)]
            copy = copied([fact.float().reshape(1) for fact in facts])
            if copy is None:
                skip(Check.DATA, "a graph of the device is being captured")
                self.is_open = False
                return
            self._copies.append(copy)
        if len(self._copies) == BATCHES and all(copy.is_there for copy in self._copies):
            self.is_open = False
            batches = ([bool(part[0]) for part in copy.parts()] for copy in self._copies)
            for fault, shown in zip(FAULTS, zip(*batches, strict=False), strict=False):
                report(fault.judged(shown), where=self._where)


class Draws:
    """Loaders' first batches, and the optimizer steps before each."""

    def __init__(self) -> None:
        self._digests: list[str] = []
        self._steps: list[int] = []
        self._streams: weakref.WeakKeyDictionary[Any, tuple[int, list[str]]]
        self._streams = weakref.WeakKeyDictionary()  # by iterator: workers, and first batches

    def begin(self, wrapped: Any, loader: Any, args: Any, kwargs: Any) -> Any:
        """Begins an iterator, noting whether several processes read a stream for it."""
        iterator = wrapped(*args, **kwargs)
        if is_on(Check.DATA):
            safely(Check.DATA, self._note, loader, iterator)
            safely(Check.DATA, first_losses.watch)
        with suppress(TypeError):
            epoch.begin(loader)
        if overlap.is_open and is_on(Check.DATA):
            safely(Check.DATA, overlap.begin)
        if evaluations.left and is_on(Check.TRAINED):
            safely(Check.TRAINED, evaluations.begin)
        return iterator

    def _note(self, loader: Any, iterator: Any) -> None:
        import torch

        is_stream = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        if is_stream and loader.num_workers in WORKERS:
            self._streams[iterator] = loader.num_workers, []

    def next(self, wrapped: Any, iterator: Any, args: Any, kwargs: Any) -> Any:
        """Returns the next batch, inspecting the first few."""
        batch = wrapped(*args, **kwargs)
        is_open = len(self._digests) < DRAWN or iterator in self._streams
        if is_open and is_on(Check.DATA):
            safely(Check.DATA, self._look, iterator, batch)
        if first_steps.is_open and is_on(Check.OURS):
            safely(Check.OURS, first_steps.draw, batch)
        if overlap.is_open and is_on(Check.DATA):
            safely(Check.DATA, overlap.draw, batch)
        return batch

    def _look(self, iterator: Any, batch: Any) -> None:
        """Inspects a batch of a loader with several."""
        if iterator in self._streams:
            self._look_at_stream(batch, *self._streams[iterator])
            return
        with suppress(TypeError):  # a stream has no length
            if len(iterator) < 2:
                return
        self._digests.append(digest_of(batch, elements=1024) if _has_rows(batch) else "")
        self._steps.append(observations.steps_of_all() or 0)
        report_here(data.same_batch(self._digests, self._steps))

    def _look_at_stream(self, batch: Any, workers: int, digests: list[str]) -> None:
        """Inspects a batch that one of several processes has read from a stream."""
        if len(digests) < 2 * workers:
            is_host = all(tensor.device.type == "cpu" for tensor in tensors_in(batch))
            digests.append(digest_of(batch, elements=1024) if is_host else "")
            report_here(data.read_by_all(digests, workers))


def _has_own_loss(trainer: Any) -> bool:
    """Whether a Trainer's loss is neither the model's nor made from it."""
    compute_loss = inspect.unwrap(type(trainer).compute_loss)
    is_packages = compute_loss.__module__.partition(".")[0] in TRAINERS
    asks = is_packages or "super" in compute_loss.__code__.co_names
    return not asks or getattr(trainer, "compute_loss_func", None) is not None


def _has_rows(batch: Any) -> bool:
    """Whether a batch on the host has differing samples; otherwise equal batches prove nothing."""
    for tensor in tensors_in(batch):
        if tensor.device.type != "cpu" or tensor.ndim < 1 or len(tensor) < 2:
            continue
        if bool((tensor[0] != tensor[-1]).any()):
            return True
    return False
