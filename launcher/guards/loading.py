"""Settles what a model's weights ask for before they are loaded, where a configuration is in force.

Its class is made without weights, on torch's meta device, only where node 0 wants to know its
shape. Later models are references, rewards, parts: only a process's first one is asked for, and
that only where it is made under TrainingArguments, or an Accelerator with DeepSpeed.
"""

from __future__ import annotations

import copy
import functools
import inspect
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Checkpointing, Engine, Framework
from ..core.private_names import ATTENTION, FROM_CONFIG
from ..core.settings import Fact, Setting, Value
from ..evidence.observations import Observations
from ..evidence.worker_messages import Boundary
from ..workload.config_files.vocabulary import dtype_named
from . import settling
from .model_facts import checkpoints_nothing, facts_of

HOOKED = ("transformers.modeling_utils",)
PARTITIONING = "deepspeed.runtime.zero.partition_parameters"
ELSEWHERE = (
    *("quantization_config", "load_in_4bit", "load_in_8bit", "gguf_file"),
    *("distributed_config", "tp_plan", "tp_size", "device_mesh"),
)
"""Arguments by which a rank holds other weights than the class has."""
DTYPES = ("dtype", "torch_dtype")
Facts = dict[str, Value | None]


@dataclass(frozen=True, slots=True)
class InForce:
    """What decides how a model is trained, while its owner is alive.

    Attributes:
        owner: TrainingArguments, or accelerate's plugin.
        framework: the owner of the training loop.
        facts: what it asks for.
        settable: what of it can still be changed.
        give: changes it.
    """

    owner: weakref.ref[Any]
    framework: Framework
    facts: Callable[[Any], Facts]
    settable: Callable[[Any], Sequence[Setting]]
    give: Callable[[Any, Mapping[Setting, Value]], None]


@dataclass(slots=True)
class _State:
    """Of this process: what the next model is made under, and whether one has been made."""

    in_force: InForce | None = None
    is_made: bool = False


_state = _State()


def put_in_force(latest: InForce) -> None:
    """Has the process's first model ask, if it is made under this."""
    _state.in_force = latest


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the two ways to make a model of a configuration, and notes that one is made."""
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
        wrapt.wrap_function_wrapper(model, name, partial(_make, boundary, observations))


def _make(
    boundary: Boundary,
    observations: Observations,
    wrapped: Any,
    kind: Any,
    args: Any,
    kwargs: Any,
) -> Any:
    own = _state.in_force
    owner = None if own is None or _state.is_made else own.owner()
    is_partitioning = getattr(sys.modules.get(PARTITIONING), "zero_init_context", 0)
    if own is None or owner is None or is_partitioning or any(map(kwargs.get, ELSEWHERE)):
        return wrapped(*args, **kwargs)
    changes: dict[Setting, Value] = {}
    with suppress(Exception):  # odd arguments, a model's own code: the call itself says what is odd
        given = inspect.signature(wrapped).bind_partial(*args, **kwargs).arguments
        named = given.get("config") or given["pretrained_model_name_or_path"]
        config = _configuration(kind, named, kwargs)
        if getattr(config, "quantization_config", None) is None:
            dtype = _dtype(boundary, config, kwargs)
            build = partial(_without_weights, kind, config, kwargs)
            changes = _changes(boundary, observations, own, owner, dtype, build)
    if changes:
        own.give(owner, changes)
    return wrapped(*args, **kwargs)


def _changes(
    boundary: Boundary,
    observations: Observations,
    own: InForce,
    owner: Any,
    dtype: str | None,
    build: Callable[[], Any],
) -> dict[Setting, Value]:
    """What to change in what is in force; the shape is told where node 0 wants to know it."""
    facts: Facts = {**own.facts(owner), Fact.LOADED_PRECISION: dtype}
    if facts.get(Fact.ENGINE) != Engine.DEEPSPEED and facts.get(Setting.PRECISION) is None:
        facts[Setting.PRECISION] = dtype
    ask = partial(
        settling.answer_at,
        boundary,
        own.settable(owner),
        observations=observations,
        framework=own.framework.value,
    )
    answer = ask(facts)
    if answer is not None and answer.probes:
        model = build()
        facts = {**facts_of(model, observations), **facts}
        if facts.get(Setting.GRADIENT_CHECKPOINTING) is None and checkpoints_nothing(model):
            facts[Setting.GRADIENT_CHECKPOINTING] = Checkpointing.OFF.value
        answer = ask(facts, model=model)
    return {} if answer is None else settling.parsed(answer.overrides)


def _configuration(kind: Any, named: Any, kwargs: Mapping[str, Any]) -> Any:
    """The model's configuration, given itself or as the folder or name that it is loaded from."""
    if hasattr(named, "to_dict"):
        return named
    others = ("config", "pretrained_model_name_or_path")
    rest = {name: value for name, value in kwargs.items() if name not in others}
    return kind.config_class.from_pretrained(named, **rest)


def _dtype(boundary: Boundary, config: Any, kwargs: Mapping[str, Any]) -> str | None:
    """The type of the weights, as a plan names it; None where only their files tell."""
    import torch
    import transformers

    plain = torch.get_default_dtype()
    is_new = boundary is Boundary.FROM_CONFIG
    asked = next(filter(None, map(kwargs.get, DTYPES)), None)
    if asked is None and not is_new and int(transformers.__version__.partition(".")[0]) < 5:
        asked = plain
    if asked in (None, "auto"):
        own = (getattr(config, name, None) for name in DTYPES)
        asked = next(filter(None, own), plain if is_new else None)
    return dtype_named(str(asked))


def _without_weights(kind: Any, config: Any, kwargs: Mapping[str, Any]) -> Any:
    """The model on the meta device; the generators of random numbers stay as they are."""
    import torch

    config = copy.deepcopy(config)  # which a model adapts
    if ATTENTION.attribute.removeprefix("_") in kwargs:
        setattr(config, ATTENTION.attribute, kwargs[ATTENTION.attribute.removeprefix("_")])
    with _same_random_numbers(), torch.random.fork_rng(devices=[]), torch.device("meta"):
        return kind(config)


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Puts Python's and numpy's generators back."""
    numpy: Any = sys.modules.get("numpy")
    states = random.getstate(), numpy and numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])
