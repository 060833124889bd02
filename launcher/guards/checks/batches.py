"""Checks the first batches: their labels and texts, and samples that come again or to other ranks.

Digests of a bounded number of samples are compared between ranks, so that a part of a data set that
two ranks have is noticed if the part or the data set is small.
"""

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
from ...checks.between_ranks import Compared, Shared, sketched
from ...checks.finding import BATCHES, Check
from ...evidence.observations import observations
from .. import data_parallel
from ..batches import TRAINERS
from ..callers import is_called_by, user_place
from ..divided_data import digest_of, tensors_in
from .copies import Copy, copied
from .evaluations import is_training
from .first_steps import digests_of
from .reporting import is_on, report, report_here, safely, skip
from .texts import IGNORED, cut_texts, text_faults, trained_padding

TRAINER, DDP = "transformers.trainer", "torch.nn.parallel.distributed"
HOOKED = (TRAINER, DDP)
FAULTS = (
    *(data.IGNORED_LABELS, data.TRAINED_PADDING),
    *(data.SHIFTED_LABELS, data.ENDLESS_ANSWERS, data.UNTRAINED_WORDS),
    *(data.BEGUN_TWICE, data.JOINED_TEXTS),
)
"""The faults of labels, and then of texts, in the order in which a batch is asked for them."""
DRAWN = 8
"""Batches inspected per process."""
BEGUN = 8
"""Beginnings of loaders at which models are looked for."""
WORKERS = range(2, 33)
"""Numbers of worker processes whose stream is inspected."""
COMPARED, SAMPLES = 64, 512
"""Maximum batches and samples to compare between ranks."""
MOST = 256
"""Maximum batches to look at, also those of evaluations."""
EARLY = 10
"""Batches after which digests are sent for the first time."""


def install(module: ModuleType) -> None:
    """Wraps a Trainer's steps, and models' forward passes."""
    labels = Labels()

    def stepping(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if labels.is_open:
            if not labels.has_begun:
                safely(Check.DATA, labels.begin, instance)
            batch = args[1] if len(args) > 1 else kwargs.get("inputs")
            model = args[0] if args else kwargs.get("model")
            look = partial(labels.look, has_own_loss=_has_own_loss(instance))
            safely(Check.DATA, look, batch, model)
        return wrapped(*args, **kwargs)

    def constructed(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        wrapped(*args, **kwargs)
        if is_on(Check.DATA):
            labels.watch(instance)

    if module.__name__ == TRAINER:
        wrapt.wrap_function_wrapper(module, "Trainer.training_step", stepping)
    else:
        wrapt.wrap_function_wrapper(module, "DistributedDataParallel.__init__", constructed)


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
            model = None if torch.compiler.is_compiling() else data_parallel.inner(model)
            if model is None or not model.training:
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

    def __init__(self, labels: Labels | None = None) -> None:
        self._labels = labels
        self._begun = 0
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._digests: list[str] = []
        self._steps: list[int] = []
        self._streams: weakref.WeakKeyDictionary[Any, tuple[int, list[str]]]
        self._streams = weakref.WeakKeyDictionary()  # by iterator: workers, and first batches

    def _watch(self) -> None:
        """Inspects the labels that DeepSpeed's engines, FSDP's and compiled models get."""
        if self._labels is None or not self._labels.is_open or self._begun == BEGUN:
            return
        self._begun += 1
        for model in data_parallel.outermost():
            if model not in self._hooked and model not in data_parallel.wrapped:
                self._hooked.add(model)
                self._labels.watch(model)

    def begun(self, loader: Any, iterator: Any) -> None:
        """Notes whether several processes read a stream for an iterator, and looks for models."""
        self._watch()
        import torch

        is_stream = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        if is_stream and loader.num_workers in WORKERS:
            self._streams[iterator] = loader.num_workers, []

    def is_due(self, iterator: Any) -> bool:
        """Whether to look at an iterator's next batch."""
        return len(self._digests) < DRAWN or iterator in self._streams

    def draw(self, iterator: Any, batch: Any) -> None:
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


draws = Draws(Labels())


class Overlap:
    """The samples of a process's batches after its first step.

    Attributes:
        is_open: whether to take further batches.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._digests: list[int] = []
        self._looked = self._batches = 0
        self._rows = 0  # of the last batch
        self._is_whole = False  # the model takes all of a batch
        self._place = ""

    def begin(self) -> None:
        """Ends with the first epoch: its samples may come again."""
        if self._digests:
            self._end()

    def draw(self, batch: Any) -> None:
        """Takes a batch that a loader has returned."""
        self._looked += 1
        if self._looked > MOST or data_parallel.world() < 2:
            self._end()
            return
        tensor = next(tensors_in(batch), None)
        self._rows = len(tensor) if tensor is not None and tensor.ndim else 0
        if not (is_training() and self._is_whole and observations.steps_of_all()):
            return
        self._place = self._place or user_place()
        self._digests += digests_of(batch)
        self._batches += 1
        if self._batches == EARLY:
            self._send(EARLY)
        if self._batches == COMPARED or len(self._digests) >= SAMPLES:
            self._end()

    def passes(self, inputs: Any) -> None:
        """Notes whether a training model's inputs have as many samples as the last batch."""
        self._is_whole = any(tensor.shape[:1] == (self._rows,) for tensor in tensors_in(inputs))

    def _end(self) -> None:
        self.is_open = False
        self._send()

    def _send(self, step: int | None = None) -> None:
        if self._digests:
            sketch = sketched(self._digests)
            observations.send(Compared(Shared.SAMPLES, sketch, self._place, step))


overlap = Overlap()


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
