"""The values of settings and facts that are one of a few words."""

from __future__ import annotations

from enum import StrEnum


class Offload(StrEnum):
    """States kept in host memory instead of on the accelerator; under FSDP all, or none."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    OPTIMIZER_AND_PARAMETERS = "optimizer_and_parameters"


class Checkpointing(StrEnum):
    """Whether activations are recomputed in the backward pass, and by which implementation.

    The two implementations are those of `torch.utils.checkpoint`: `use_reentrant=True` runs a
    nested backward for each checkpointed block, `use_reentrant=False` recomputes inside the one
    backward through saved-tensor hooks.
    """

    OFF = "off"
    REENTRANT = "reentrant"
    NON_REENTRANT = "non_reentrant"


class Precision(StrEnum):
    """The type that forward and backward compute in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"


class Engine(StrEnum):
    """The engine that reduces the gradients."""

    DDP = "ddp"
    DEEPSPEED = "deepspeed"
    FSDP = "fsdp"


class Framework(StrEnum):
    """The owner of the training loop; decides which settings can be applied from outside."""

    TRANSFORMERS = "transformers"
    ACCELERATE = "accelerate"
    NONE = "none"


class Optimizer(StrEnum):
    """The optimizer; optimizers with equal states in memory share a name."""

    ADAMW = "adamw"
    """Adam, AdamW, LAMB: two states."""
    ADAMW_8BIT = "adamw_8bit"
    """bitsandbytes' 8-bit and paged Adam: two states of 8 bits."""
    LION = "lion"
    """Lion, SGD with momentum: one state."""
    MUON = "muon"
    """Muon: one state, and steps that are made of whole matrices."""
    ADAFACTOR = "adafactor"
    """Adafactor without momentum: a row and a column for each matrix."""
    SGD = "sgd"
    """No state."""


class Attention(StrEnum):
    """The implementation of attention; decides what is saved for the backward pass."""

    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash_attention_2"


class Loss(StrEnum):
    """The way to compute a language model's loss from its last hidden states."""

    CROSS_ENTROPY = "cross_entropy"
    """All logits at once, cast to fp32."""
    NATIVE = "native"
    """All logits at once, in the type of the computation."""
    CHUNKED = "chunked"
    """The logits of a part of the tokens at a time."""
    FUSED = "fused"
    """Projection and loss in one kernel, e.g. Liger's."""


class Objective(StrEnum):
    """The content of a sample."""

    SUPERVISED = "supervised"
    """One sequence."""
    PREFERENCE = "preference"
    """A chosen and a rejected sequence: DPO and its relatives."""
    DISTILLATION = "distillation"
    """One sequence, whose every next token a teacher predicts as well."""


class Output(StrEnum):
    """The output that a model computes from its last hidden states."""

    VOCABULARY = "vocabulary"
    """A logit for every entry of the vocabulary, at every token."""
    SCORES = "scores"
    """A few numbers a sequence: classes, a reward, an embedding."""


class Units(StrEnum):
    """The modules whose parameters FSDP gathers together."""

    LAYERS = "layers"
    """Each layer is a unit; the rest is one too, or a few."""
    WHOLE = "whole"
    """The model is one unit."""


class Adapter(StrEnum):
    """Weights trained in addition to, or instead of, the model's own."""

    NONE = "none"
    LORA = "lora"
