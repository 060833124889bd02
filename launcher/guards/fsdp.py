"""Applies the preset to FSDP, and notes what of it is really in force."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..core.settings import Engine, Offload, Setting, Units
from ..evidence.observations import Observations
from ..workload.readers.vocabulary import dtype_named
from .enforced import overrides

PLUGIN = "accelerate.utils.dataclasses"
FIRST = "torch.distributed.fsdp.fully_sharded_data_parallel"
STATES = (
    "torch.distributed.fsdp._fully_shard._fsdp_state",
    "torch.distributed._composable.fsdp._fsdp_state",  # before torch 2.6
)
HOOKED = (PLUGIN, FIRST, *STATES)
VARIABLES = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    # What the Trainer asks for as well: its last checkpoint has the whole model in one place.
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}
"""By which accelerate trains with FSDP2 (accelerate/utils/dataclasses.py)."""


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps accelerate's plugin, the first version's constructor, or the second's beginning."""
    wrap = wrapt.wrap_function_wrapper
    with suppress(AttributeError):  # as another version has it
        if module.__name__ == PLUGIN:
            wrap(module, "FullyShardedDataParallelPlugin.__post_init__", _configure)
        elif module.__name__ == FIRST:
            wrap(module, "FullyShardedDataParallel.__init__", partial(_construct, observations))
        else:
            wrap(module, "FSDPState._lazy_init", partial(_begin, observations))


def _configure(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Sets what the plan changes; the first version has strategies in its place."""
    wrapped(*args, **kwargs)
    reshard = overrides().get(Setting.RESHARD_AFTER_FORWARD)
    if reshard is not None and getattr(instance, "fsdp_version", 1) == 2:
        instance.reshard_after_forward = reshard


def _construct(
    observations: Observations, wrapped: Any, _instance: Any, args: Any, kwargs: Any
) -> None:
    observations.see(engine=Engine.FSDP.value, fsdp_version=1)
    wrapped(*args, **kwargs)


def _begin(observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Notes what `fully_shard` has made, once the root of its modules begins its first pass."""
    was_begun = instance._is_root is not None
    wrapped(*args, **kwargs)
    if not was_begun and instance._is_root:
        with suppress(AttributeError, LookupError, TypeError):  # as another version has it
            _see(instance, observations)


def _see(root: Any, observations: Observations) -> None:
    import torch.distributed as dist

    model = root._modules[0]
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return  # a reference model, say
    groups = [group for state in root._state_ctx.all_states for group in _groups(state)]
    own = _groups(root)
    freed = [group.post_forward_mesh_info is not None for group in groups if group not in own]
    policy = groups[0].mp_policy
    trained = [each for each in model.parameters() if each.requires_grad]
    master = dtype_named(str(trained[0].dtype))
    computed = dtype_named(str(policy.param_dtype)) or master
    shards = groups[0].mesh_info.mesh.size(-1)
    is_offloaded = type(groups[0].offload_policy).__name__ == "CPUOffloadPolicy"
    held = Offload.OPTIMIZER_AND_PARAMETERS if is_offloaded else Offload.NONE
    observations.see(
        engine=Engine.FSDP.value,
        fsdp_version=2,
        fsdp_units=(Units.LAYERS if len(groups) > 1 else Units.WHOLE).value,
        # Every copy of the model has shards of its own.
        model_parallel=shards if shards < dist.get_world_size() else None,
        reshard_after_forward=any(freed) if freed else None,
        offload=held.value,
        precision=computed,
        master_precision=master,
        reduce_precision=dtype_named(str(policy.reduce_dtype)) or computed,
    )
    observations.see_model(model)


def _groups(state: Any) -> list[Any]:
    """The groups of parameters that a state gathers together; several since torch 2.12."""
    several = getattr(state, "_fsdp_param_groups", None)
    only = state._fsdp_param_group if several is None else None
    return list(several or ()) if only is None else [only]
