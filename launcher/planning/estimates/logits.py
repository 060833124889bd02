"""Memory of the output projection's results and of the loss."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.choices import Engine, Loss, Objective
from ...core.model import Model
from ...core.settings import Fact
from ...core.workload import Workload
from .activations import Tokens
from .versions import is_at_least

LOGIT_BYTES = 12
"""Bytes per token and vocabulary entry in the loss's backward: the saved log-softmax, the gradient
that enters it and the gradient that leaves it, fp32 each (torch's cross_entropy;
transformers/loss/loss_utils.py casts the logits to fp32 before)."""
LOGIT_BYTES_SHIFTED = 14
"""From 4.46 to 4.48 the forward pass holds more: the logits, their fp32 copy, the one that is
shifted by a token, and the log-softmax (`ForCausalLMLoss`; until then the first was replaced by the
second). Since then the labels are shifted instead."""
OWN_LOSS = {"gpt2", "gpt_bigcode", "gpt_neox", "bloom", "falcon", "opt"}
"""Model types that cast no logits before transformers 4.49 (models/gpt2/modeling_gpt2.py)."""
CHUNK = 1024
"""Tokens in one chunk of a chunked loss."""


@dataclass(frozen=True, slots=True)
class Logits:
    """Bytes of the output projection's result.

    Attributes:
        forward: in the loss's forward pass.
        peak: in its backward pass, or the forward pass if that holds more.
        gradient: when the gradient is passed on to the projection.
    """

    forward: int
    peak: int
    gradient: int


def logits_of(
    model: Model, tokens: Tokens, micro_batch: int, size: int, workload: Workload
) -> Logits:
    """The memory of a micro batch's loss.

    A fused loss takes as many tokens at a time as make the logits about as large as the
    hidden states, and computes the projection's gradient, if it is trained, in the forward pass, by
    a product of the same size (Liger's fused_linear_cross_entropy.py; in fp32 since 0.6.2).
    """
    count = tokens.language * micro_batch
    vocabulary, hidden = model.vocabulary, model.language.hidden
    loss = Loss(str(workload.value(Fact.LOSS) or Loss.CROSS_ENTROPY))
    if loss is Loss.FUSED:
        passed_on = size * hidden * count
        weight = vocabulary * hidden * _head_is_trained(model)
        product = size + 4 if is_at_least(workload, "liger_kernel", 0, 6) else size
        peak = (size + product) * weight + LOGIT_BYTES * hidden * count + passed_on
        return Logits(peak, peak, passed_on)
    if loss is Loss.CHUNKED:
        count = min(count, CHUNK)
    if _in_own_type(model, workload):
        loss = Loss.NATIVE
    entries, peak = vocabulary * count, _loss_bytes(loss, size, workload)
    # The logits and their log-softmax, which are cast to fp32 in between.
    forward = min(peak, 2 * size if loss is Loss.NATIVE or size == 4 else size + 8)
    return Logits(forward * entries, peak * entries, size * entries)


def _head_is_trained(model: Model) -> bool:
    """Whether the output projection takes a gradient."""
    return any(weight.trained and model.vocabulary in weight.shape for weight in model.weights)


def _loss_bytes(loss: Loss, size: int, workload: Workload) -> int:
    """Bytes a token and vocabulary entry at the loss's backward.

    Preferences compare the probabilities of the tokens alone: trl takes the logarithms row by row
    since 0.15, in the type of the logits (trl/trainer/utils.py, `selective_log_softmax`), which
    accelerate makes fp32 under autocast (`convert_outputs_to_fp32`). A distilled loss holds logits
    and their logarithms of both models.
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
    """Blocks that no later tensor of a step fits into, as a share of the logits' bytes.

    If the logits are shifted, their gradient has a token more than any block that is free by
    then, so that a caching allocator reserves 18 bytes in all: 16-bit logits, an fp32 copy, the
    shifted one, the log-softmax, the gradient. Without that it is 14 bytes: the gradient doesn't
    fit into the block of the 16-bit logits.
    """
    if not _is_shifted(workload):
        return 14 / LOGIT_BYTES - 1
    in_16_bit = is_at_least(workload, "transformers", 4, 46)
    return 18 / (LOGIT_BYTES_SHIFTED if in_16_bit else LOGIT_BYTES) - 1


def _in_own_type(model: Model, workload: Workload) -> bool:
    """Whether a model's class takes the loss of 16-bit logits, unless autocast makes them fp32."""
    older = model.model_type in OWN_LOSS and _is_shifted(workload)
    return older and workload.engine in (Engine.DEEPSPEED, Engine.FSDP)


def _is_shifted(workload: Workload) -> bool:
    """Whether the loss shifts the logits by a token, and so copies them."""
    return "transformers" in workload.versions and not is_at_least(workload, "transformers", 4, 49)
