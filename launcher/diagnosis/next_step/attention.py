"""Reads why xformers has no operator for an attention, and what to change."""

from __future__ import annotations

import re

from .step import Case, Step

REFUSED = "No operator found for `memory_efficient_attention"
OPERATOR = re.compile(r"`[\w.@-]+` is not supported because: ")
ABSENT = re.compile(
    r"operator wasn't built|xFormers wasn't buil[dt] with CUDA|\w+ is not available"
)
REASONS = (
    (
        r"device=cpu ",
        "Move the model and its inputs to the GPU: they are on the CPU.",
    ),
    (
        r"dtype=torch\.float32 \(supported",
        (
            "Run the attention in fp16 or bf16 (autocast, `--mixed_precision bf16`): its inputs are"
            " in float32, which this GPU's operators of xformers don't take."
        ),
    ),
    (
        r"bf16 is only supported on",
        "Train in fp16 in place of bf16, which this GPU doesn't have.",
    ),
    (
        r"your GPU has capability (?P<gpu>\(\d+, \d+\)) \(too new\)",
        (
            "Install the newest xformers, which has this GPU {gpu}, with the torch that it is built"
            " for, or take torch's attention (`sdpa`) in place of xformers."
        ),
    ),
    (
        r"your GPU has capability (?P<gpu>\(\d+, \d+\)) \(too old\)|head-dim|embed per head|shape",
        (
            "Take torch's attention (`sdpa`) in place of xformers, which has none for this GPU or"
            " these shapes."
        ),
    ),
    (
        r"attn_bias",
        (
            "Change the mask as the message asks, or take torch's attention (`sdpa`) in place of"
            " xformers."
        ),
    ),
)
"""Remedies by the reason, those first that the whole run decides."""


def no_operator(case: Case) -> Step | None:
    """What to change by the reasons against the operator that has the fewest and is built here."""
    if REFUSED not in case.message:
        return None
    operators = OPERATOR.split(case.message)[1:]
    built = (text for text in operators if not ABSENT.search(text))
    for text in sorted(built, key=len):
        for reason, do in REASONS:
            if match := re.search(reason, text):
                return Step(do.format(**match.groupdict()))
    return None
