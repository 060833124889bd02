"""Estimates a candidate's memory on every rank, by component, and the estimate's error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from ...core.choices import Adapter, Engine, Objective
from ...core.hardware import Hardware
from ...core.settings import Fact, Setting
from ...core.workload import Measured, Workload
from .activations import Types, activations_of, tokens_of
from .adapters import assumed
from .allocator import allocator_of
from .estimate import Component, Estimate, Phase, Ranks
from .fsdp_states import fsdp_states
from .logits import logits_of
from .model_sizes import ModelSizes, model_sizes_of
from .training_states import (
    Candidate,
    States,
    checkpointing_of,
    data_parallel,
    element_bytes,
    is_deepspeed,
    loaded_bytes,
    zero,
)
from .versions import is_at_least

STAYS = (Component.PARAMETERS, Component.OPTIMIZER, Component.CONTEXT)
"""Components that are constant within a step."""
SURELY = 1.02
"""Assumed minimum need of an attempt that ran out of memory, relative to its limit."""
SPREAD = 0.01
"""Relative difference in memory of equal processes, at most in small ones."""
RESERVED = 2**27
"""Address space that glibc reserves for a thread's arena (malloc/arena.c, twice HEAP_MAX_SIZE). A
process is measured by its address space, and arenas don't grow with the batch."""
MOST_SCALED = 2.0
"""Maximum ratio of the measured memory that changes within a step to the formulas': any excess is
something else that doesn't grow with the batch. The ratio has no minimum, as sequences can be
short."""


def estimate(
    workload: Workload, candidate: Candidate, hardware: Hardware, ranks: Ranks
) -> Estimate | None:
    """A candidate's memory on every rank; None if the model is unknown.

    Absent settings have DeepSpeed's or torch's defaults.
    """
    sizes = calibrated_sizes(workload, hardware, ranks)
    return None if sizes is None else estimate_of(sizes, candidate, hardware, ranks)


def calibrated_sizes(workload: Workload, hardware: Hardware, ranks: Ranks) -> ModelSizes | None:
    """Sizes of a workload's model, calibrated with the measured memory of attempts.

    A completed attempt needed the memory it held; one that ran out of memory needed more than its
    limit. To match both, first the memory that changes within a step is scaled. If that doesn't
    suffice, the rest doesn't shrink with the batch, and counts as context.
    """
    sizes = model_sizes_of(workload)
    if sizes is None or not (hardware.accelerator.sized or hardware.accelerator.memory):
        return None
    sizes = replace(sizes, foreach=hardware.accelerator.memory > 0)
    if workload.trained is not None:
        sizes = _as_trained(sizes, workload.trained, hardware, ranks)
    if not workload.measured:
        return sizes
    if workload.trained is None:
        contexts = [each.context for each in workload.measured if each.context is not None]
        sizes = replace(sizes, context=max(contexts, default=None))
    for number, measured in enumerate(workload.measured):
        peak = estimate_of(sizes, measured.settings, hardware, ranks).peak
        short = max(measured.needed, int(SURELY * measured.limit)) - peak.needed
        moving = peak.needed - sum(peak.components[part] for part in STAYS)
        if short <= 0:
            continue
        if number == 0 and moving > 0:
            sizes = replace(sizes, scale=sizes.scale * (1 + short / moving))
        else:
            context = hardware.accelerator.taken if sizes.context is None else sizes.context
            sizes = replace(sizes, context=context + short)
    return sizes


def _as_trained(
    sizes: ModelSizes, trained: Measured, hardware: Hardware, ranks: Ranks
) -> ModelSizes:
    """The sizes, scaled to match a training's measured memory."""
    context = hardware.accelerator.taken if trained.context is None else trained.context
    sizes = replace(sizes, context=context)
    peak = estimate_of(sizes, trained.settings, hardware, ranks).peak
    if not hardware.accelerator.memory:
        context += min(max(trained.needed - peak.needed, 0), RESERVED)
        sizes = replace(sizes, context=context)
        peak = estimate_of(sizes, trained.settings, hardware, ranks).peak
    moving = peak.needed - sum(peak.components[part] for part in STAYS)
    missing = trained.needed - peak.needed
    scale = 1 + missing / moving if moving > 0 else 1.0
    sizes = replace(sizes, scale=min(max(scale, 0.0), MOST_SCALED))
    left = trained.needed - estimate_of(sizes, trained.settings, hardware, ranks).peak.needed
    return replace(sizes, context=max(context + left, 0))


