"""Predicts a candidate's step time, only to rank candidates.

Includes dense FLOPs of the forward and backward pass (arXiv 2001.08361, section 2.1), another
forward with checkpointing, the volumes sent by each ZeRO stage
(https://www.deepspeed.ai/2021/03/07/zero3-offload.html: 2 Pt up to stage 2, 3 P at stage 3) and by
FSDP2, and offload's transfers between host and accelerator.
"""

from __future__ import annotations

from ...core.choices import Checkpointing, Engine, Objective, Offload
from ...core.hardware import Hardware
from ...core.settings import Fact, Setting
from .estimate import Ranks
from .fsdp_states import bytes_of_elements, is_deferred
from .model_sizes import ModelSizes
from .training_states import (
    Candidate,
    checkpointing_of,
    element_bytes,
    gradient_bytes,
    is_deepspeed,
)

UTILISATION = 0.45
"""Share of the dense peak reached in training; cancels out except in comparisons with
communication."""
OVERLAP = 0.5
"""Overlap of computation and communication, as a share of the shorter one."""
LAUNCHES = 6e-4
"""Seconds to launch a layer's kernels in one micro batch, forward and backward."""
HOST_BANDWIDTH = 1.5e11
"""Bytes/s of a node's CPUs in the optimizer step, all ranks together."""
TOKENS = 1024
"""Assumed tokens per sample if the sequence length is unknown."""


def step_seconds(
    sizes: ModelSizes, candidate: Candidate, hardware: Hardware, ranks: Ranks
) -> float:
    """Seconds of one optimizer step on every rank."""
    computed = _compute(sizes, candidate, hardware)
    sent = _communication(sizes, candidate, hardware, ranks)
    overlapped = OVERLAP * min(computed, sent)
    return computed + sent - overlapped + _offload(sizes, candidate, hardware, ranks)


def _compute(sizes: ModelSizes, candidate: Candidate, hardware: Hardware) -> float:
    """Seconds of the passes: forward, gradients of inputs and weights, recomputation."""
    steps = int(candidate.get(Setting.ACCUMULATION, 1))
    micro_batch = int(candidate.get(Setting.MICRO_BATCH, 1))
    length = int(sizes.workload.value(Fact.SEQUENCE_LENGTH) or TOKENS)
    pairs = 2 if sizes.workload.value(Fact.OBJECTIVE) == Objective.PREFERENCE else 1
    tokens = length * micro_batch * pairs
    again = checkpointing_of(sizes.workload, candidate) is not Checkpointing.OFF
    active = _active_elements(sizes)
    passes = (2 + again) * active + sizes.trained
    seconds = 2 * passes * tokens / (hardware.accelerator.compute * UTILISATION)
    return steps * (seconds + LAUNCHES * sizes.model.language.layers * (3 + again) / 3)


def _active_elements(sizes: ModelSizes) -> int:
    """Elements used per token: in a mixture, only those of the routed experts."""
    stack = sizes.model.language
    if not stack.experts:
        return sizes.model.parameters
    expert = (3 if stack.gated else 2) * stack.hidden * stack.ffn * stack.layers
    return sizes.model.parameters - expert * (stack.experts - stack.experts_per_token)


def _communication(
    sizes: ModelSizes, candidate: Candidate, hardware: Hardware, ranks: Ranks
) -> float:
    """Seconds to send gradients per step, and at stage 3 parameters twice per micro batch.

    Stage 2 reduces in every micro batch; DDP and stage 1 once per step. Over several hosts the
    slowest link in the rings sets the pace.
    """
    if ranks.world == 1:
        return 0.0
    steps = int(candidate.get(Setting.ACCUMULATION, 1))
    size, grad = element_bytes(candidate), gradient_bytes(sizes, candidate)
    fsdp = sizes.workload.engine is Engine.FSDP
    stage = candidate.get(Setting.ZERO_STAGE) if is_deepspeed(sizes.workload, candidate) else None
    match stage:
        case _ if fsdp:
            volume = _sent_by_fsdp(sizes, candidate, steps)
        case 3:
            parameters = size * sizes.plain + sizes.quantized
            volume = steps * (2 * parameters + grad * sizes.trained)
        case 2:
            volume = steps * grad * sizes.trained + size * sizes.trained
        case 1:
            volume = (grad + size) * sizes.trained
        case _:
            volume = 2 * grad * sizes.trained
    device = hardware.accelerator
    link = min(device.link, device.node_link) if ranks.span_hosts else device.link
    return volume * (1 - 1 / ranks.world) / link


def _sent_by_fsdp(sizes: ModelSizes, candidate: Candidate, steps: int) -> float:
    """Bytes sent by FSDP2: weights for each micro batch's passes, and gradients."""
    bytes_of = bytes_of_elements(sizes, candidate)
    gathers = 1 + (candidate.get(Setting.RESHARD_AFTER_FORWARD, True) is not False)
    reductions = 1 if is_deferred(sizes) else steps
    gathered = steps * gathers * bytes_of.computed * sizes.plain
    return gathered + reductions * bytes_of.reduced * sizes.trained


def _offload(sizes: ModelSizes, candidate: Candidate, hardware: Hardware, ranks: Ranks) -> float:
    """Seconds of offload: gradients down, weights up, the step on the CPU, parameters per pass.

    The step reads and writes weights, two moments and the gradient, about 28 bytes an element
    (arXiv 2101.06840, section 5).
    """
    offload = candidate.get(Setting.OFFLOAD, Offload.NONE)
    if offload == Offload.NONE:
        return 0.0
    size, part = element_bytes(candidate), sizes.trained / ranks.world
    link = hardware.accelerator.host_link
    seconds = 2 * size * part / link + 28 * part * ranks.on_host / HOST_BANDWIDTH
    if offload == Offload.OPTIMIZER_AND_PARAMETERS:
        steps = int(candidate.get(Setting.ACCUMULATION, 1))
        seconds += steps * 2 * (size * sizes.plain + sizes.quantized) / ranks.world / link
    return seconds
