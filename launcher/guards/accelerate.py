"""Applies the preset when a custom loop creates an Accelerator, and observes the loop."""

from __future__ import annotations

import weakref
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Engine, Framework
from ..core.settings import OF_DEEPSPEED, Fact, Setting
from ..evidence.observations import observations
from ..evidence.worker_messages import Boundary
from ..frameworks.config_files.vocabulary import dtype_named
from . import deepspeed_plugin, loading, settling
from .callers import is_called_by
from .deepspeed_plugin import deepspeed_facts
from .model_facts import see_no_checkpointing

HOOKED = ("accelerate.accelerator",)
SETTABLE = (*OF_DEEPSPEED, Setting.GRADIENT_CHECKPOINTING)
"""Settings that an Accelerator can still change: the batch belongs to the loop."""


def install(module: ModuleType) -> None:
    """Wraps the constructor, and `accumulate`, which custom loops call."""
    wrap = wrapt.wrap_function_wrapper
    wrap(module, "Accelerator.__init__", _construct)
    wrap(module, "Accelerator.accumulate", _accumulate)
    wrap(module, "Accelerator.prepare_model", _prepare_model)


def _construct(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Settles DeepSpeed's configuration as merged by accelerate from all its sources."""
    wrapped(*args, **kwargs)
    plugin = getattr(getattr(instance, "state", None), "deepspeed_plugin", None)
    config = deepspeed_plugin.config_of(plugin)
    if config is None or is_called_by("transformers"):
        return
    facts = {
        Setting.ACCUMULATION: int(instance.gradient_accumulation_steps),
        **{name: value for name, value in deepspeed_facts(config).items() if value is not None},
    }
    answer = settling.answer_at(
        Boundary.ACCELERATOR, SETTABLE, facts, framework=Framework.ACCELERATE.value
    )
    settings = settling.settings_of(answer)
    settable = {name: value for name, value in settings.items() if name in SETTABLE}
    deepspeed_plugin.change(plugin, settable)
    loading.put_in_force(
        loading.InForce(
            weakref.ref(plugin),
            Framework.ACCELERATE,
            lambda held: deepspeed_facts(held.hf_ds_config.config),
            lambda _held: SETTABLE,
            deepspeed_plugin.change,
        )
    )


def _prepare_model(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Observes a model that is trained on several ranks, and returned without DDP."""
    result = wrapped(*args, **kwargs)
    model = args[0] if args else kwargs["model"]
    is_evaluated = args[2] if len(args) > 2 else kwargs.get("evaluation_mode", False)
    with suppress(Exception):  # another kind of model may have no parameters
        is_divided = instance.distributed_type.value.startswith("MULTI_") and not is_evaluated
        trained = [param for param in model.parameters() if param.requires_grad]
        is_plain = bool(trained) and not any(hasattr(param, "device_mesh") for param in trained)
        is_left = result is model and not hasattr(model, "require_backward_grad_sync")
        observations.see(left_unwrapped=(is_divided and is_plain and is_left) or None)
    return result


def _accumulate(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    seen = observations.observed
    if seen.get(Fact.ENGINE) != Engine.DEEPSPEED:  # whose guard has seen more
        precision = dtype_named(str(instance.mixed_precision))  # None for `no`
        observations.see(
            accumulation=int(instance.gradient_accumulation_steps),
            precision=precision or seen.get(Fact.LOADED_PRECISION),
        )
        for model in args:
            see_no_checkpointing(getattr(model, "module", model))
    return wrapped(*args, **kwargs)
