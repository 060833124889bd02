"""Memory held from step to step: weights, gradients, states, buckets.

Notation: P elements of all parameters, Pt of the trained ones, N data-parallel ranks, e bytes of an
element of the computation (2 in 16 bit, 4 in fp32), g of a gradient, K bytes of master weights and
optimizer states a trained parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...core.choices import Checkpointing, Engine, Framework, Offload, Optimizer, Precision
from ...core.settings import Fact, Setting, Value
from ...core.workload import Workload
from .estimate import Component
from .model_sizes import ModelSizes
from .versions import is_at_least

Candidate = Mapping[Setting, Value]
"""An assignment of settings to evaluate."""

STATE_BYTES = {
    Optimizer.ADAMW: 8.0,
    Optimizer.ADAMW_8BIT: 2.0,
    Optimizer.LION: 4.0,
    Optimizer.MUON: 4.0,
    Optimizer.ADAFACTOR: 0.1,
    Optimizer.SGD: 0.0,
}
"""Bytes of optimizer state a trained parameter: two fp32 moments for Adam (arXiv 1412.6980), two of
8 bits for bitsandbytes' Adam (arXiv 2110.02861), one moment for Lion, Muon and SGD with momentum, a
row and a column of each matrix for Adafactor (arXiv 1804.04235)."""

FUSED_SINCE = {"transformers": (4, 54), "torch": (2, 8)}
"""First versions in which transformers' default AdamW is torch's fused one."""
OVERFLOW_BYTES = 11
"""Bytes per gradient element for DeepSpeed's overflow search: an fp32 copy, three masks, and the
last mask in fp32 (deepspeed/runtime/zero/stage_1_and_2.py); more than the norm's fp64 copy."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one rank, by purpose and moment.

    Attributes:
        parameters: weights, in full or this rank's partition.
        optimizer: master weights and states.
        grads_between_micro_batches: gradients kept between micro batches.
        grads_end_of_backward: all gradients at the end of the backward pass.
        largest_grad: the largest gradient, before it is reduced or partitioned.
        buckets: buffers to reduce gradients during the backward pass.
        gathered_at_turn: copies of parameters between forward and backward pass: gathered by
            ZeRO-3, or cast by autocast.
        gathered_in_layer: the same during a layer's backward pass.
        at_step: gradients and their copies at the optimizer step.
        at_norm: gradients, and temporaries of their norm and of the overflow search.
        host: the rank's bytes in host memory.
        moments: FSDP's gradients, buckets and gathered parameters at each moment of a step.
    """

    parameters: float
    optimizer: float
    at_step: float
    grads_between_micro_batches: float = 0.0
    grads_end_of_backward: float = 0.0
    largest_grad: float = 0.0
    buckets: float = 0.0
    gathered_at_turn: float = 0.0
    gathered_in_layer: float = 0.0
    at_norm: float = 0.0
    host: float = 0.0
    moments: Mapping[str, Mapping[Component, int]] = field(default_factory=dict)


def zero(sizes: ModelSizes, candidate: Candidate, world: int) -> States:
    """States of one rank under DeepSpeed."""
    stage = int(candidate.get(Setting.ZERO_STAGE, 0))
    states = (zero_0, zero_1_or_2, zero_1_or_2, zero_3)[stage](sizes, candidate, world)
    offload = Offload(str(candidate.get(Setting.OFFLOAD, Offload.NONE)))
    return states if offload is Offload.NONE else _offloaded(states, sizes, candidate, world)


def zero_0(sizes: ModelSizes, candidate: Candidate, _world: int) -> States:
    """DeepSpeed without partitioning (runtime/bf16_optimizer.py, fp16/fused_optimizer.py).

    Weights e P, master weights and states K Pt, gradients g Pt; at the step an fp32 copy of them.
    """
    size, trained = element_bytes(candidate), sizes.trained
    return States(
        parameters=size * (sizes.plain + sizes.reference) + sizes.quantized,
        optimizer=(master_bytes(sizes) - (4 if size == 4 else 0)) * trained,
        grads_between_micro_batches=size * trained if accumulates(candidate) else 0.0,
        grads_end_of_backward=size * trained,
        largest_grad=size * sizes.largest,
        at_step=(size + (4 if size == 2 else 0) + step_bytes(sizes)) * trained,
    )


def zero_1_or_2(sizes: ModelSizes, candidate: Candidate, world: int) -> States:
    """ZeRO stages 1 and 2 (arXiv 1910.02054; deepspeed/runtime/zero/stage_1_and_2.py).

    - weights e P; master weights and states K Pt / N
    - gradients of the parameters that overlap this rank's part, in full at its borders
      (`averaged_gradients`): g max(Pt / N, largest); stage 1 keeps all, g Pt, until the step
    - a bucket of reduce_bucket_size, two with overlap_comm (`ipg_buffer`)
    - the step flattens the gradients in their own type and casts the result to fp32; before, their
      norm is taken in fp64, and what overflowed is sought in an fp32 copy (`get_grad_norm_direct`,
      `_has_inf_or_nan`), tensor by tensor
    """
    size, part = element_bytes(candidate), sizes.trained / world
    grad = gradient_bytes(sizes, candidate)
    of_part = grad * max(part, min(sizes.largest, sizes.trained))
    grown = of_part if candidate[Setting.ZERO_STAGE] == 2 else grad * sizes.trained
    doubled = 2 if sizes.workload.value(Fact.OVERLAP_COMM) else 1
    contiguous = sizes.workload.value(Fact.CONTIGUOUS_GRADIENTS) is not False
    bucket = grad * sizes.elements(Fact.REDUCE_BUCKET) * doubled
    return States(
        parameters=size * (sizes.plain + sizes.reference) + sizes.quantized,
        optimizer=master_bytes(sizes) * part,
        grads_between_micro_batches=grown if accumulates(candidate) else 0.0,
        grads_end_of_backward=grown,
        largest_grad=grad * sizes.largest,
        buckets=bucket if contiguous else 0.0,
        at_step=max(
            of_part + (grad + (4 if grad == 2 else 0)) * part,
            (4 + step_bytes(sizes)) * part,  # its gradients are gone by then
        ),
        at_norm=grown + OVERFLOW_BYTES * min(sizes.largest, part),
    )


def zero_3(sizes: ModelSizes, candidate: Candidate, world: int) -> States:
    """ZeRO stage 3 (arXiv 1910.02054; deepspeed/runtime/zero/stage3.py).

    - weights e P / N, and in full those below the persistence threshold
    - master weights and states K Pt / N, gradients g Pt / N in a permanent buffer
      (`grad_partitions_flat_buffer`), a permanent bucket (`ipg_buckets`)
    - gathered: parameters used again within max_reuse_distance aren't released, which at the turn
      from forward to backward is half that distance from the model's end; in addition the layer
      at work and the prefetched layers (partitioned_param_coordinator.py)
    - the step casts the gradients of one sub group to fp32
    """
    size, part = element_bytes(candidate), sizes.trained / world
    grad = gradient_bytes(sizes, candidate)
    retained = min(
        sizes.elements(Fact.MAX_REUSE_DISTANCE) // 2, sizes.elements(Fact.MAX_LIVE_PARAMETERS)
    )
    fetched, most = sizes.elements(Fact.PREFETCH_BUCKET), sizes.plain - sizes.small
    # Reentrant recomputation ends with a release, like a forward pass; each linear layer is then
    # gathered again.
    nested = candidate.get(Setting.GRADIENT_CHECKPOINTING) == Checkpointing.REENTRANT
    at_work = sizes.widest if nested else sizes.layer
    kept = grad * part
    group = min(sizes.elements(Fact.SUB_GROUP), part)
    return States(
        parameters=(size * (sizes.plain + sizes.reference) + sizes.quantized) / world
        + size * sizes.small,
        optimizer=master_bytes(sizes) * part,
        grads_between_micro_batches=kept,
        grads_end_of_backward=kept,
        largest_grad=size * sizes.largest,
        buckets=size * sizes.elements(Fact.REDUCE_BUCKET),
        gathered_at_turn=size * min(max(retained, sizes.head) + fetched, most),
        gathered_in_layer=size * min(max(retained, at_work) + fetched, most),
        at_step=kept + (max(grad, step_bytes(sizes)) + (4 if grad == 2 else 0)) * group,
    )


def _offloaded(states: States, sizes: ModelSizes, candidate: Candidate, world: int) -> States:
    """Moves the optimizer, or the parameters too, to host memory.

    Master weights, states and gradients, in their dtype and in fp32, are in host memory; each
    gradient moves there once reduced (stage_1_and_2.py, `cpu_offload`; stage3.py,
    `offload_optimizer`).
    """
    stage = int(candidate.get(Setting.ZERO_STAGE, 0))
    share = world if stage else 1
    host = (master_bytes(sizes) + 4 + gradient_bytes(sizes, candidate)) * sizes.trained / share
    parameters = states.parameters
    if candidate[Setting.OFFLOAD] == Offload.OPTIMIZER_AND_PARAMETERS and stage == 3:
        moved = (element_bytes(candidate) * sizes.plain + sizes.quantized) / world
        host, parameters = host + moved, parameters - moved
    return replace(
        states,
        parameters=parameters,
        optimizer=0.0,
        grads_between_micro_batches=states.grads_between_micro_batches if stage == 1 else 0.0,
        grads_end_of_backward=states.grads_end_of_backward if stage == 1 else states.largest_grad,
        at_step=states.largest_grad,
        at_norm=0.0,
        host=host,
    )


def data_parallel(sizes: ModelSizes, candidate: Candidate, world: int) -> States:
    """DistributedDataParallel with autocast: every rank holds everything in full.

    - weights in the type in which they were loaded, an adapter's in fp32 (peft's
      `autocast_adapter_dtype`); gradients and states in the trained weights' type
    - autocast keeps 16-bit copies of fp32 weights through the forward pass
    - buckets are a second copy of the gradients (torch/nn/parallel/distributed.py,
      `gradient_as_bucket_view`)
    - the optimizer steps in place, with temporaries of the size of the parameters if it isn't
      fused
    """
    loaded, computed = loaded_bytes(sizes.workload), element_bytes(candidate)
    others = sizes.trained - sizes.in_fp32
    gradients = loaded * others + 4 * sizes.in_fp32
    state = STATE_BYTES[optimizer_of(sizes.workload)]
    cast = sizes.in_fp32 + (sizes.plain - sizes.in_fp32 if loaded == 4 else 0)
    copies = 2 * cast if computed == 2 else 0
    return States(
        parameters=loaded * (sizes.plain + sizes.reference - sizes.in_fp32)
        + 4 * sizes.in_fp32
        + sizes.quantized,
        optimizer=(state / 4 * gradients if state >= 4 else state * sizes.trained),
        grads_between_micro_batches=gradients if accumulates(candidate) else 0.0,
        grads_end_of_backward=gradients,
        largest_grad=loaded * sizes.largest,
        buckets=gradients if world > 1 else 0.0,
        gathered_at_turn=copies,
        gathered_in_layer=copies,
        at_step=gradients * (1 + step_bytes(sizes) / 4),
    )


def step_bytes(sizes: ModelSizes) -> int:
    """Bytes of temporaries per fp32 parameter in AdamW's step.

    On an accelerator, torch.optim.AdamW processes all parameters at once ("foreach"), with
    temporaries about as large as they are (torch/optim/optimizer.py, `_foreach_doc`); fused kernels
    of torch and DeepSpeed need none. Assumes transformers' default if nothing is stated: torch's
    fused one since 4.54 with torch 2.8 (transformers/training_args.py, `default_optim`).
    """
    workload = sizes.workload
    if not sizes.foreach or optimizer_of(workload) is not Optimizer.ADAMW:
        return 0
    fused = workload.value(Fact.FUSED_STEP)
    if fused is None:
        fused = workload.framework is Framework.TRANSFORMERS and all(
            is_at_least(workload, name, *version) for name, version in FUSED_SINCE.items()
        )
    return 0 if fused else 4


def is_deepspeed(workload: Workload, candidate: Candidate) -> bool:
    """Whether DeepSpeed's engine trains."""
    engine = workload.engine
    return engine is Engine.DEEPSPEED or (engine is None and Setting.ZERO_STAGE in candidate)


