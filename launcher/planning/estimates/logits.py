"""Memory of the logits and the loss."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.choices import Engine, Loss, Objective
from ...core.settings import Fact
from ...core.workload import Workload
from .activations import Tokens
from .model_sizes import ModelSizes
from .versions import is_at_least

LOGIT_BYTES = 12
"""Bytes per token and vocabulary entry in the loss's backward: the saved log-softmax and the
gradients before and after it, fp32 each (torch's cross_entropy; transformers/loss/loss_utils.py
casts the logits to fp32 first)."""
LOGIT_BYTES_SHIFTED = 14
"""Bytes in transformers 4.46 to 4.48, whose forward pass holds the logits, their fp32 copy, its
shifted copy, and the log-softmax (`ForCausalLMLoss`; before, the fp32 copy replaced the logits;
later versions shift the labels)."""
UNCAST = {"gpt2", "gpt_bigcode", "gpt_neox", "bloom", "falcon", "opt"}
"""Model types that don't cast logits before transformers 4.49 (models/gpt2/modeling_gpt2.py)."""
CHUNK = 1024
"""Tokens per chunk of a chunked loss."""


@dataclass(frozen=True, slots=True)
class Logits:
    """Bytes of the logits.

    Attributes:
        forward: in the loss's forward pass.
        peak: in the loss's backward pass, or its forward pass if larger.
        gradient: when the gradient reaches the projection.
    """

    forward: int
    peak: int
    gradient: int


def logits_of(sizes: ModelSizes, tokens: Tokens, micro_batch: int, size: int) -> Logits:
    """Memory of a micro batch's loss, with `size` bytes per element of the computation.

    A fused loss processes chunks whose logits are about as large as the hidden states, and computes
    a trained projection's gradient in the forward pass, by a product of the same size (Liger's
    fused_linear_cross_entropy.py; in fp32 since 0.6.2).
    """
    workload, count = sizes.workload, tokens.language * micro_batch
    loss = Loss(str(workload.value(Fact.LOSS) or Loss.CROSS_ENTROPY))
    if loss is Loss.FUSED:
        hidden_states = sizes.model.language.hidden * count
        weight = sizes.head if sizes.head_is_trained else 0
        product = size + 4 if is_at_least(workload, "liger_kernel", 0, 6) else size
        passed_on = size * hidden_states
        peak = (size + product) * weight + LOGIT_BYTES * hidden_states + passed_on
        return Logits(peak, peak, passed_on)
    if loss is Loss.CHUNKED:
        count = min(count, CHUNK)
    # Older classes compute the loss from 16-bit logits, without autocast to fp32.
    uncast = sizes.model.model_type in UNCAST and _is_shifted(workload)
    if uncast and workload.engine in (Engine.DEEPSPEED, Engine.FSDP):
        loss = Loss.NATIVE
    entries, peak = sizes.model.vocabulary * count, _loss_bytes(loss, size, workload)
    # The logits and their log-softmax, with a cast to fp32 in between.
    forward = min(peak, 2 * size if loss is Loss.NATIVE or size == 4 else size + 8)
    return Logits(forward * entries, peak * entries, size * entries)


def _loss_bytes(loss: Loss, size: int, workload: Workload) -> int:
    """Bytes per token and vocabulary entry in the loss's backward.

    Preferences compare only the tokens' probabilities: trl computes the logarithms row by row since
    0.15, in the logits' dtype (trl/trainer/utils.py, `selective_log_softmax`), which accelerate
    casts to fp32 under autocast (`convert_outputs_to_fp32`). A distilled loss holds both models'
    logits and their logarithms.
    """
    shifted = _is_shifted(workload) and is_at_least(workload, "transformers", 4, 46)
    element = 4 * size if loss is Loss.NATIVE else LOGIT_BYTES_SHIFTED if shifted else LOGIT_BYTES
    match workload.value(Fact.OBJECTIVE):
        case Objective.PREFERENCE:
            by_row = "trl" not in workload.versions or is_at_least(workload, "trl", 0, 15)
            return 3 * (4 if workload.engine is Engine.DDP else size) if by_row else element
        case Objective.DISTILLATION:
            return 2 * element
    return element


def unfit_share(workload: Workload) -> float:
    """Blocks that fit no later tensor of a step, as a share of the logits' bytes.

    If the logits are shifted, their gradient has one more token than any free block, so a caching
    allocator reserves 18 bytes in total: 16-bit logits, an fp32 copy, the shifted copy, the
    log-softmax, the gradient. Without the shift it is 14 bytes: the gradient doesn't fit into the
    block of the 16-bit logits.
    """
    if not _is_shifted(workload):
        return 14 / LOGIT_BYTES - 1
    in_16_bit = is_at_least(workload, "transformers", 4, 46)
    return 18 / (LOGIT_BYTES_SHIFTED if in_16_bit else LOGIT_BYTES) - 1


def _is_shifted(workload: Workload) -> bool:
    """Whether the loss copies the logits to shift them by a token."""
    return "transformers" in workload.versions and not is_at_least(workload, "transformers", 4, 49)
