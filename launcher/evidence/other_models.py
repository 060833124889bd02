"""Counts a worker's models beside the trained one: a teacher, a reference, a critic."""

from __future__ import annotations

import weakref
from typing import Any

from ..core.settings import Fact, Value


class OtherModels:
    """Counts each model once, even if seen several times or in wrappers."""

    def __init__(self) -> None:
        # Keyed by the parameter's id, valid while its module lives: `swap_tensors`, which moves
        # FSDP2's models, refuses weakly referenced parameters.
        self._owners: dict[int, weakref.ref[Any]] = {}
        self._first = -1
        self._counted: dict[str, Value] = {}

    def begin(self, model: Any) -> None:
        """Remembers the trained model."""
        self._first = self._hold(model)

    def add(self, model: Any, *, is_trained: bool) -> dict[str, Value]:
        """Facts changed by another model.

        A model that shares parameters with an earlier one is the same, wrapped or extended. The
        first frozen one of the trained model's size is its copy.
        """
        if any(self._is_held(parameter) for parameter in model.parameters()):
            return {}
        size = self._hold(model)
        copied = Fact.REFERENCE_MODEL.value
        if size == self._first and not is_trained and copied not in self._counted:
            news: dict[str, Value] = {copied: True}
        else:
            name = (Fact.TRAINED_BESIDE if is_trained else Fact.FROZEN_BESIDE).value
            news = {name: int(self._counted.get(name, 0)) + size} if size else {}
        self._counted |= news
        return news

    def _hold(self, model: Any) -> int:
        """Remembers a model's parameters; returns their number of elements."""
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                self._owners[id(parameter)] = weakref.ref(module)
        return sum(map(size_of, model.parameters()))

    def _is_held(self, parameter: Any) -> bool:
        """Whether an earlier live model has the parameter; ids may be reused."""
        owner = self._owners.get(id(parameter))
        return owner is not None and owner() is not None


def size_of(parameter: Any) -> int:
    """Elements of the whole parameter, even if ZeRO-3 partitions it."""
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())
