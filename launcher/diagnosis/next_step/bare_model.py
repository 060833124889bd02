"""Recognizes calls of the DeepSpeed engine's methods on the model inside it."""

from __future__ import annotations

import re

from .misfit import ATTRIBUTE, PLAIN
from .step import Case, Step

OF_ENGINE = re.compile(
    r"_?zero_gather_16bit_weights_on_model_save|zero_optimization\w*|_?zero3_consolidated_\w+"
    r"|module_state_dict|save_(?:16bit|fp16)_model|is_gradient_accumulation_boundary"
    r"|set_gradient_accumulation_boundary|gradient_accumulation_steps|get_global_grad_norm"
)
"""Methods of DeepSpeedEngine alone (deepspeed/runtime/engine.py)."""


def bare_model(case: Case) -> Step | None:
    """Advises to hand over the engine instead of the model."""
    match = ATTRIBUTE.match(case.message) if case.kind == "AttributeError" else None
    if match is None or match["type"] in PLAIN or not OF_ENGINE.fullmatch(match["name"]):
        return None
    if re.search(r"Engine|Config|Plugin|Accelerator|Arguments|Optimizer|Namespace", match["type"]):
        return None
    return Step(
        f"Hand over the DeepSpeed engine that `initialize` or `prepare` returned, instead of the"
        f" bare model: `{match['name']}` is the engine's, and `{match['type']}` is the unwrapped"
        " model inside it. If a trainer hands it over while it saves, upgrade that (trl, the"
        " trainer's package), override its `save_model` so that `self.deepspeed` stays the engine,"
        " or use ZeRO-2, which saves without gathering."
    )
