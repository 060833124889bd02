"""Inspects the data sets of loaders that begin: their weights, attributes, and subsets."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ...checks import sampling
from ...checks.finding import Check, first_of
from ...core.quantities import count_of
from ..callers import user_place
from .evaluations import Phase
from .reporting import is_on, report, report_here, safely
from .samplers import samplers_of
from .user_source import assigned_through, attributes_read

HOOKED = ("torch.utils.data.dataset",)
TRANSFORMS = ("transform", "transforms")
"""Usual attributes for what is made of a sample."""
MAKING = ("__getitem__", "__getitems__", "__iter__")
"""Methods that make samples."""
PLAIN = (bool, int, float, str)
"""Types whose values workers have a copy of."""
MOST = 1 << 17
"""Maximum indices of a subset to compare."""
ASSIGNMENTS = 2
"""Statements that set a transform through a subset, one for each."""


class DataSets:
    """The data sets of the loaders so far."""

    def __init__(self) -> None:
        self._split: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()
        self._sent: weakref.WeakKeyDictionary[Any, tuple[Any, dict[str, Any]]]
        self._sent = weakref.WeakKeyDictionary()  # by loader: its workers' iterator, and attributes
        self._weighted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._trained: Any = None  # the Subset of the last training, weakly
        self._transforms: dict[str, int] = {}  # those of its data set then
        self._compared: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def split(self, subset: Any) -> None:
        """Notes the transforms of a data set that is split."""
        with suppress(TypeError):  # it can't be referred to weakly
            self._split.setdefault(subset.dataset, _transforms_of(subset.dataset))

    def begin(self, loader: Any, now: Phase) -> None:
        """Looks at a loader that begins."""
        if now is Phase.TRAINING:
            self._look_at_weights(loader)
        self._look_at_subsets(loader.dataset, now)

    def _look_at_weights(self, loader: Any) -> None:
        """Reports weights of classes among those of samples, once a loader."""
        from torch.utils import data

        if loader in self._weighted:
            return
        self._weighted.add(loader)
        for sampler in samplers_of(loader):
            if type(sampler) is data.WeightedRandomSampler:
                kinds = data.TensorDataset, data.Subset, data.ConcatDataset
                is_of_torch = isinstance(loader.dataset, kinds)
                sizes = len(sampler.weights), len(loader.dataset)
                report_here(sampling.weighted_by_class(*sizes, certain=is_of_torch))

    def begun(self, loader: Any, iterator: Any, now: Phase) -> None:
        """Reports attributes that have changed since persistent workers began."""
        if now is not Phase.TRAINING or not (loader.num_workers and loader.persistent_workers):
            return
        held = getattr(loader.dataset, "__dict__", {})
        plain = {name: value for name, value in held.items() if type(value) in PLAIN}
        of, sent = self._sent.get(loader, (None, plain))
        if of is None or of() is not iterator:  # its workers have begun just now
            self._sent[loader] = weakref.ref(iterator), plain
            return
        changed = [name for name, value in plain.items() if sent.get(name, value) != value]
        if changed and not any(map(_is_shared, held.values())):
            read = attributes_read(type(loader.dataset), MAKING)
            found = [name for name in changed if name in read]
            if found:
                report_here(sampling.KEPT_BY_WORKERS.found(names=first_of(found)))

    def _look_at_subsets(self, data: Any, now: Phase) -> None:
        """Compares an evaluation's subset with that of the last training."""
        from torch.utils.data import Subset

        if now is Phase.UNKNOWN or type(data) is not Subset:
            return
        if now is Phase.TRAINING:
            self._trained, self._transforms = weakref.ref(data), _transforms_of(data.dataset)
            return
        trained = self._trained and self._trained()
        if trained is None or trained is data or trained.dataset is not data.dataset:
            return
        begun = None
        with suppress(TypeError):
            begun = self._split.get(data.dataset)
        for name, value in _transforms_of(data.dataset).items():
            before = (begun or {}).get(name, value)
            is_set_for_both = before != value == self._transforms.get(name)
            was_one = before != id(None) or assigned_through("dataset", name) >= ASSIGNMENTS
            if is_set_for_both and was_one:
                report(sampling.SHARED_TRANSFORM.found(name=name), where=user_place())
        known = self._compared.get(data)
        is_known = known is not None and known() is trained
        if not is_known and len(trained) + len(data) <= MOST:
            self._compared[data] = weakref.ref(trained)
            common = sampling.overlap_of(_listed(trained.indices), _listed(data.indices))
            if common:
                samples = count_of(len(data), "sample")
                report_here(sampling.SHARED_SAMPLES.found(common=common, samples=samples))


data_sets = DataSets()


def install(module: ModuleType) -> None:
    """Watches how data sets are split."""

    def split(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        wrapped(*args, **kwargs)
        if is_on(Check.DATA):
            safely(Check.DATA, data_sets.split, instance)

    wrapt.wrap_function_wrapper(module, "Subset.__init__", split)


def _transforms_of(data: Any) -> dict[str, int]:
    """The identities of a data set's transforms."""
    held = getattr(data, "__dict__", {})
    return {name: id(held[name]) for name in TRANSFORMS if name in held}


def _listed(indices: Any) -> Sequence[int]:
    return indices.tolist() if hasattr(indices, "tolist") else list(indices)


def _is_shared(value: Any) -> bool:
    """Whether an attribute is in memory that workers share."""
    import torch

    is_tensor = isinstance(value, torch.Tensor)
    of_python = type(value).__module__.startswith("multiprocessing.")
    return value.is_shared() if is_tensor else of_python
