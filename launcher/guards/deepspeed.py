"""Applies the preset to `deepspeed.initialize` and `deepspeed.zero.Init`; reads the engine."""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Engine, Precision
from ..core.private_names import ENGINE_CONFIG, PARAM_DICT
from ..core.settings import BATCH, OF_DEEPSPEED, Fact, Setting, Value
from ..evidence.observations import observations
from ..evidence.worker_messages import Boundary
from ..frameworks.config_files.deepspeed import ConfigError, edited, load, offload_of
from . import batches, data_parallel, settling
from .callers import MAKERS, is_called_by
from .deepspeed_plugin import deepspeed_facts, is_partitioned
from .model_facts import facts_of, see_facts
from .settling import overrides
from .step_times import times

HOOKED = (
    "deepspeed",
    "deepspeed.runtime.engine",
    "deepspeed.runtime.zero.partition_parameters",
)
CONFIGURED = (*OF_DEEPSPEED, *BATCH)


def install(module: ModuleType) -> None:
    """Wraps `initialize` of the package, the engine's passes, and `Init` of ZeRO-3's module."""
    match module.__name__:
        case "deepspeed":
            wrapt.wrap_function_wrapper(module, "initialize", _initialize)
        case "deepspeed.runtime.engine":
            _count_passes(module)
        case _:
            wrapt.wrap_function_wrapper(module, "Init.__init__", _partition)


