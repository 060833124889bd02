"""Settles a model's settings before its weights are loaded, if a configuration is in force.

The model is created on the meta device only if node 0 asks for its shape. Only a process's first
model asks, and only under TrainingArguments or an Accelerator with DeepSpeed: later models are
references, rewards or parts.
"""

from __future__ import annotations

import copy
import functools
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Checkpointing, Engine, Framework
from ..core.private_names import ATTENTION, FROM_CONFIG
from ..core.settings import Fact, Setting, Value
from ..evidence.observations import observations
from ..evidence.worker_messages import Boundary
from ..frameworks.config_files.vocabulary import dtype_named
from ..workload.models.on_meta import without_weights
from . import settling
from .model_facts import checkpoints_nothing, facts_of

HOOKED = ("transformers.modeling_utils",)
PARTITIONING = "deepspeed.runtime.zero.partition_parameters"
ELSEWHERE = (
    *("quantization_config", "load_in_4bit", "load_in_8bit", "gguf_file"),
    *("distributed_config", "tp_plan", "tp_size", "device_mesh"),
)
"""Arguments that make a rank hold other weights than the class defines."""
DTYPES = ("dtype", "torch_dtype")
"""Arguments that state the weights' dtype."""


Facts = dict[str, Value | None]


@dataclass(frozen=True, slots=True)
class InForce:
    """Settings that decide how a model is trained, while their owner is alive.

    Attributes:
        owner: TrainingArguments, or accelerate's plugin.
        framework: the owner of the training loop.
        facts: the settings in force.
        settable: settings that can still change.
        give: applies changes.
    """

    owner: weakref.ref[Any]
    framework: Framework
    facts: Callable[[Any], Facts]
    settable: Callable[[Any], Sequence[Setting]]
    give: Callable[[Any, Mapping[Setting, Value]], None]


@dataclass(slots=True)
class _State:
    """Settings for the next model, and whether a model exists."""

    in_force: InForce | None = None
    is_made: bool = False


_state = _State()


def put_in_force(latest: InForce) -> None:
    """Registers these settings for the process's first model."""
    _state.in_force = latest


def install(module: ModuleType) -> None:
    """Wraps both ways to create a model from a configuration."""
    model = module.PreTrainedModel
    make = model.__init__

    @functools.wraps(make)  # a function: deepspeed.zero.Init replaces it, and puts it back
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        _state.is_made = True
        make(self, *args, **kwargs)

    model.__init__ = begin
    ways = {"from_pretrained": Boundary.FROM_PRETRAINED}
    with observations.going_on():
        FROM_CONFIG.of(model)
        ways[FROM_CONFIG.attribute] = Boundary.FROM_CONFIG
    for name, boundary in ways.items():
        wrapt.wrap_function_wrapper(model, name, partial(_make, boundary))


def _make(boundary: Boundary, wrapped: Any, kind: Any, args: Any, kwargs: Any) -> Any:
    in_force = _state.in_force
    owner = None if in_force is None or _state.is_made else in_force.owner()
    is_partitioning = getattr(sys.modules.get(PARTITIONING), "zero_init_context", 0)
    if in_force is None or owner is None or is_partitioning or any(map(kwargs.get, ELSEWHERE)):
        return wrapped(*args, **kwargs)
    changes: dict[Setting, Value] = {}
    with suppress(Exception):  # odd arguments, or custom code: the call itself fails
        config = configuration_of(kind, args, kwargs)
        if getattr(config, "quantization_config", None) is None:
            is_stored = boundary is Boundary.FROM_PRETRAINED
            dtype = dtype_named(str(dtype_of(config, kwargs, is_stored=is_stored)))
            build = partial(without_weights, kind, config)
            facts: Facts = {**in_force.facts(owner), Fact.LOADED_PRECISION: dtype}
            facts[Fact.DTYPE_BY_DEFAULT] = is_stored and not any(map(kwargs.get, DTYPES))
            changes = _changes(boundary, in_force, owner, facts, build)
    if changes:
        in_force.give(owner, changes)
    return wrapped(*args, **kwargs)


def _changes(
    boundary: Boundary, in_force: InForce, owner: Any, facts: Facts, build: Callable[[], Any]
) -> dict[Setting, Value]:
    """Changes to the settings in force; reports the shape if node 0 asks for it."""
    if facts.get(Fact.ENGINE) != Engine.DEEPSPEED and facts.get(Setting.PRECISION) is None:
        facts[Setting.PRECISION] = facts[Fact.LOADED_PRECISION]
    ask = partial(
        settling.answer_at, boundary, in_force.settable(owner), framework=in_force.framework.value
    )
    answer = ask(facts)
    if answer is not None and answer.probes:
        model = build()
        facts = {**facts_of(model), **facts}
        if facts.get(Setting.GRADIENT_CHECKPOINTING) is None and checkpoints_nothing(model):
            facts[Setting.GRADIENT_CHECKPOINTING] = Checkpointing.OFF.value
        answer = ask(facts, model=model)
    return settling.changes_of(answer)


def configuration_of(kind: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A copy of the configuration `from_pretrained` or `from_config` will use."""
    options = {name: value for name, value in kwargs.items() if name not in DTYPES}
    named = options.pop("pretrained_model_name_or_path", args[0] if args else None)
    config = options.pop("config", None) or named
    if hasattr(config, "to_dict"):
        config = copy.deepcopy(config)  # which a model adapts
    else:
        config = kind.config_class.from_pretrained(config, **options)
    attention = options.get(ATTENTION.attribute.removeprefix("_"))
    if attention:
        setattr(config, ATTENTION.attribute, attention)
    return config


def dtype_of(config: Any, kwargs: Mapping[str, Any], *, is_stored: bool) -> Any:
    """The weights' dtype; None if only their files determine it.

    Before version 5, transformers loaded weights in torch's default dtype.
    """
    import torch
    import transformers

    plain = torch.get_default_dtype()
    dtype = next(filter(None, map(kwargs.get, DTYPES)), None)
    if dtype is None and is_stored and int(transformers.__version__.partition(".")[0]) < 5:
        dtype = plain
    if dtype in (None, "auto"):
        dtypes = (getattr(config, name, None) for name in DTYPES)
        dtype = next(filter(None, dtypes), None if is_stored else plain)
    dtype = getattr(torch, dtype.rpartition(".")[2]) if isinstance(dtype, str) else dtype
    return dtype if isinstance(dtype, torch.dtype) else None
