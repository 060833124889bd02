"""Marks a worker's progress: steps, backward passes, evaluation, saving."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

import wrapt

from ..core.private_names import SAVE_CHECKPOINT, SKIP_CODE, SYNC_BUFFERS
from ..evidence.observations import observations
from ..progress.board import Phase
from ..progress.slot import Slot
from .step_times import StepTimes, times

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "init_process_group",
    "monitored_barrier",
    "new_group",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)
"""torch.distributed functions in which a rank waits for others. Point-to-point messages are left
out: pipelines send thousands of them per step."""
PHASES = {
    "torch.serialization": {"save": Phase.SAVING},
    "torch.distributed.checkpoint.state_dict_saver": {"save": Phase.SAVING},
    "safetensors.torch": {"save_file": Phase.SAVING},
    "deepspeed.runtime.engine": {"DeepSpeedEngine.save_checkpoint": Phase.SAVING},
    "transformers.trainer": {
        "Trainer.evaluate": Phase.EVALUATION,
        "Trainer.predict": Phase.EVALUATION,
        "Trainer.save_model": Phase.SAVING,
        SAVE_CHECKPOINT.path: Phase.SAVING,
    },
}
"""Functions that form a separate phase, by module."""
HOOKED = (
    *PHASES,
    SKIP_CODE.module,
    "torch.autograd",
    "torch.distributed.distributed_c10d",
    "torch.nn.modules.module",
    "torch.nn.parallel.distributed",
    "torch.optim.optimizer",
    "transformers.trainer_callback",
)


def install(module: Any) -> None:
    """Wraps the marked functions; those called every step in plain functions, the cheapest way."""
    for name, phase in PHASES.get(module.__name__, {}).items():
        with observations.going_on():
            if name == SAVE_CHECKPOINT.path:
                SAVE_CHECKPOINT.of(module.Trainer)
            wrapt.wrap_function_wrapper(module, name, _within(phase))
    match module.__name__:
        case "deepspeed.runtime.engine":
            wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.step", _marked_last(times.stepped))
            wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.forward", _gathering)
        case SKIP_CODE.module:
            with observations.going_on():
                skip = SKIP_CODE.of(module)
                for code in _codes([*vars(StepTimes).values(), *vars(Slot).values()]):
                    skip(code)  # there is nothing in it to compile
        case "torch.autograd":
            module.backward = times.backward(module.backward)
        case "torch.distributed.distributed_c10d":
            for name in filter(module.__dict__.__contains__, COLLECTIVES):
                setattr(module, name, times.waiting(getattr(module, name)))
        case "torch.nn.modules.module":
            _watch_eval(module.Module)
        case "torch.nn.parallel.distributed":
            parallel = module.DistributedDataParallel
            with observations.going_on():
                waiting = times.waiting(SYNC_BUFFERS.of(parallel))
                setattr(parallel, SYNC_BUFFERS.attribute, waiting)
        case "torch.optim.optimizer":
            module.register_optimizer_step_post_hook(times.optimizer_stepped)
        case "transformers.trainer_callback":
            # Called after the Trainer has counted the step.
            handler = "CallbackHandler.on_step_end"
            wrapt.wrap_function_wrapper(module, handler, _marked_first(times.stepped))


def _within(phase: Phase) -> Callable[..., Any]:
    return lambda wrapped, _instance, args, kwargs: times.during(phase, wrapped, args, kwargs)


def _marked_first(mark: Callable[[], None]) -> Callable[..., Any]:
    def wrapper(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        mark()
        return wrapped(*args, **kwargs)

    return wrapper


def _marked_last(mark: Callable[[], None]) -> Callable[..., Any]:
    def wrapper(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        mark()
        return result

    return wrapper


def _gathering(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if instance.training and instance.zero_optimization_stage() == 3:
        times.gather()
    return wrapped(*args, **kwargs)


def _watch_eval(kind: Any) -> None:
    """Marks an evaluation in a custom loop when `eval()` is called on the trained model."""
    original = kind.eval

    @functools.wraps(original)
    def evaluate(model: Any) -> Any:
        inner = getattr(model, "module", None)
        if any(seen is model or seen is inner for seen in observations.models()):
            times.evaluate()
        return original(model)

    kind.eval = evaluate


def _codes(parts: Iterable[Any]) -> Iterator[CodeType]:
    """Code objects of functions and their nested functions."""
    for part in parts:
        code = getattr(part, "__code__", part)
        if isinstance(code, CodeType):
            yield code
            yield from _codes(code.co_consts)