def _initialize(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Creates an engine; without an optimizer it only evaluates and keeps its configuration."""
    call = inspect.signature(wrapped).bind_partial(*args, **kwargs)
    model, is_trained = call.arguments.get("model"), _has_optimizer(call.arguments)
    settings: dict[Setting, Value] = overrides() if is_trained else {}
    if is_trained and observations.is_first(model):
        if model is not None and not is_called_by(*MAKERS):
            settings = _settled(call.arguments)
        see_facts(model)
    observations.see_model(model, is_trained=is_trained)
    if not is_trained:
        return wrapped(*call.args, **call.kwargs)
    settings = {setting: value for setting, value in settings.items() if setting in CONFIGURED}
    if settings:
        _replace_config(call.arguments, settings)
    with suppress(AttributeError, TypeError, ValueError):  # groups may be anything
        observations.see(rates_differ=_rates_differ(call.arguments) or None)
    result = wrapped(*call.args, **call.kwargs)
    if observations.is_first(model):  # beside which others may have engines: a critic
        # A name missing in another version must not end the training.
        with suppress(AttributeError, TypeError, ValueError):
            _see_engine(result[0])
            batches.watch(result[0])
            data_parallel.divides(result[0], lambda: int(result[0].dp_world_size))
    return result


def _settled(arguments: Mapping[str, Any]) -> dict[Setting, Value]:
    """Settings to apply when a custom loop creates its engine.

    The batch is left to the loop's loader. Partitioned weights fix the stage, and a custom
    optimizer fixes the offload.
    """
    model: Any = arguments["model"]
    try:
        config = load(_config_of(arguments))
    except ConfigError:  # DeepSpeed reports the fault
        return overrides()
    fixed = {*BATCH}
    if is_partitioned(model):
        fixed.add(Setting.ZERO_STAGE)
    if arguments.get("optimizer") is not None:
        fixed.add(Setting.OFFLOAD)
    changeable = {*CONFIGURED, Setting.GRADIENT_CHECKPOINTING} - fixed
    facts = {**deepspeed_facts(config), **facts_of(model)}
    answer = settling.answer_at(Boundary.INITIALIZE, sorted(changeable), facts, model=model)
    return settling.settings_of(answer)


def _config_of(arguments: Mapping[str, Any]) -> Any:
    """The engine's configuration as passed: a dict, a path, or arguments."""
    path = getattr(arguments.get("args"), "deepspeed_config", None)
    configs = (arguments.get("config"), arguments.get("config_params"), path)
    return next((config for config in configs if config is not None), None)


def _has_optimizer(arguments: Mapping[str, Any]) -> bool:
    """Whether an optimizer is passed as an argument or configured."""
    if arguments.get("optimizer") is not None:
        return True
    try:
        return "optimizer" in load(_config_of(arguments))
    except ConfigError:  # DeepSpeed reports the fault
        return True


def _rates_differ(arguments: Mapping[str, Any]) -> bool:
    """Whether the parameter groups have different learning rates."""
    groups = getattr(arguments.get("optimizer"), "param_groups", arguments.get("model_parameters"))
    if not isinstance(groups, list | tuple):
        return False
    rates = [group.get("lr") for group in groups if isinstance(group, Mapping)]
    return len({None if rate is None else float(rate) for rate in rates}) > 1


def _replace_config(arguments: dict[str, Any], settings: dict[Setting, Any]) -> None:
    """Passes DeepSpeed an edited copy of the script's configuration."""
    names = [name for name in ("config", "config_params") if arguments.get(name) is not None]
    namespace = arguments.get("args")
    if names:
        arguments[names[0]] = edited(arguments[names[0]], settings)
    elif namespace is not None and getattr(namespace, "deepspeed_config", None) is not None:
        arguments["args"] = copy.copy(namespace)  # the script's namespace isn't changed
        arguments["args"].deepspeed_config = edited(namespace.deepspeed_config, settings)


def _see_engine(engine: Any) -> None:
    """Notes the engine's settings in force, and counts steps from its counter."""
    if engine.bfloat16_enabled():
        precision = Precision.BF16
    elif engine.fp16_enabled():
        precision = Precision.FP16
    else:
        precision = Precision.FP32
    reference = weakref.ref(engine)

    def steps() -> int | None:
        alive = reference()
        return None if alive is None else int(alive.global_steps)

    observations.count_steps(steps)
    times.has_engine = True
    observations.see(
        engine=Engine.DEEPSPEED.value,
        zero_stage=int(engine.zero_optimization_stage()),
        micro_batch=int(engine.train_micro_batch_size_per_gpu()),
        accumulation=int(engine.gradient_accumulation_steps()),
        fp32_accumulation=(
            precision is not Precision.FP32 and str(engine.get_data_types()[1]) == "torch.float32"
        ),
        precision=precision.value,
    )
    with observations.going_on(), suppress(AttributeError, TypeError):
        config = PARAM_DICT.of(ENGINE_CONFIG.of(engine))
        observations.see(offload=offload_of(config).value)


def _count_passes(module: ModuleType) -> None:
    """Notes a second backward pass at a gradient accumulation boundary before the same step."""
    passed: weakref.WeakSet[Any] = weakref.WeakSet()

    def backward(wrapped: Any, engine: Any, args: Any, kwargs: Any) -> Any:
        if engine.is_gradient_accumulation_boundary():
            if engine in passed:
                observations.see(**{Fact.SEVERAL_BACKWARDS: True})
            passed.add(engine)
        return wrapped(*args, **kwargs)

    def step(wrapped: Any, engine: Any, args: Any, kwargs: Any) -> Any:
        passed.discard(engine)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.backward", backward)
    wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.step", step)


def _partition(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Enters `deepspeed.zero.Init` only for stage 3: it partitions parameters on creation.

    Asks for a custom loop's settings first: once weights are partitioned, the stage is fixed.
    """
    call = inspect.signature(wrapped).bind(*args, **kwargs)
    settings = overrides()
    config = call.arguments.get("config_dict_or_path") or call.arguments.get("config")
    if config is not None and not is_called_by(*MAKERS):
        with suppress(ConfigError):  # DeepSpeed reports the fault
            facts = deepspeed_facts(load(config))
            changeable = (Setting.ZERO_STAGE, Setting.GRADIENT_CHECKPOINTING)
            answer = settling.answer_at(Boundary.PARTITION, changeable, facts)
            settings = settling.settings_of(answer)
    if settings.get(Setting.ZERO_STAGE, 3) != 3:
        call.arguments["enabled"] = False
    return wrapped(*call.args, **call.kwargs)
