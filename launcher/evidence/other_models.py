"""The models that a worker holds beside the trained one: a teacher, a reference, a critic."""

from __future__ import annotations

import weakref
from typing import Any

from ..core.settings import Fact, Value


class OtherModels:
    """Counts each once, even if seen several times or in wrappers."""

    def __init__(self) -> None:
        # By the parameter's id, which is its own while its module lives: `swap_tensors`, with which
        # FSDP2's models are moved, refuses a parameter that anybody holds a weak reference to.
        self._owners: dict[int, weakref.ref[Any]] = {}
        self._first = -1
        self._counted: dict[str, Value] = {}

    def begin(self, model: Any) -> None:
        """Remembers the model that is trained."""
        self._first = self._hold(model)

    def add(self, model: Any, *, is_trained: bool) -> dict[str, Value]:
        """The facts that another model changes.

        One that shares parameters with an earlier model is that one, wrapped or extended. The first
        frozen one of the trained model's size is its copy.
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
        """Remembers a model's parameters; returns the number of their elements."""
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                self._owners[id(parameter)] = weakref.ref(module)
        return sum(map(size_of, model.parameters()))

    def _is_held(self, parameter: Any) -> bool:
        """Whether an earlier model has it; the id of one that is gone may be used again."""
        owner = self._owners.get(id(parameter))
        return owner is not None and owner() is not None


def size_of(parameter: Any) -> int:
    """Elements of a whole parameter, even if ZeRO-3 has partitioned it."""
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())
