"""A cell's training on one rank, using only the engines' public interfaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from .cells import Cell
from .models import Model, batches_of, model_of
from .recorded import Recorded
from .truth import Step, Truth

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SCALE = 16
"""The loss scale for fp16: no gradient overflows or vanishes with it."""


def train(cell: Cell, truth: Truth, rank: int) -> Iterator[Step]:
    """The steps of a training."""
    model = model_of(cell.model, cell.checkpointing)
    batches = batches_of(cell.accumulation)[:, :, rank]
    run = _deepspeed if cell.engine.startswith("zero") else _torch
    return run(cell, model, batches, truth)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    named = model.named_parameters()
    return {name: parameter for name, parameter in named if parameter.requires_grad}


def _deepspeed(cell: Cell, model: Model, batches: Tensor, truth: Truth) -> Iterator[Step]:
    import deepspeed

    dtype = TYPES[cell.precision]
    trained = _trained(model)
    elements = sum(parameter.numel() for parameter in trained.values())
    optimizer = Recorded(trained.values(), lr=truth.rate)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        model_parameters=list(trained.values()),
        config=_configuration(cell, truth),
    )
    is_gathered = cell.engine == "zero3"
    for step in batches:
        for micro in step:
            engine.backward(engine(micro.to(dtype)))
            engine.step()
        total, norm = optimizer.taken(elements)
        weights = {}
        for name, value in trained.items():  # one by one: of several, older releases wait for one
            with deepspeed.zero.GatheredParameters(value) if is_gathered else nullcontext():
                weights[name] = value.detach().double().clone()
        yield Step(total, norm, weights)
    engine.destroy()


def _configuration(cell: Cell, truth: Truth) -> dict[str, Any]:
    """DeepSpeed's configuration of a cell."""
    zero: dict[str, Any] = {"stage": int(cell.engine[-1])}
    if cell.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu"}
    if cell.offload == "optimizer_and_parameters":
        zero["offload_param"] = {"device": "cpu"}
    if cell.engine == "zero3":
        # Below the weights' size and above the biases': some parameters stay whole, most don't.
        zero["stage3_param_persistence_threshold"] = 20
    return {
        "train_micro_batch_size_per_gpu": batches_of(1).shape[3],
        "gradient_accumulation_steps": cell.accumulation,
        "gradient_clipping": truth.limit,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": cell.precision == "bf16"},
        "fp16": {"enabled": cell.precision == "fp16", "initial_scale_power": 4},
    }


def _torch(cell: Cell, model: Model, batches: Tensor, truth: Truth) -> Iterator[Step]:
    trained = _trained(model)
    elements = sum(parameter.numel() for parameter in trained.values())
    is_sharded = cell.engine == "fsdp2"
    wrapped = _sharded(cell, model) if is_sharded else _replicated(cell, model)
    trained = _trained(model)
    optimizer = Recorded(trained.values(), lr=truth.rate)
    dtype = TYPES[cell.precision]
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, enabled=cell.precision == "fp16")
    casts = not is_sharded and cell.precision != "fp32"
    for step in batches:
        for number, micro in enumerate(step):
            with _last(wrapped, is_last=number == len(step) - 1):
                with torch.autocast("cpu", dtype, enabled=casts):
                    loss = wrapped(micro) / cell.accumulation
                scaler.scale(loss).backward()
        if truth.limit:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(trained.values(), truth.limit)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        total, norm = optimizer.taken(elements)
        yield Step(total, norm, {name: _whole(value) for name, value in trained.items()})


def _replicated(cell: Cell, model: Model) -> nn.Module:
    return nn.parallel.DistributedDataParallel(
        model,
        static_graph=cell.engine == "ddp_static",
        find_unused_parameters=cell.engine == "ddp_unused",
    )


def _sharded(cell: Cell, model: Model) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    named: dict[str, Any] = {"mesh": init_device_mesh("cpu", (2,))}
    if cell.precision != "fp32":
        named["mp_policy"] = MixedPrecisionPolicy(TYPES[cell.precision], torch.float32)
    if cell.offload != "none":
        named["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if cell.model != "tied":  # tied weights must be in one unit
        fully_shard(model.first, **named)
        fully_shard(model.second, **named)
    fully_shard(model, **named)
    return model


def _last(wrapped: nn.Module, *, is_last: bool) -> Any:
    """Gradients inside are reduced after the last micro batch only, as in accelerate."""
    if isinstance(wrapped, nn.parallel.DistributedDataParallel):
        return nullcontext() if is_last else wrapped.no_sync()
    wrapped.set_requires_gradient_sync(is_last)  # type: ignore[operator]
    return nullcontext()


def _whole(parameter: Any) -> Tensor:
    value = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return value.detach().double().clone()
