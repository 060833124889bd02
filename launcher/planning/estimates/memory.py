"""The memory that a candidate needs on every rank, by component."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core.hardware import Hardware
from ...core.settings import Adapter, Fact, Objective, Setting
from ...core.workload import Workload
from .activations import Types, activations_of, logits_of, tokens_of
from .adapters import assumed
from .estimate import Component, Estimate, Phase
from .model_sizes import ModelSizes, model_sizes_of
from .ranks import Ranks
from .training_states import (
    Candidate,
    States,
    checkpointing_of,
    element_bytes,
    is_deepspeed,
    loaded_bytes,
    states_of,
)

STAYS = (Component.PARAMETERS, Component.OPTIMIZER, Component.CONTEXT)
"""Components that are the same at every moment of a step."""
MOVES_WITH_TOKENS = (Component.ACTIVATIONS, Component.LOGITS, Component.VISION)


@dataclass(frozen=True, slots=True)
class Allocator:
    """The overhead of torch's caching allocator, as shares of the memory that changes in a step.

    Attributes:
        fragments: share of all such memory that is held in fragments.
        varying: share of what depends on the tokens, where the lengths of sequences vary.
        gathered: share of what ZeRO-3 gathers, in blocks of all sizes.
        margin: the bound's margin on the memory that changes.
        margin_of_states: the bound's margin on the memory that doesn't change.
        margin_in_bytes: the bound's fixed margin.
    """

    fragments: float
    varying: float
    gathered: float
    margin: float
    margin_of_states: float
    margin_in_bytes: int


EXPANDABLE = Allocator(0.04, 0.1, 0.1, margin=0.15, margin_of_states=0.02, margin_in_bytes=2**29)
"""With expandable segments, or without a caching allocator as on a CPU."""
CACHING = Allocator(0.04, 1.3, 3.0, margin=1.0, margin_of_states=0.1, margin_in_bytes=2**30)
"""Without expandable segments blocks of every size are held. Chosen by published measurements of
reserved memory, which docs/measured/memory-published.md lists by source: `varying` by ms-swift's
benchmark, `gathered` by Qwen's ZeRO-3 rows."""

SURELY = 1.02
"""An attempt that ran out of memory is assumed to have needed at least this times its limit."""
MARGIN_OF_PROCESS = 2**26
"""Bytes that the bound adds on a CPU: stacks of threads that start with the training."""


def estimate(
    workload: Workload, candidate: Candidate, hardware: Hardware, ranks: Ranks
) -> Estimate | None:
    """The memory that a candidate needs on every rank; None where the model isn't known.

    Args:
        workload: what is known of the training.
        candidate: the settings; absent settings have DeepSpeed's or torch's default.
        hardware: the hardware of every node.
        ranks: the data-parallel ranks.
    """
    sizes = calibrated_sizes(workload, hardware, ranks)
    return None if sizes is None else estimate_of(sizes, candidate, hardware, ranks)


def calibrated_sizes(workload: Workload, hardware: Hardware, ranks: Ranks) -> ModelSizes | None:
    """The sizes of a workload's model, calibrated with the memory that attempts have needed.

    An attempt that ran out of memory needed more than it could get, and the formulas must agree.
    At first the memory that changes in a step is scaled. If that wasn't enough, the missing memory
    doesn't shrink with the batch, and counts as context.
    """
    sizes = model_sizes_of(workload)
    if sizes is None or not workload.measured:
        return sizes
    contexts = [measured.context for measured in workload.measured if measured.context is not None]
    sizes = replace(sizes, context=max(contexts, default=None))
    for number, measured in enumerate(workload.measured):
        peak = estimate_of(sizes, measured.settings, hardware, ranks).peak
        short = max(measured.needed, int(SURELY * measured.limit)) - peak.total
        moving = peak.total - sum(peak.components[part] for part in STAYS)
        if short <= 0:
            continue
        if number == 0 and moving > 0:
            sizes = replace(sizes, scale=sizes.scale * (1 + short / moving))
        else:
            context = hardware.accelerator.taken if sizes.context is None else sizes.context
            sizes = replace(sizes, context=context + short)
    return sizes