def estimate_of(
    sizes: ModelSizes, candidate: Candidate, hardware: Hardware, ranks: Ranks
) -> Estimate:
    """A candidate's memory, from sizes computed once for all candidates."""
    states = states_of(sizes, candidate, ranks.world)
    context = hardware.accelerator.taken if sizes.context is None else sizes.context
    has_memory = hardware.accelerator.memory > 0
    stays = {
        Component.PARAMETERS: int(states.parameters),
        # On a CPU, offloaded data is in the same memory.
        Component.OPTIMIZER: int(states.optimizer + (0 if has_memory else states.host)),
        Component.CONTEXT: context,
    }
    allocator = allocator_of(sizes.workload, hardware)
    moments = {
        name: {part: int(sizes.scale * size) for part, size in moving.items()}
        for name, moving in phases_of(sizes, candidate, states).items()
    }
    gathered = int(states.gathered_at_turn) if candidate.get(Setting.ZERO_STAGE) == 3 else 0
    kept = allocator.kept(moments, gathered, sizes.workload)
    capacity = hardware.accelerator.memory - hardware.in_use
    room = capacity if sizes.limit is None else min(sizes.limit, capacity)
    needed = {
        name: {**stays, **moving, Component.SLACK: int(allocator.fragments * sum(moving.values()))}
        for name, moving in moments.items()
    }
    most = max(sum(components.values()) for components in needed.values())
    held = max(sum(needed[name].values()) + kept[name] for name in needed)
    # Cached memory shrinks only if there is no room.
    held = max(most, min(held, room))
    phases = [
        Phase(name, {**components, Component.KEPT: held - sum(components.values())})
        for name, components in needed.items()
    ]
    fixed = sum(stays.values())
    taken = list(assumed(sizes.workload))
    if tokens_of(sizes) is None:
        taken.append("the length of a sequence isn't known: activations and logits aren't counted")
    return Estimate(
        phases=tuple(phases),
        bound=allocator.bound(most, held, fixed, room),
        host=int(states.host * ranks.on_host) if has_memory else 0,
        # A configuration measured to run out of memory isn't retried within the error.
        error=-SPREAD if sizes.workload.measured else ERRORS[family_of(sizes)],
        assumed=tuple(taken),
    )


def states_of(sizes: ModelSizes, candidate: Candidate, world: int) -> States:
    """States of one rank under the candidate."""
    if sizes.workload.engine is Engine.FSDP:
        return fsdp_states(sizes, candidate, world)
    engine = zero if is_deepspeed(sizes.workload, candidate) else data_parallel
    return engine(sizes, candidate, world)


def phases_of(
    sizes: ModelSizes, candidate: Candidate, states: States
) -> dict[str, Mapping[Component, int]]:
    """Possible peaks of a step, with the changing memory at each."""
    moments = states.moments or _moments(sizes, candidate, states)
    step = {Component.STEP: int(max(states.at_step, states.at_norm))}
    stage_3 = candidate.get(Setting.ZERO_STAGE) == 3
    if stage_3 or not is_deepspeed(sizes.workload, candidate):
        step[Component.BUCKETS] = int(states.buckets)
    tokens = tokens_of(sizes)
    if tokens is None:
        ending = {**moments["loss"], Component.GRADIENTS: int(states.grads_end_of_backward)}
        return {**(states.moments or {"backward": ending}), "step": step}
    paired = sizes.workload.value(Fact.OBJECTIVE) == Objective.PREFERENCE
    pairs = 2 if paired and not sizes.workload.value(Fact.PACKED) else 1
    micro_batch = int(candidate.get(Setting.MICRO_BATCH, 1)) * pairs
    mode = checkpointing_of(sizes.workload, candidate)
    size = element_bytes(candidate)
    held = activations_of(
        sizes.model, tokens, micro_batch, types_of(sizes.workload, candidate), mode, sizes.workload
    )
    logits = logits_of(sizes, tokens, micro_batch, size)
    at_turn = held.layers_at_turn + held.final_norm
    layer = held.layers_at_turn // sizes.model.language.layers
    earlier = held.layers_at_turn - layer
    passed = {
        "forward": (at_turn, logits.forward, held.vision),
        "loss": (at_turn, logits.peak, held.vision),
        "output projection": (at_turn, logits.gradient, held.vision),
        "last layer": (held.layers_at_turn + held.one_layer, 0, held.vision),
        "end of last layer": (earlier, 0, held.vision),
        "next layer": (earlier + held.one_layer, 0, held.vision),
        "end of next layer": (max(earlier - layer, 0), 0, held.vision),
        "second layer": (held.first_layer + layer, 0, held.vision),
        "end of second layer": (layer, 0, held.vision),
        "first layer": (held.first_layer, 0, held.vision),
    }
    phases: dict[str, Mapping[Component, int]] = {}
    for name, components in moments.items():
        activations, of_logits, vision = passed.get(name, (0, 0, held.vision))
        phases[name] = {
            **components,
            Component.ACTIVATIONS: activations,
            Component.LOGITS: of_logits,
            Component.VISION: vision,
        }
    # PPO: gathered for generation (trl/models/utils.py, `unwrap_model_for_generation`).
    generates = stage_3 and sizes.workload.value(Fact.TRAINED_BESIDE)
    generation = {Component.GATHERED: size * sizes.plain if generates else 0}
    return {**phases, "step": step, "generation": generation}


