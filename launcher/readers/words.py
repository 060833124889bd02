"""The words in which frameworks ask for optimizers, attention and losses, in our terms."""

from __future__ import annotations

from ..settings import Attention, Optimizer

OPTIMIZERS: tuple[tuple[str, Optimizer], ...] = (
    ("8bit", Optimizer.ADAMW_8BIT),
    ("paged_adamw", Optimizer.ADAMW),
    ("adafactor", Optimizer.ADAFACTOR),
    ("lion", Optimizer.LION),
    ("muon", Optimizer.LION),
    ("adam", Optimizer.ADAMW),
    ("lamb", Optimizer.ADAMW),
    ("rmsprop", Optimizer.LION),
    ("adagrad", Optimizer.LION),
    ("sgd", Optimizer.SGD),
)
"""Parts of names (transformers/training_args.py, OptimizerNames; deepspeed/runtime/config.py), the
first that matches decides."""

ATTENTIONS = {
    "eager": Attention.EAGER,
    "sdpa": Attention.SDPA,
    "flash_attention_2": Attention.FLASH,
    "flash_attention_3": Attention.FLASH,
    "flash_attn": Attention.FLASH,
    "flash_attention": Attention.FLASH,
    "fa2": Attention.FLASH,
    "disabled": Attention.EAGER,
}


def optimizer_named(name: str) -> Optimizer | None:
    """The optimizer of that name; None where nobody knows it."""
    lowered = name.lower()
    return next((kind for part, kind in OPTIMIZERS if part in lowered), None)
