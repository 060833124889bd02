"""Checks DeepSpeed engines, and weights that a script draws after stage 3 has divided them."""

from __future__ import annotations

import inspect
import re
import weakref
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built, divided, schedule, trained, updated
from ...checks.finding import Check
from ...evidence.observations import size_of
from .. import data_parallel
from ..callers import calling_frame, user_place
from . import early_steps, updates
from .calls import argument, before
from .copies import Copy, arrived, local, sampled
from .gradients import Gradients
from .models import parameters_of
from .replicas import Replicas, replicated_by_engine
from .reporting import is_on, report, report_here, safely, skip
from .sampled_gradients import begin_with_engine
from .schedules import schedules

ENGINE, PARTITIONING = (
    "deepspeed.runtime.engine",
    "deepspeed.runtime.zero.partition_parameters",
)
HOOKED = (ENGINE, PARTITIONING)
DRAWING = re.compile(r"(?:normal|uniform|zeros?|ones|fill|constant|orthogonal)_$")
"""Names of functions that initialize a tensor."""
DONE = (0, 1, 2, 3, 9, 99, 999)
"""Steps after which to inspect an engine."""
MADE = (Check.REPLICAS, Check.TRAINED, Check.GRADIENTS, Check.SCHEDULE, Check.DIVIDED)
MOST = 30
"""Maximum steps in which to see two effective ones; a falling loss scale skips steps."""


made_with: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()
"""By engine: ids of the parameters of its optimizer before the engine made flat ones of them."""


class EngineWatch:
    """Observations of an engine."""

    def __init__(self) -> None:
        self._where = user_place()
        self._replicas = Replicas(self._where)
        self._looked = -1
        self._over = 0
        self._passes: list[int] = []
        self._gradients = Gradients(self._where)

    def look(self, engine: Any) -> None:
        """Inspects the weights before a step."""
        step = int(engine.global_steps)
        if step == self._looked or (step not in DONE and step % 1000):
            return
        if not engine.is_gradient_accumulation_boundary():
            return
        self._looked = step
        if step == 0:
            rate = (engine.optimizer_params() or {}).get("lr")
            scheduler = engine.scheduler_name() or "", engine.scheduler_params() or {}
            report(schedule.overruled(*scheduler, rate), where=self._where)
        elif step == trained.WITHOUT:
            safely(Check.TRAINED, self._look_at_left, engine, step)
        if engine.zero_optimization_stage() > 2:
            for check in (Check.REPLICAS, Check.TRAINED, Check.GRADIENTS):
                skip(check, "the weights are partitioned (ZeRO stage 3)")
        else:
            self._replicas.look(replicated_by_engine(engine), step)
        done = updates.done.get(engine.basic_optimizer, 0)
        steps = min(done, step - int(engine.skipped_steps))
        every = updates.adapters_in(engine.module.named_parameters())
        zeros = ((name, local(param)) for name, param in every if _has_no_padding(param))
        copies = sampled(zeros, updates.MOST_ADAPTERS)
        early_steps.later(Check.TRAINED, copies.values(), partial(self._judge_zeros, copies, steps))

    def _judge_zeros(self, copies: dict[str, Copy], steps: int) -> None:
        report(updated.still_zero(arrived(copies), steps), where=self._where)

    def _look_at_left(self, engine: Any, step: int) -> None:
        """Reports parameters with gradients that neither this nor another optimizer was given."""
        optimizer = engine.basic_optimizer
        if engine not in made_with or optimizer not in schedules.optimizers:
            return
        watches = list(schedules.optimizers.values())
        held = made_with[engine].union(*(watch.made_with for watch in watches))
        params = [each for each in engine.module.named_parameters() if each[1].requires_grad]
        sizes = {name: size_of(param) for name, param in params if id(param) in held}
        left = {
            name: size_of(param)
            for name, param in params
            if id(param) not in held and param.grad is not None
        }
        kind, none = type(optimizer).__name__, frozenset[str]()
        seen = trained.Gradients(kind, step, sizes, none, none, left)
        report(trained.left_out(seen), where=schedules.optimizers[optimizer].where)

    def over(self, engine: Any) -> None:
        """Inspects gradients after the first step until two effective steps."""
        step = int(engine.global_steps)
        if step != self._over and step <= MOST and engine.zero_optimization_stage() <= 2:
            if not self._over:
                begin_with_engine(self._gradients, engine)
                engine.basic_optimizer.register_step_pre_hook(self._take)
            self._over = step
            self._gradients.over(step)

    def count(self, engine: Any, passes: int) -> None:
        """Compares the passes before each of the first calls of `step` with the accumulation."""
        if len(self._passes) < divided.STEPS:
            self._passes.append(passes)
            accumulation = int(engine.gradient_accumulation_steps())
            report_here(divided.counted_twice(self._passes, accumulation))

    def _take(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        safely(Check.GRADIENTS, self._gradients.take, optimizer)


def _has_no_padding(param: Any) -> bool:
    """Whether the ranks' parts of a parameter are of one size."""
    part = getattr(param, "ds_tensor", None)
    return part is None or part.numel() * data_parallel.world() == size_of(param)


def install(module: ModuleType) -> None:
    """Wraps every engine's step, and counts its backward passes; wraps models' `apply`."""
    if module.__name__ == PARTITIONING:
        import torch

        before(torch.nn, "Module.apply", Check.TRAINED, _look_at_drawing)
        return
    watches: weakref.WeakKeyDictionary[Any, EngineWatch] = weakref.WeakKeyDictionary()
    passes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def step(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if not is_on(*MADE):
            return wrapped(*args, **kwargs)
        watch = watches.get(instance)
        if watch is None:
            watch = watches[instance] = EngineWatch()
        safely(Check.DIVIDED, watch.count, instance, passes.pop(instance, 0))
        safely(Check.REPLICAS, watch.look, instance)
        result = wrapped(*args, **kwargs)
        safely(Check.GRADIENTS, watch.over, instance)
        return result

    def backward(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        passes[instance] = passes.get(instance, 0) + 1
        return wrapped(*args, **kwargs)

    def made(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
        ids: set[int] = set()
        optimizer = kwargs.get("optimizer")
        if hasattr(optimizer, "param_groups"):
            safely(Check.TRAINED, lambda: ids.update(map(id, parameters_of(optimizer))))
        wrapped(*args, **kwargs)
        made_with[instance] = frozenset(ids)

    wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.__init__", made)
    wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.backward", backward)
    wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.step", step)


def _look_at_drawing(model: Any, args: Any, kwargs: Any) -> None:
    """Reports a script's function that `apply` runs to initialize a divided model's weights."""
    function = argument(args, kwargs, 0, "fn")
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not any(map(DRAWING.search, code.co_names)) or calling_frame() is None:
        return
    weights = [weight for weight in model.parameters() if hasattr(weight, "ds_numel")]
    if weights and not any(weight.numel() for weight in weights):
        report(built.nothing_drawn(function.__qualname__), where=user_place())
