"""Facts about trl's trainers that catalogue entries need."""

from __future__ import annotations

from typing import Any

from ..core.settings import Fact, Value

SUPPORTED = ("trl", "__main__")
"""Packages of supported trainer classes: subclasses elsewhere may have custom losses."""
ON_POLICY = ("GKDTrainer", "GOLDTrainer")
"""Trainers that mask the padding in the model's output."""
GLOBAL = ("dapo", "cispo", "vespo")
"""GRPO losses divided by the number of tokens on all ranks."""


def trl_facts(trainer: Any) -> dict[str, Value | None]:
    """The trainer and its settings; empty if trl doesn't define it."""
    kind = type(trainer)
    name = next((base.__name__ for base in kind.__mro__ if _package(base) == "trl"), None)
    if name is None or _package(kind) not in SUPPORTED:
        return {}
    arguments = trainer.args
    masked = getattr(arguments, "mask_truncated_completions", False)
    return {
        Fact.TRAINER: name,
        Fact.LIGER: bool(getattr(arguments, "use_liger_kernel", False)),
        Fact.PAD_IS_END: _leaves_end_out(trainer, name),
        Fact.TRUNCATED_MASKED: masked and getattr(arguments, "loss_type", None) in GLOBAL,
        Fact.ENTROPY_SELECTED: (getattr(arguments, "top_entropy_quantile", None) or 1.0) < 1.0,
    }


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _leaves_end_out(trainer: Any, name: str) -> bool:
    """Whether the loss ignores the end token because it is also the padding token."""
    collator = trainer.data_collator
    masks = type(collator).__name__ == "DataCollatorForLanguageModeling"
    masks = masks and _package(type(collator)) == "transformers" and not collator.mlm
    tokenizer = getattr(trainer, "processing_class", None)
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    end = getattr(tokenizer, "eos_token_id", None)
    is_same = end is not None and end == getattr(tokenizer, "pad_token_id", None)
    return is_same and (masks or name in ON_POLICY)
