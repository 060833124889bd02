"""Applies the preset to FSDP, and observes the settings in force."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import wrapt

from ..core.choices import Engine, Offload, Units
from ..core.private_names import FSDP_BEGINS
from ..core.settings import Setting
from ..evidence.observations import observations
from ..frameworks.config_files.vocabulary import dtype_named
from . import data_parallel
from .settling import overrides

PLUGIN = "accelerate.utils.dataclasses"
TORCHS = "torch.distributed.fsdp"
HOOKED = (PLUGIN, TORCHS, FSDP_BEGINS.module)
VARIABLES = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    # The Trainer requests the same: its last checkpoint has the whole model in one file.
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}
"""Variables that make accelerate train with FSDP2 (accelerate/utils/dataclasses.py)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of `fully_shard`, with the arguments of the call.

    Attributes:
        module: the module, or the first if the call had several.
        arguments: by name.
    """

    module: weakref.ref[Any]
    arguments: Mapping[str, Any]


_units: list[Unit] = []
flat: weakref.WeakSet[Any] = weakref.WeakSet()
"""Live modules of FSDP 1."""


def install(module: ModuleType) -> None:
    """Wraps accelerate's plugin, torch's FSDP1 and FSDP2, or FSDP2's first pass."""
    wrap = wrapt.wrap_function_wrapper
    if module.__name__ == PLUGIN:
        plugin = getattr(module, "FullyShardedDataParallelPlugin", None)
        for name, hook in (("__post_init__", _configure), ("set_auto_wrap_policy", _divide)):
            if hasattr(plugin, name):
                wrap(plugin, name, hook)
    elif module.__name__ == TORCHS:
        wrap(module, "FullyShardedDataParallel.__init__", _construct)
        if hasattr(module, "fully_shard"):  # from torch 2.6 on
            wrap(module, "fully_shard", _shard)
    else:
        with observations.going_on():
            FSDP_BEGINS.of(module.FSDPState)
            wrap(module, FSDP_BEGINS.path, _begin)


def _divide(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    policy = getattr(instance, "auto_wrap_policy", None)
    # The transformer-layer policy has no classes to look for.
    if getattr(policy, "keywords", {}).get("transformer_layer_cls") == set():
        _warn_of_undivided(args[0] if args else kwargs["model"])
    return result


def _construct(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    observations.see(engine=Engine.FSDP.value, fsdp_version=1)
    wrapped(*args, **kwargs)
    flat.add(instance)
    data_parallel.divides(instance, lambda: int(instance.process_group.size()))


def _begin(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> None:
    wrapped(*args, **kwargs)
    if _units:
        with suppress(AttributeError, TypeError, ValueError):  # as another version has it
            see_units()


def _configure(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Applies the plan's changes; FSDP1 has strategies instead."""
    wrapped(*args, **kwargs)
    reshard = overrides().get(Setting.RESHARD_AFTER_FORWARD)
    if reshard is not None and getattr(instance, "fsdp_version", 1) == 2:
        instance.reshard_after_forward = reshard


def _shard(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Stores the arguments of `fully_shard` until the first pass."""
    import torch.distributed as dist

    result = wrapped(*args, **kwargs)
    modules = args[0] if args else kwargs["module"]
    first = next(iter(modules), None) if isinstance(modules, list | tuple) else modules
    if first is not None:
        _units.append(Unit(weakref.ref(first), kwargs))
        mesh = kwargs.get("mesh")
        data_parallel.divides(first, dist.get_world_size if mesh is None else mesh.size)
    return result


def see_units() -> None:
    """Notes the arguments of `fully_shard` as the first module begins its first pass."""
    import torch.distributed as dist

    alive = {id(module): unit for unit in _units if (module := unit.module()) is not None}
    _units.clear()
    for root, units in _outermost(alive):
        trained = next(
            (parameter for parameter in root.parameters() if parameter.requires_grad), None
        )
        if trained is None:
            continue  # a reference model, say
        arguments, others = units[0].arguments, units[1:]
        freed = [unit.arguments.get("reshard_after_forward") is not False for unit in others]
        policy, mesh = arguments.get("mp_policy"), arguments.get("mesh")
        master = dtype_named(str(trained.dtype))
        computed = dtype_named(str(getattr(policy, "param_dtype", None))) or master
        reduced = dtype_named(str(getattr(policy, "reduce_dtype", None))) or computed
        is_offloaded = type(arguments.get("offload_policy")).__name__ == "CPUOffloadPolicy"
        offload = Offload.OPTIMIZER_AND_PARAMETERS if is_offloaded else Offload.NONE
        world = dist.get_world_size()
        shards = world if mesh is None else mesh.size(-1)
        observations.see(
            engine=Engine.FSDP.value,
            fsdp_version=2,
            fsdp_units=(Units.LAYERS if _has_layers(others) else Units.WHOLE).value,
            # Each replica of the model has its own shards.
            model_parallel=shards if shards < world else None,
            reshard_after_forward=any(freed) if freed else None,
            offload=offload.value,
            precision=computed,
            master_precision=master,
            reduce_precision=reduced,
        )
        observations.see_model(root)


def _has_layers(units: Sequence[Unit]) -> bool:
    """Whether any unit is a layer: accelerate also shards the embedding and the head."""
    modules = [module for unit in units if (module := unit.module()) is not None]
    is_repeated = len({type(module) for module in modules}) < len(modules)
    return is_repeated or any(next(module.children(), None) for module in modules)


def _warn_of_undivided(model: Any) -> None:
    """Warns if a model is to be sharded by layer but names no layer class."""
    lists = (module for module in model.modules() if type(module).__name__ == "ModuleList")
    modules = (layer for items in lists for layer in items if next(layer.children(), None))
    layers = dict.fromkeys(type(module).__name__ for module in modules)
    if layers and any(parameter.requires_grad for parameter in model.parameters()):
        observations.remark(
            "FSDP holds all layers in one unit, so that every rank gathers all weights at once: "
            f"{type(model).__name__} names no class of layers (`_no_split_modules`). Name them: "
            f"FSDP_TRANSFORMER_CLS_TO_WRAP={','.join(layers)} "
            "(safe-launch explain fsdp-no-layer-class)"
        )


def _outermost(units: Mapping[int, Unit]) -> Iterator[tuple[Any, list[Unit]]]:
    """Outermost modules, each with its units, itself first."""
    modules = [module for unit in units.values() if (module := unit.module()) is not None]
    within = {
        id(module): [units[id(part)] for part in module.modules() if id(part) in units]
        for module in modules
    }
    inner = {id(unit) for group in within.values() for unit in group[1:]}
    for module in modules:
        if id(units[id(module)]) not in inner:
            yield module, within[id(module)]
