"""Other tools' rules for training memory, restated for comparison.

Each function gives bytes on one GPU, or None if its authors don't claim to cover the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

GB = 10**9


@dataclass(frozen=True, slots=True)
class Run:
    """The inputs of the rules.

    Attributes:
        parameters: elements of the model.
        hidden: width of the residual stream.
        layers: transformer layers.
        heads: attention heads.
        kv_heads: heads of keys and values.
        ffn: width of the feed-forward part.
        gated: whether it has a gate.
        vocabulary: entries of the embedding.
        full: whether all parameters are trained; otherwise adapters.
        bits: bits in which frozen weights are held.
        zero_stage: DeepSpeed's stage; None without DeepSpeed.
        world: data-parallel ranks.
        micro_batch: sequences of a rank.
        length: tokens of a sequence.
        checkpointing: whether activations are recomputed.
        pure_16_bit: whether weights, gradients and optimizer states are all 16-bit.
    """

    parameters: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    gated: bool
    vocabulary: int
    full: bool = True
    bits: int = 16
    zero_stage: int | None = None
    world: int = 1
    micro_batch: int = 1
    length: int = 2048
    checkpointing: bool = True
    pure_16_bit: bool = False


def zero_2_states(parameters: float, gpus: int) -> float:
    """DeepSpeed's estimate for stage 2 without offload.

    16-bit weights on every GPU, 18 bytes a parameter partitioned; no activations.
    `estimate_zero2_model_states_mem_needs` in
    https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py
    """
    return 2 * parameters + 18 * parameters / gpus


def zero_3_states(parameters: float, largest_layer: float, gpus: int) -> float:
    """DeepSpeed's estimate for stage 3 without offload.

    18 bytes a parameter partitioned, the largest layer whole in 32 bit; no activations.
    `estimate_zero3_model_states_mem_needs` in
    https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage3.py
    """
    return 4 * largest_layer + 18 * parameters / gpus


def deepspeed(run: Run) -> float | None:
    """DeepSpeed's estimators, which cover full fine-tuning at stages 2 and 3."""
    if not run.full:
        return None
    if run.zero_stage == 2:
        return zero_2_states(run.parameters, run.world)
    if run.zero_stage == 3:
        return zero_3_states(run.parameters, run.vocabulary * run.hidden, run.world)
    return None


def accelerate(run: Run) -> float | None:
    """Accelerate's `estimate-memory`: four times the weights for training with Adam.

    Weights, gradients and two states in one type; no activations, one GPU.
    https://huggingface.co/docs/accelerate/usage_guides/model_size_estimator
    """
    if not run.full or run.zero_stage is not None:
        return None
    return 4 * run.parameters * (2 if run.pure_16_bit else 4)


def calculator_parameters(run: Run) -> float:
    """Elements as counted by EleutherAI's calculator."""
    ends = 2 * run.vocabulary * run.hidden + run.hidden * run.length
    norms = 8 * run.hidden * run.layers + 2 * run.hidden
    attention = 2 * (1 + run.kv_heads / run.heads) * run.layers * run.hidden**2
    linears = 3 if run.gated else 2
    return ends + norms + attention + linears * run.layers * run.hidden * run.ffn


def eleuther(run: Run) -> float | None:
    """EleutherAI's calculator for mixed precision: states, two buckets, activations.

    2 bytes of weight, 4 of gradient, 12 of optimizer; activations of 34 bytes a token, layer and
    hidden unit, and 5 a pair of tokens and head where nothing is recomputed; no logits.
    https://github.com/EleutherAI/cookbook/blob/main/calc/calc_transformer_mem.py
    """
    if not run.full:
        return None
    stage, parameters = run.zero_stage or 0, calculator_parameters(run)
    weights = 2 * parameters / (run.world if stage == 3 else 1)
    gradients = 4 * parameters / (run.world if stage >= 2 else 1)
    optimizer = 12 * parameters / (run.world if stage >= 1 else 1)
    buckets = 0.0
    if run.world > 1 and stage >= 1:
        buckets = 2 * (5e8 + (1e9 if stage == 3 else 0))
    pairs = 0.0 if run.checkpointing else 5 * run.heads * run.length / run.hidden
    activations = run.length * run.micro_batch * run.hidden * run.layers * (34 + pairs)
    return weights + gradients + optimizer + buckets + activations


UNSLOTH = {
    3: (3.5, 8),
    7: (5, 19),
    8: (6, 22),
    9: (6.5, 24),
    11: (7.5, 29),
    14: (8.5, 33),
    27: (22, 64),
    32: (26, 76),
    40: (30, 96),
    70: (41, 164),
    81: (48, 192),
    90: (53, 212),
    405: (237, 950),
}
"""Billions of parameters: GB for adapters on 4-bit and on 16-bit weights, "the absolute minimum".

https://unsloth.ai/docs/get-started/fine-tuning-for-beginners/unsloth-requirements
"""


def unsloth(run: Run) -> float | None:
    """Unsloth's table, with straight lines between its sizes and to zero below the first."""
    if run.full or run.bits not in (4, 16):
        return None
    column = 0 if run.bits == 4 else 1
    size = run.parameters / GB
    sizes = [0.0, *map(float, UNSLOTH)]
    values = [0.0, *(float(row[column]) for row in UNSLOTH.values())]
    at = min(max(bisect_left(sizes, size), 1), len(sizes) - 1)
    share = (size - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
    return GB * (values[at - 1] + share * (values[at] - values[at - 1]))


def llama_factory(run: Run) -> float | None:
    """LLaMA-Factory's table, by its last column: GB for x billion parameters.

    18x for mixed precision, 8x for 16 bits throughout; for adapters 2x, on 8-bit weights x and on
    4-bit ones x/2. Of several GPUs it says nothing.
    https://github.com/hiyouga/LLaMA-Factory/blob/main/README.md#hardware-requirement
    """
    if run.full:
        if run.world > 1:
            return None
        return (8 if run.pure_16_bit else 18) * float(run.parameters)
    return run.parameters * run.bits / 8


RULES: dict[str, Callable[[Run], float | None]] = {
    "DeepSpeed estimate_zero*": deepspeed,
    "accelerate estimate-memory": accelerate,
    "EleutherAI calc_transformer_mem": eleuther,
    "Unsloth's table": unsloth,
    "LLaMA-Factory's table": llama_factory,
}
