"""Tells evaluations from training; checks that they leave modes and weights as they were.

Sampling weights after every step would cost too much, so the steps before evaluations are foreseen
from the distance of the last two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import wrapt

from ...checks import built, updated
from ...checks.finding import Finding
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from .copies import Copy, copied, local, sample, spread
from .models import known_models, names_of, parameters_of
from .replicas import unjudged
from .reporting import report, report_here

HOOKED = ("torch.nn.modules.module",)
FIRST = 10
"""Number of first steps to inspect."""
MOST = 2
"""Evaluations to foresee."""
STEADY = 6
"""Steps before one in which nothing but the optimizer may change weights, as an average of models
or a mask does."""


class Phase(Enum):
    """What a loop does with the batches of a loader."""

    TRAINING = auto()
    EVALUATION = auto()
    UNKNOWN = auto()
    """Some of its models are in training mode."""


def phase() -> Phase:
    """The phase of a loop that begins now."""
    import torch

    models = list(map(data_parallel.inner, data_parallel.dividing())) or known_models()
    if not models:
        return Phase.UNKNOWN
    if not torch.is_grad_enabled() or not any(model.training for model in models):
        return Phase.EVALUATION
    return Phase.TRAINING if all(model.training for model in models) else Phase.UNKNOWN


Wait = Callable[[int, Callable[[], None]], None]
"""Asks for a call once a loader that begins has given this many batches."""


def is_training() -> bool:
    """Whether all models whose samples are divided among ranks are in a training."""
    import torch

    models = map(data_parallel.inner, data_parallel.dividing())
    return torch.is_grad_enabled() and all(model.training for model in models)


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
            report_here(built.evaluating(layers), step=step)
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
            see = partial(self._see, layers)
            for one in {model, data_parallel.called(model)} if layers else ():
                self._hooks.append(one.register_forward_pre_hook(see))
        self.left -= bool(self._hooks)

    def _see(self, layers: Sequence[str], model: Any, _args: Any) -> None:
        """Reports a forward pass, which only the watched loop can have begun."""
        import torch

        if torch.compiler.is_compiling() or torch.is_grad_enabled():
            return
        if data_parallel.inner(model).training:
            self._end()
            report_here(built.not_evaluating(layers), step=observations.steps_of_all() or 0)

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


def frozen(models: Iterable[Any], of_others: Collection[int]) -> Iterator[Finding | None]:
    """Reports frozen batch norms in training mode, whose statistics move with the data.

    Args:
        models: the models, without wrappers.
        of_others: ids of other optimizers' parameters, which a GAN freezes for a step.
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
        yield built.moving(layers)


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


@dataclass(frozen=True, slots=True)
class Kept:
    """Samples of weights after a step.

    Attributes:
        step: its number.
        tensors: the sampled parameters.
        values: their values then.
    """

    step: int
    tensors: tuple[Any, ...]
    values: Copy


class LeftWeights:
    """The weights of one optimizer around evaluations."""

    def __init__(self) -> None:
        self._evaluations = Mode.evaluations
        self._last = self._every = 0  # the step before the last evaluation, and their distance
        self._left = MOST
        self._kept: Kept | None = None
        self._pair: tuple[Kept, Copy] | None = None  # the same weights before the next step
        self._steady = 0  # pairs without an evaluation between them, and without a change
        self._is_moved = False  # something else changes the weights as well
        self._waiting: list[tuple[Kept, Copy, str]] = []

    def before(self, steps: int) -> None:
        """Samples the weights again before the step that follows a sampled one.

        Args:
            steps: steps so far.
        """
        kept, self._kept = self._kept, None
        is_after = Mode.evaluations != self._evaluations and steps > 0
        self._evaluations = Mode.evaluations
        now = None if kept is None else _copied(kept.tensors)
        if kept is not None and now is not None:
            if is_after:
                self._waiting.append((kept, now, user_place()))
            else:
                self._pair = kept, now
        if is_after:
            self._last, self._every = steps, steps - self._last

    def after(self, optimizer: Any, steps: int) -> None:
        """Samples the weights after the steps that a foreseen evaluation follows.

        Args:
            optimizer: the optimizer.
            steps: steps so far.
        """
        self._read(optimizer)
        foreseen = self._last + self._every
        if not self._every or not self._left or not foreseen - STEADY <= steps <= foreseen:
            return
        if self._is_moved or unjudged:
            return
        if steps == foreseen:
            self._left -= 1
        held = [p for p in parameters_of(optimizer) if p.requires_grad and p.grad is not None]
        tensors = tuple(p for p in spread(held) if sample(local(p.detach())) is not None)
        values = _copied(tensors) if tensors else None
        self._kept = None if values is None else Kept(steps, tensors, values)

    def _read(self, optimizer: Any) -> None:
        """Judges samples that have arrived."""
        if self._pair is not None and self._pair[1].is_there:
            kept, now = self._pair
            self._pair = None
            self._is_moved |= bool(_exchanged(kept, now))
            self._steady += 1
        while self._waiting and self._waiting[0][1].is_there:
            kept, now, where = self._waiting.pop(0)
            others = _exchanged(kept, now)
            is_steady = self._steady > 0 and not self._is_moved
            if is_steady and 2 * len(others) > len(kept.tensors):
                names = names_of(optimizer)
                held = [names[id(kept.tensors[place])] for place in others]
                report(updated.left_by_evaluation(held), where=where, step=kept.step)


def _exchanged(kept: Kept, now: Copy) -> list[int]:
    """The places of tensors whose values have changed, beyond rounding in their dtype."""
    import torch

    rounding = [4 * torch.finfo(tensor.dtype).eps for tensor in kept.tensors]
    return updated.exchanged(kept.values.parts(), now.parts(), rounding)


def _copied(tensors: tuple[Any, ...]) -> Copy | None:
    return copied([sample(local(tensor.detach())) for tensor in tensors])
