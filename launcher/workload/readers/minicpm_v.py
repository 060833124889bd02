"""Reads what MiniCPM-V's own script for fine-tuning decides without flags.

finetune/finetune.py of https://github.com/OpenBMB/MiniCPM-V: the defaults of its `LoraArguments`
and `TrainingArguments`, and the modules that it trains in full besides the adapters.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.errors import ExitCode, LaunchError
from ...core.settings import Fact, Origin, Precision
from ...core.workload import Known, Statement
from ..script.script import Script

TRAINER = "CPMTrainer"
TARGETS = r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj)"
PATCHES = (448 // 14) ** 2
"""Patches of a slice of an image (its models' config.json)."""
WHOSE = "MiniCPM-V's finetune.py"


def read(script: Script) -> Iterator[Statement]:
    """Its defaults, and the type that it loads weights in.

    Raises:
        LaunchError: it would refuse the arguments.
    """
    if TRAINER not in script.names:
        return
    lora, language = script.boolean("use_lora"), script.boolean("tune_llm")
    adapted = lora is not None and bool(lora.value)
    if lora is not None and adapted and language is not None and language.value:
        problem = f"{lora.source} and {language.source}: the language model gets adapters or is"
        raise LaunchError(ExitCode.USAGE, f"{problem} trained itself, not both")
    if script.text("model_max_length") is None:
        yield Fact.SEQUENCE_LENGTH, Known(2048, Origin.DEFAULT, WHOSE)
    slices = script.number("max_slice_nums")
    if slices is not None:
        patches = (int(slices.value) + 1) * PATCHES
        yield Fact.IMAGE_PATCHES, Known(patches, slices.origin, f"{slices.source}, one image")
    vision = script.boolean("tune_vision")
    if "tune_vision" not in script.flags:
        yield Fact.VISION_TRAINED, Known(True, Origin.DEFAULT, WHOSE)
    if adapted:
        yield Fact.LORA_RANK, Known(64, Origin.DEFAULT, WHOSE)
        yield Fact.LORA_TARGETS, Known(TARGETS, Origin.DEFAULT, WHOSE)
        tower = vision is None or bool(vision.value)
        whole = "embed_tokens,resampler" + ",vpm" * tower
        yield Fact.LORA_SAVED, Known(whole, Origin.DEFAULT, WHOSE)
    for precision in (Precision.FP16, Precision.BF16):
        switch = script.boolean(precision.value)
        if switch is not None and switch.value:
            yield Fact.LOADED_PRECISION, Known(precision.value, switch.origin, switch.source)
            return
