"""Checks layers' modes: evaluation mode while training, training mode while frozen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import wrapt

from ...checks import built
from ...evidence.observations import observations
from .models import known_models, parameters_of
from .reporting import report, report_here

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
        held = {id(param) for param in parameters_of(optimizer)} if evaluating else ()
        layers = [
            name
            for model in evaluating
            if any(id(param) in held for param in model.parameters())
            for name in _acting_otherwise(model)
        ]
        if layers and self._was_evaluating:
            report_here(built.evaluating(layers, step))
        self._was_evaluating = bool(layers) and not self._was_evaluating


class Evaluations:
    """Evaluations of models in training mode: loaders that begin without gradients.

    Attributes:
        left: how many further ones to look at.
    """

    def __init__(self) -> None:
        self.left = 2
        self._hooks: list[Any] = []

    def begin(self) -> None:
        """Watches the models of a loop for which a loader begins, if it is an evaluation."""
        import torch

        self._end()
        if torch.is_grad_enabled() or not observations.steps_of_all():
            return
        for model in known_models():
            layers = list(_acting_otherwise(model, is_training=True)) if model.training else ()
            if layers:
                see = partial(self._see, layers)
                self._hooks.append(model.register_forward_pre_hook(see))
        self.left -= bool(self._hooks)

    def _see(self, layers: Sequence[str], model: Any, _args: Any) -> None:
        """Reports a forward pass, which only the watched loop can have begun."""
        import torch

        if not torch.compiler.is_compiling() and model.training and not torch.is_grad_enabled():
            self._end()
            report_here(built.not_evaluating(layers, observations.steps_of_all() or 0))

    def _end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


evaluations = Evaluations()


def install(module: ModuleType) -> None:
    """Counts evaluations."""

    def evaluated(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        Mode.evaluations += 1
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "Module.eval", evaluated)


def look_at_frozen(
    models: Iterable[Any], of_others: Collection[int], step: int, where: str
) -> None:
    """Reports frozen batch norms in training mode, whose statistics move with the data.

    Args:
        models: the models, without wrappers.
        of_others: ids of other optimizers' parameters, which a GAN freezes for a step.
        step: the inspected step.
        where: the user's line that made the optimizer.
    """
    for model in models:
        layers = [
            name
            for name, layer in model.named_modules()
            if layer.training
            and _follows(layer)
            and layer.affine
            and layer.momentum != 0
            and not any(
                param.requires_grad or id(param) in of_others for param in layer.parameters()
            )
        ]
        report(built.moving(layers, step, where))


def _acting_otherwise(model: Any, *, is_training: bool = False) -> Iterator[str]:
    """Names of layers in a mode, by default evaluation, that act otherwise in the other."""
    from torch import nn

    dropouts = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout
    for name, layer in model.named_modules():
        is_off = isinstance(layer, dropouts) and layer.p > 0
        if layer.training is is_training and (is_off or _follows(layer)):
            yield name


def _follows(layer: Any) -> bool:
    """Whether a layer's statistics follow the data in training mode."""
    from torch import nn

    norms = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm
    return isinstance(layer, norms) and layer.track_running_stats
