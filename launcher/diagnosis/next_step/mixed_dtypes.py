"""Recognizes groups of tensors that need one dtype and have two: shards, optimizer states."""

from __future__ import annotations

import re

from ...catalogue.package_names import package_of_file, pip_name
from .step import Case, Step

GATHERED = ("all_gather_coalesced", "_all_gather_dtype", "get_only_unique_item")
"""Functions of DeepSpeed that gather several weights in one operation."""
UNIQUE = re.compile(r"only one unique element|same (?:data ?)?(?:d?type)|uniform (?:\w+ )*dtype")
DTYPES = re.compile(r"\bdtypes?\b|\bscalar type\b|\bdata types?\b", re.IGNORECASE)
NAMED = re.compile(r"(?:torch\.|c10::)?\b(b?float(?:16|32)?|half|double|u?int8)\b", re.IGNORECASE)
QUANTIZED = re.compile(
    r"load_in_8bit|load_in_4bit|\bint8\b|8[- ]?bit|4[- ]?bit|bitsandbytes|nf4", re.I
)
LOOPS = ("transformers", "accelerate", "lightning", "pytorch_lightning", "trl")
"""Frameworks whose training loop may leave gradients in another type."""


def mixed_dtypes(case: Case) -> Step | None:
    """Names the tensors with two dtypes, and how to give them one."""
    functions = {frame.function for frame in case.frames[-4:]}
    if functions & {*GATHERED} and UNIQUE.search(case.message):
        return _gathered(case)
    is_of_optimizer = case.frame is not None and "torch/optim/" in case.frame.file
    if is_of_optimizer and DTYPES.search(case.message):
        return _of_optimizer(case)
    return None


def _gathered(case: Case) -> Step:
    bits = (
        "Load the base model in bf16 or fp16, not in 8 or 4 bit, or keep it and use ZeRO-2 or DDP"
        if QUANTIZED.search(case.around)
        else "Cast the whole model to one dtype before it is wrapped (`model.to(torch.bfloat16)`;"
        " PEFT: `autocast_adapter_dtype=False`), or don't load it in 8 bit, or use ZeRO-2"
    )
    return Step(
        f"{bits}: ZeRO-3 gathers a module's weights in one operation, and here they have several"
        " dtypes, as adapters in float32 beside a base in bfloat16 or int8."
    )


def _of_optimizer(case: Case) -> Step:
    types = list(dict.fromkeys(text.lower() for text in NAMED.findall(case.message)))[:2]
    which = f" ({' and '.join(types)})" if len(types) > 1 else ""
    names = (package_of_file(frame.file) for frame in case.frames)
    loops = [name for name in dict.fromkeys(names) if name in LOOPS]
    release = (
        f"Upgrade {' and '.join(loops)} (`pip install -U {' '.join(map(pip_name, loops))}`), or go"
        f" back to the {loops[0]} of the release before: its loop leaves the gradients in another"
        " dtype"
        if loops
        else "Load the weights in float32 and let `bf16` be autocast, or make the optimizer after"
        " the last cast of the model: the gradients have another dtype"
    )
    return Step(f"{release} than the optimizer's state{which}.")
