"""The models that a worker holds beside the trained one: a teacher, a reference, a critic."""

from __future__ import annotations

import weakref
from typing import Any

from ..core.settings import Fact, Value


class OtherModels:
    """Counts them, each once, however often and in whatever wrapper it is seen."""

    def __init__(self) -> None:
        self._parameters: dict[int, weakref.ref[Any]] = {}
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
        size = 0
        for parameter in model.parameters():
            self._parameters[id(parameter)] = weakref.ref(parameter)
            size += size_of(parameter)
        return size

    def _is_held(self, parameter: Any) -> bool:
        """Whether an earlier model has it; the id of one that is gone may be used again."""
        reference = self._parameters.get(id(parameter))
        return reference is not None and reference() is parameter


def size_of(parameter: Any) -> int:
    """Elements of a whole parameter, even where ZeRO-3 has partitioned it."""
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())
