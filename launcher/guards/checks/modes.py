"""Checks that no model is trained in evaluation mode: in the first steps, and after evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, ClassVar

import wrapt

from ...checks import built
from ..callers import user_place
from .models import known_models, parameters_of
from .reporting import report

HOOKED = ("torch.nn.modules.module",)
FIRST = 10
"""Number of first steps to inspect."""


class Mode:
    """The mode of the models that an optimizer trains.

    Attributes:
        evaluations: number of calls of `Module.eval` in this process.
    """

    evaluations: ClassVar[int] = 0

    def __init__(self) -> None:
        self._was_evaluating = False
        self._seen = 0

    def is_due(self, step: int) -> bool:
        """Whether to look before a step: an evaluation may have left its mode."""
        return step <= FIRST or self._was_evaluating or self._seen != Mode.evaluations

    def look(self, optimizer: Any, step: int) -> None:
        """Reports evaluation mode before two steps in a row."""
        self._seen = Mode.evaluations
        evaluating = [model for model in known_models() if not model.training]
        held = {id(each) for each in parameters_of(optimizer)} if evaluating else ()
        layers = [
            name
            for model in evaluating
            if any(id(each) in held for each in model.parameters())
            for name in _acting_otherwise(model)
        ]
        if layers and self._was_evaluating:
            report(built.evaluating(layers, step, user_place()))
        self._was_evaluating = bool(layers) and not self._was_evaluating


def install(module: ModuleType) -> None:
    """Counts evaluations."""

    def evaluated(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        Mode.evaluations += 1
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "Module.eval", evaluated)


def _acting_otherwise(model: Any) -> Iterator[str]:
    """Names of layers in evaluation mode that act otherwise in training."""
    from torch import nn

    dropouts = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout
    norms = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm
    for name, layer in model.named_modules():
        is_off = isinstance(layer, dropouts) and layer.p > 0
        is_fixed = isinstance(layer, norms) and layer.track_running_stats
        if not layer.training and (is_off or is_fixed):
            yield name