def checkpointing_of(workload: Workload, candidate: Candidate) -> Checkpointing:
    """The checkpointing mode; the lighter one if unknown."""
    mode = candidate.get(Setting.GRADIENT_CHECKPOINTING)
    if mode is not None:
        return Checkpointing(str(mode))
    is_on = bool(workload.value(Fact.CHECKPOINTED))
    return Checkpointing.NON_REENTRANT if is_on else Checkpointing.OFF


def element_bytes(candidate: Candidate) -> int:
    """Bytes per element in forward and backward passes."""
    return 4 if candidate.get(Setting.PRECISION) == Precision.FP32 else 2


def gradient_bytes(sizes: ModelSizes, candidate: Candidate) -> int:
    """Bytes per gradient element in DeepSpeed."""
    return 4 if sizes.workload.value(Fact.FP32_ACCUMULATION) else element_bytes(candidate)


def loaded_bytes(workload: Workload) -> int:
    """Bytes per weight element without an engine's cast.

    By default, transformers uses the checkpoint's dtype since 5.0 (modeling_utils.py,
    `from_pretrained`), and fp32 before.
    """
    loaded = workload.value(Fact.LOADED_PRECISION)
    if loaded is not None:
        return 4 if loaded == Precision.FP32 else 2
    in_16_bit = workload.model is not None and workload.model.stored in ("bfloat16", "float16")
    return 2 if in_16_bit and is_at_least(workload, "transformers", 5, 0) else 4


def optimizer_of(workload: Workload) -> Optimizer:
    """The optimizer; AdamW, the usual default, if unknown."""
    return Optimizer(str(workload.value(Fact.OPTIMIZER) or Optimizer.ADAMW))


def master_bytes(sizes: ModelSizes) -> float:
    """K: bytes of fp32 master weights and optimizer states per trained parameter."""
    return 4 + STATE_BYTES[optimizer_of(sizes.workload)]


def accumulates(candidate: Candidate) -> bool:
    """Whether a step has several micro batches."""
    return int(candidate.get(Setting.ACCUMULATION, 1)) > 1