def estimate_of(
    sizes: ModelSizes, candidate: Candidate, hardware: Hardware, ranks: Ranks
) -> Estimate:
    """The memory that a candidate needs; the sizes are computed once for all candidates."""
    states = states_of(sizes, candidate, ranks.world)
    context = hardware.accelerator.taken if sizes.context is None else sizes.context
    own_memory = hardware.accelerator.memory > 0
    stays = {
        Component.PARAMETERS: int(states.parameters),
        # On a CPU, offloaded data is in the same memory.
        Component.OPTIMIZER: int(states.optimizer + (0 if own_memory else states.host)),
        Component.CONTEXT: context,
    }
    allocator = allocator_of(sizes.workload, hardware)
    varies = bool(sizes.workload.value(Fact.LENGTHS_VARY))
    partitioned = candidate.get(Setting.ZERO_STAGE) == 3

    def slack_of(moving: dict[Component, int]) -> int:
        with_tokens = sum(moving.get(part, 0) for part in MOVES_WITH_TOKENS)
        gathered = int(states.gathered_at_turn) if partitioned else 0
        held = allocator.fragments * sum(moving.values()) + allocator.gathered * gathered
        return int(held + (allocator.varying * with_tokens if varies else 0))

    phases = []
    for name, moving in phases_of(sizes, candidate, states).items():
        scaled = {part: int(sizes.scale * size) for part, size in moving.items()}
        phases.append(Phase(name, {**stays, **scaled, Component.SLACK: slack_of(scaled)}))
    expected = max(phase.total for phase in phases)
    fixed = sum(stays.values())
    bound = expected + allocator.margin * (expected - fixed) + allocator.margin_of_states * fixed
    taken = list(assumed(sizes.workload))
    if tokens_of(sizes.workload, sizes.model) is None:
        taken.append("the length of a sequence isn't known: activations and logits aren't counted")
    return Estimate(
        phases=tuple(phases),
        bound=int(bound) + (allocator.margin_in_bytes if own_memory else MARGIN_OF_PROCESS),
        host=int(states.host * ranks.on_host) if own_memory else 0,
        assumed=tuple(taken),
    )


def allocator_of(workload: Workload, hardware: Hardware) -> Allocator:
    """The workers' allocator, as configured by the user's environment or the profile."""
    device = hardware.accelerator
    stated = workload.value(Fact.EXPANDABLE_SEGMENTS)
    if stated is None:
        stated = any("expandable_segments:True" in text for text in device.environment.values())
    return EXPANDABLE if stated or device.kind == "cpu" else CACHING


def phases_of(
    sizes: ModelSizes, candidate: Candidate, states: States
) -> dict[str, dict[Component, int]]:
    """The moments of a step that can be the peak, with the memory that changes in each."""
    pending = {
        Component.GRADIENTS: int(states.grads_between_micro_batches),
        Component.BUCKETS: int(states.buckets),
        Component.GATHERED: int(states.gathered_at_turn),
    }
    step = {Component.STEP: int(states.at_step)}
    if candidate.get(Setting.ZERO_STAGE) == 3 or not is_deepspeed(sizes.workload, candidate):
        step[Component.BUCKETS] = int(states.buckets)
    tokens = tokens_of(sizes.workload, sizes.model)
    if tokens is None:
        return {
            "backward": {**pending, Component.GRADIENTS: int(states.grads_end_of_backward)},
            "step": step,
        }
    pairs = 2 if sizes.workload.value(Fact.OBJECTIVE) == Objective.PREFERENCE else 1
    micro_batch = int(candidate.get(Setting.MICRO_BATCH, 1)) * pairs
    mode = checkpointing_of(sizes.workload, candidate)
    size = element_bytes(candidate)
    held = activations_of(
        sizes.model, tokens, micro_batch, types_of(sizes.workload, candidate), mode, sizes.workload
    )
    logits = logits_of(sizes.model, tokens, micro_batch, size, sizes.workload)
    at_turn = {**pending, Component.VISION: held.vision}
    whole_head = size * sizes.head if sizes.head_is_trained else 0
    in_layer = {**at_turn, Component.GATHERED: int(states.gathered_in_layer)}
    # The embedding and the first layer come last.
    before_first = max(
        states.grads_between_micro_batches,
        states.grads_end_of_backward - states.largest_grad - size * sizes.layer,
    )
    return {
        "loss": {
            **at_turn,
            Component.ACTIVATIONS: held.layers_at_turn + held.final_norm,
            Component.LOGITS: logits.peak,
        },
        "output projection": {
            **at_turn,
            Component.GRADIENTS: int(states.grads_between_micro_batches) + whole_head,
            Component.ACTIVATIONS: held.layers_at_turn + held.final_norm,
            Component.LOGITS: logits.gradient,
        },
        "last layer": {
            **in_layer,
            Component.GRADIENTS: int(states.grads_between_micro_batches + states.largest_grad),
            Component.ACTIVATIONS: held.layers_at_turn + held.one_layer,
        },
        "first layer": {
            **in_layer,
            Component.GRADIENTS: int(before_first),
            Component.ACTIVATIONS: held.first_layer,
        },
        "end of backward": {
            **in_layer,
            Component.GRADIENTS: int(states.grads_end_of_backward + states.largest_grad),
        },
        "step": step,
    }


def types_of(workload: Workload, candidate: Candidate) -> Types:
    """Bytes of the elements of activations."""
    computed = element_bytes(candidate)
    if is_deepspeed(workload, candidate):
        stage_3 = candidate.get(Setting.ZERO_STAGE) == 3
        return Types(computed, computed, computed, every_input=stage_3)
    adapter = 4 if workload.value(Fact.ADAPTER) == Adapter.LORA else computed
    return Types(computed, loaded_bytes(workload), adapter)
