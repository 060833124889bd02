"""Checks an optimizer's parameters and gradients in its first steps and few later ones."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built, trained, updated
from ...checks.between_ranks import Shared
from ...checks.finding import Check, Finding
from ...core.choices import Engine
from ...core.private_names import SKIP_CODE
from ...core.settings import Fact
from ...evidence.observations import observations
from ..callers import user_place
from ..optimizer import steps
from . import (
    adapters,
    dtypes,
    early_steps,
    emptied,
    evaluations,
    gradients,
    held_parameters,
    pretrained,
    sampled_gradients,
    saves,
    updates,
)
from .models import held_by, known_models, names_of, parameters_in, parameters_of
from .replicas import Replicas, beside_shards, buffers_of_ddp, replicated_by_ddp
from .reporting import is_on, report, report_here, safely, skip
from .resumes import resumes
from .schedules import schedules

HOOKED = ("torch.optim.optimizer", SKIP_CODE.module)
FIRST = 10
"""Number of first steps whose gradients are inspected."""
SEVERAL = 8
"""Maximum optimizers to check for frozen parameters: a loop may make one for each parameter."""
VALUES = (1, 2, 3, 4, 5, 10, 100, 1000)
"""Steps with sampled values, followed by every 1,000th."""
CHECKS = (
    *(Check.TRAINED, Check.REPLICAS, Check.GRADIENTS, Check.PRECISION),
    *(Check.SCHEDULE, Check.SAVED, Check.RESUMED),
)


class Watch:
    """Observations of an optimizer.

    Attributes:
        steps: number of steps so far.
        where: the user's line that created it.
        made_with: ids of the parameters that it had then, before an engine made others of them.
    """

    def __init__(self, optimizer: Any) -> None:
        self.steps = 0
        self.where = user_place()
        self.made_with = frozenset(map(id, parameters_of(optimizer)))
        self._next = 1
        self._had: set[int] = set()  # ids of the parameters that have had a gradient
        schedules.optimizers[optimizer] = self
        models = known_models() if _are_few() else ()
        frozen = ((id(p), name) for _, name, p in parameters_in(models) if not p.requires_grad)
        self._frozen = dict(frozen)  # an id may be a shard's later
        self._values = updates.Values(optimizer, self.where)
        self._replicas = Replicas(self.where)
        self._buffers = Replicas(self.where, Shared.BUFFERS)
        self._passing = gradients.Gradients(self.where)
        self._mode = evaluations.Mode()
        self._left = evaluations.LeftWeights()
        schedules.accumulated.restart()
        schedules.kept.restart()
        optimizer.register_load_state_dict_post_hook(self.loaded)
        self._before = optimizer.register_step_pre_hook(self.before)
        optimizer.register_step_post_hook(self.after)

    def __deepcopy__(self, _memo: object) -> Watch:
        """Returns itself: observations aren't part of the optimizer's state."""
        return self

    def loaded(self, optimizer: Any) -> None:
        """Notes that an optimizer has loaded states."""
        safely(Check.SCHEDULE, schedules.loaded, optimizer)

    def before(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Inspects gradients and weights before a step."""
        if steps.is_preparing:
            return
        if schedules.accumulated.is_open:
            safely(Check.GRADIENTS, schedules.accumulated.stepping, optimizer, self.steps)
        if schedules.kept.is_open and not _is_compiling():
            safely(Check.GRADIENTS, schedules.kept.stepping, optimizer)
        if self._mode.is_due(self.steps + 1) and not _is_compiling():
            safely(Check.TRAINED, self._mode.look, optimizer, self.steps + 1)
        if not _is_compiling():
            safely(Check.TRAINED, self._left.before, self.steps)
        if (self.steps + 1 < self._next and not resumes.open) or _is_compiling():
            return
        if resumes.open:
            safely(Check.RESUMED, resumes.step, optimizer)
        if self.steps + 1 < self._next:
            return
        early_steps.before(optimizer, self.steps + 1)
        safely(Check.TRAINED, self._look, optimizer)

    def after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Inspects weights after a step."""
        if _is_compiling():
            skip(Check.TRAINED, "the optimizer's step is compiled")
            return
        if steps.is_preparing:
            return
        self.steps += 1
        safely(Check.TRAINED, self._left.after, optimizer, self.steps)
        if self.steps < self._next:
            return
        safely(Check.TRAINED, self._look_after, optimizer)
        later = (step for step in VALUES if step > self.steps)
        self._next = self.steps + 1 if self.steps < FIRST else next(later, self.steps + 1000)

    def _look(self, optimizer: Any) -> None:
        import torch

        step = self.steps + 1
        if dtypes.has_scaled() and is_on(Check.TRAINED):
            report_here(updated.still_scaled())
        schedules.stepping(optimizer, self.steps)
        if step <= FIRST:
            self._note_gradients(optimizer)
            safely(Check.GRADIENTS, self._passing.take, optimizer)
        if step != 1 and step not in VALUES and step <= FIRST:
            return
        names, models = names_of(optimizer), known_models()
        by_engine = _is_by_engine()
        if step == 1:
            self._report(*dtypes.judged(optimizer, names, by_engine=by_engine))
            saves.remember(models)
            if _are_few():
                self._report(*adapters.judged(models), *pretrained.untrained(models))
            if not by_engine:  # DeepSpeed's groups are flat, and `engines` inspects its steps
                self._report(*held_parameters.decayed(optimizer, names, models))
                begin = sampled_gradients.begin_with
                safely(Check.GRADIENTS, begin, self._passing, optimizer, names)
            parted = list(emptied.parted(optimizer))
            report(*parted)
            if not parted:
                held_parameters.look_at_apart(models, self.where)
        is_early = step < FIRST and not by_engine
        every = parameters_in(models) if is_early else ()
        zeros = updates.adapters_in((name, param) for _, name, param in every)
        with torch.no_grad():  # a shard is a view then, without a node of autograd
            self._values.before(optimizer, names, zeros, step)
        if not by_engine:  # within a step of DeepSpeed's engine, weights differ
            alike, beside = replicated_by_ddp(optimizer, names), beside_shards(optimizer, names)
            self._replicas.look(alike or beside, self.steps, if_begun_alike=not alike)
            self._buffers.look(buffers_of_ddp() if alike else (), self.steps)

    def _look_after(self, optimizer: Any) -> None:
        import torch

        with torch.no_grad():
            self._values.after(optimizer, self.steps)
        if self.steps <= FIRST:
            self._note_gradients(optimizer)
            safely(Check.GRADIENTS, self._passing.over, self.steps)
        if self.steps == trained.WITHOUT and _are_few():
            held = held_by(*schedules.optimizers)
            names = list(held_parameters.unregistered(known_models(), held))
            self._report(trained.unregistered(names))
        if self.steps in (trained.WITHOUT, FIRST) and optimizer not in held_parameters.reported:
            seen = self._gradients(optimizer)
            finding = self._gathered(optimizer) or trained.without_gradients(seen)
            self._report(finding or trained.left_out(seen))
        if self.steps == FIRST:
            self._look_at_others()
            held = held_by(*(other for other in schedules.optimizers if other is not optimizer))
            self._report(*evaluations.frozen(known_models(), held))

    def _gathered(self, optimizer: Any) -> Finding | None:
        """Reports parameters that aren't the model's, while it trains shards."""
        of_models = [param for _, _, param in parameters_in(known_models())]
        if not any(hasattr(param, "to_local") for param in of_models):
            return None
        names, known = names_of(optimizer), self._had.union(map(id, of_models))
        held = [param for param in parameters_of(optimizer) if param.requires_grad]
        whole = [
            names[id(param)]
            for param in held
            if not hasattr(param, "to_local") and id(param) not in known
        ]
        return trained.gathered(type(optimizer).__name__, whole, len(held), self.steps)

    def _report(self, *findings: Finding | None) -> None:
        report(*findings, where=self.where, step=self.steps)

    def _note_gradients(self, optimizer: Any) -> None:
        self._had.update(id(param) for param in parameters_of(optimizer) if param.grad is not None)

    def _look_at_others(self) -> None:
        """Reports optimizers without any step that alone hold some parameters."""
        of_models = self._of_models()
        held = held_by(*schedules.stepped)
        for other, watch in list(schedules.optimizers.items()):
            if other in schedules.stepped:
                continue
            names = [
                of_models[id(param)][0]
                for param in parameters_of(other)
                if id(param) in of_models and id(param) not in held and param.grad is not None
            ]
            kind = type(other).__name__
            report(built.idle(kind, names, self.steps), where=watch.where)

    def _of_models(self) -> dict[int, tuple[str, Any]]:
        """The models' parameters and their names by id; empty if an engine holds copies.

        Also if only some are shards: others may be gathered until the next pass.
        """
        if _is_by_engine():
            return {}
        models = known_models()
        of_models = {id(param): (name, param) for _, name, param in parameters_in(models)}
        is_sharded = [hasattr(param, "to_local") for _, param in of_models.values()]
        is_gathered = any(is_sharded) and not all(is_sharded)
        return {} if is_gathered else of_models

    def _gradients(self, optimizer: Any) -> trained.Gradients:
        """Parameters with gradients so far; with an engine, only the engine's."""
        names = names_of(optimizer)
        to_train = [param for param in parameters_of(optimizer) if param.requires_grad]
        of_models = self._of_models()
        is_frozen = not any(param.requires_grad for _, param in of_models.values())
        held = held_by(*schedules.optimizers)
        left = {
            name: param.numel()
            for key, (name, param) in of_models.items()
            if param.requires_grad and param.grad is not None and key not in held
        }
        thawed = (
            name
            for key, (name, param) in of_models.items()
            if self._frozen.get(key) == name
            or (key in self._frozen and not hasattr(param, "to_local"))
        )
        return trained.Gradients(
            type(optimizer).__name__,
            self.steps,
            {names[id(param)]: param.numel() for param in to_train},
            frozenset(names[id(param)] for param in to_train if id(param) not in self._had),
            frozenset(names[id(param)] for param in to_train if id(param) not in of_models)
            if of_models
            else None,
            left if of_models else None,
            len(of_models) if is_frozen else 0,
            frozenset(thawed).intersection(left),
        )


def install(module: ModuleType) -> None:
    """Wraps every optimizer's step."""
    if module.__name__ == SKIP_CODE.module:
        with observations.going_on():
            skip_code = SKIP_CODE.of(module)
            for method in (Watch.before, Watch.after):
                skip_code(method.__code__)
        return
    wrapt.wrap_function_wrapper(module, "Optimizer.__init__", _made)


def _made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    if is_on(*CHECKS):
        safely(Check.TRAINED, Watch, instance)


def _are_few() -> bool:
    return len(schedules.optimizers) <= SEVERAL


def _is_by_engine() -> bool:
    return bool(observations.observed.get(Fact.ENGINE) == Engine.DEEPSPEED)


@functools.cache
def _compiling() -> Any:
    import torch

    return torch.compiler.is_compiling


def _is_compiling() -> bool:
    return bool(_compiling()())
