"""Frameworks' names of optimizers, attention, types and adapters."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.choices import Attention, Checkpointing, Optimizer, Precision

OPTIMIZERS: tuple[tuple[str, Optimizer | None], ...] = (
    ("galore", None),
    ("apollo", None),
    ("lomo", None),
    ("ademamix", None),
    ("grokadamw", None),
    ("4bit", None),
    ("8bit", Optimizer.ADAMW_8BIT),
    ("adafactor", Optimizer.ADAFACTOR),
    ("lion", Optimizer.LION),
    ("muon", Optimizer.MUON),
    ("adam", Optimizer.ADAMW),
    ("lamb", Optimizer.ADAMW),
    ("lorap", Optimizer.ADAMW),
    ("multimodal", Optimizer.ADAMW),
    ("rmsprop", Optimizer.LION),
    ("adagrad", Optimizer.LION),
    ("schedule_free_sgd", Optimizer.LION),
    ("sgd_momentum", Optimizer.LION),
    ("sgd", Optimizer.SGD),
)
"""Optimizers by parts of names (transformers/training_args.py, OptimizerNames;
deepspeed/runtime/config.py; swift/optimizers/mapping.py); the first match counts; None if the
states have no name here. 8-bit optimizers with one state count as those with two."""

ATTENTIONS: tuple[tuple[str, Attention | None], ...] = (
    ("auto", None),
    ("flex", None),
    ("eager", Attention.EAGER),
    ("disabled", Attention.EAGER),
    ("sdpa", Attention.SDPA),
    ("flash_att", Attention.FLASH),
    ("flash-att", Attention.FLASH),
    ("fa2", Attention.FLASH),
    ("fa3", Attention.FLASH),
)
"""Parts of names of attention implementations (transformers/modeling_utils.py, names of kernels on
the hub, `AttentionFunction` of src/llamafactory/extras/constants.py)."""

DTYPES = {
    "bfloat16": Precision.BF16,
    "bf16": Precision.BF16,
    "float16": Precision.FP16,
    "fp16": Precision.FP16,
    "half": Precision.FP16,
    "float32": Precision.FP32,
    "fp32": Precision.FP32,
    "float": Precision.FP32,
}
KINDS = ("finetuning_type", "tuner_type", "train_type", "sft_type")
"""Flags with a kind of training: of LLaMA-Factory, ms-swift 4.x, 3.x and 2.x."""
LORA = {"lora", "qlora", "adalora", "longlora", "rslora", "dora"}
"""Kinds that are forms of LoRA."""
STEPS = {
    "adamw_torch": False,
    "adamw_torch_fused": True,
    "adamw_apex_fused": True,
    "adamw_hf": True,
}
"""AdamW by transformers' names for it, and whether its step is fused or takes one tensor at a time
(transformers/training_args.py, `OptimizerNames`)."""

DEEPSPEED = {
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
}
"""accelerate's names of stage and offload in its files, options, variables and plugin, and their
places in a DeepSpeed configuration (accelerate/utils/dataclasses.py)."""


def optimizer_named(name: str) -> Optimizer | None:
    """The optimizer of that name; None if it is unknown."""
    lowered = name.lower()
    return next((kind for part, kind in OPTIMIZERS if part in lowered), None)


def attention_named(name: str) -> Attention | None:
    """The implementation of that name; None if unknown or decided by the model."""
    lowered = name.lower()
    return next((kind for part, kind in ATTENTIONS if part in lowered), None)


def dtype_named(name: str) -> Precision | None:
    """The type of that name; None for `auto` and unknown ones."""
    return DTYPES.get(name.lower().removeprefix("torch."))


def default_mode(versions: Mapping[str, str]) -> tuple[Checkpointing, str] | None:
    """Default checkpointing mode without `use_reentrant`, and its source.

    transformers 4.x uses the reentrant implementation, 5.0 and later the non-reentrant one
    (https://github.com/huggingface/transformers/pull/43203).
    """
    version = versions.get("transformers")
    if version is None:
        return None
    old = int(version.partition(".")[0]) < 5
    mode = Checkpointing.REENTRANT if old else Checkpointing.NON_REENTRANT
    return mode, f"transformers {version}'s default of use_reentrant"