def _moments(
    sizes: ModelSizes, candidate: Candidate, states: States
) -> dict[str, dict[Component, int]]:
    """Gradients, buckets and gathered parameters at each moment under DeepSpeed and DDP."""
    size, between = element_bytes(candidate), states.grads_between_micro_batches
    at_turn = {
        Component.GRADIENTS: int(between),
        Component.BUCKETS: int(states.buckets),
        Component.GATHERED: int(states.gathered_at_turn),
    }
    in_layer = {**at_turn, Component.GATHERED: int(states.gathered_in_layer)}
    whole_head = size * sizes.head if sizes.head_is_trained else 0
    ending = states.grads_end_of_backward
    # The embedding and the first layer come last.
    before_first = max(between, ending - states.largest_grad - size * sizes.layer)
    return {
        "loss": at_turn,
        "output projection": {**at_turn, Component.GRADIENTS: int(between) + whole_head},
        "last layer": {**in_layer, Component.GRADIENTS: int(between + states.largest_grad)},
        "first layer": {**in_layer, Component.GRADIENTS: int(before_first)},
        "end of backward": {**in_layer, Component.GRADIENTS: int(ending + states.largest_grad)},
    }


def types_of(workload: Workload, candidate: Candidate) -> Types:
    """Bytes per element of activations, and the operations that save them."""
    computed = element_bytes(candidate)
    fused = bool(workload.value(Fact.FUSED_LAYERS))
    by_bitsandbytes = "bitsandbytes" in workload.versions and not workload.value(Fact.CALIBRATED)
    keeps = by_bitsandbytes and not is_at_least(workload, "bitsandbytes", 0, 44)
    if workload.engine is Engine.FSDP or is_deepspeed(workload, candidate):
        stage_3 = candidate.get(Setting.ZERO_STAGE) == 3
        return Types(computed, computed, computed, stage_3, quantized_input=keeps, fused=fused)
    adapter = 4 if workload.value(Fact.ADAPTER) == Adapter.LORA else computed
    stream = loaded_bytes(workload)
    return Types(computed, stream, adapter, quantized_input=keeps, fused=fused)


class Family(StrEnum):
    """A kind of training with similar estimate errors."""

    FULL = "full"
    """All weights are trained."""
    LORA = "lora"
    """Adapters beside 16-bit weights."""
    QUANTIZED = "quantized"
    """Adapters beside weights in fewer bits."""
    PREFERENCE = "preference"
    """Preferences, distillation, and other trainings with a second model."""
    VISION = "vision"
    """A vision-language model."""


ERRORS: Mapping[Family, float] = MappingProxyType(
    {
        Family.FULL: 0.25,
        Family.LORA: 0.3,
        Family.QUANTIZED: 0.3,
        Family.PREFERENCE: 0.2,
        Family.VISION: 0.3,
    }
)
"""Relative error not exceeded by 19 of 20 estimates of a family, from published measurements of one
sample per batch or of a known length (docs/measured/memory-published.md)."""


def family_of(sizes: ModelSizes) -> Family:
    """The family of a training: of several, the one with the largest error."""
    is_plain = sizes.workload.value(Fact.OBJECTIVE) in (None, Objective.SUPERVISED)
    if not is_plain or sizes.workload.value(Fact.FROZEN_BESIDE):
        return Family.PREFERENCE
    if sizes.model.vision is not None:
        return Family.VISION
    if sizes.quantized:
        return Family.QUANTIZED
    return Family.LORA if sizes.in_fp32 else Family.FULL
