"""LLaMA-Factory: its flags, and its defaults.

Checked in its version 0.9.5: src/llamafactory/hparams, model/adapter.py,
model/model_utils/checkpointing.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.choices import Checkpointing, Precision
from ..core.errors import LaunchError
from ..core.settings import Fact, Setting
from ..core.workload import Known, Origin, Statement
from .framework import Argument, FrameworkRow, Script


def read(script: Script) -> Iterator[Statement]:
    """Length, adapters, towers, checkpointing and types, by its flags and defaults.

    Raises:
        LaunchError: LLaMA-Factory would refuse the arguments.
    """
    if script.text("model_name_or_path") is None:
        return
    kind = script.text("finetuning_type")
    _refuse(script, kind)
    if "freeze_vision_tower" not in script.flags:
        yield Fact.VISION_TRAINED, LLAMA_FACTORY.default("freeze_vision_tower", value=False)
    if kind is not None and kind.value == "lora":
        yield (
            Setting.FIND_UNUSED_PARAMETERS,
            LLAMA_FACTORY.default("ddp_find_unused_parameters", value=False),
        )
    yield from _checkpointing(script)
    yield from _types(script, kind)


def _refuse(script: Script, kind: Argument | None) -> None:
    bits = script.text("quantization_bit")
    if bits is not None and kind is not None and kind.value in ("full", "freeze"):
        problem = f"{bits.source}: a quantized model can't be trained with {kind.source} "
        hint = "LLaMA-Factory takes it with `finetuning_type: lora` or `oft`"
        raise LaunchError(problem + str(kind.value), hint)


def _checkpointing(script: Script) -> Iterator[Statement]:
    """Reentrant checkpointing, enabled by its own switch regardless of the Trainer's."""
    off = script.on("disable_gradient_checkpointing")
    if off is not None:
        yield Setting.GRADIENT_CHECKPOINTING, off.known(Checkpointing.OFF.value)
        return
    mode = script.boolean("use_reentrant_gc")
    if mode is not None and not mode.value:
        yield Setting.GRADIENT_CHECKPOINTING, mode.known(Checkpointing.NON_REENTRANT.value)
        return
    switch = script.on("gradient_checkpointing")
    known = LLAMA_FACTORY.default("use_reentrant_gc", Checkpointing.REENTRANT.value)
    if switch is not None:
        known = Known(known.value, switch.origin, f"{switch.source}, {known.source}")
    yield Setting.GRADIENT_CHECKPOINTING, known


def _types(script: Script, kind: Argument | None) -> Iterator[Statement]:
    """Dtypes: weights are loaded in the computation's dtype; trained ones become fp32.

    `pure_bf16` keeps their dtype.
    """
    pure = script.on("pure_bf16")
    if pure is not None:
        yield Setting.PRECISION, pure.known(Precision.BF16.value)
        yield Fact.LOADED_PRECISION, pure.known(Precision.BF16.value)
        return
    for precision in (Precision.BF16, Precision.FP16):
        switch = script.on(precision.value)
        if switch is not None:
            if kind is not None and kind.value == "full":
                source = "LLaMA-Factory's cast of trained weights"
                yield Fact.LOADED_PRECISION, Known(Precision.FP32.value, Origin.DEFAULT, source)
            else:
                yield Fact.LOADED_PRECISION, switch.known(precision.value)
            return


LLAMA_FACTORY = FrameworkRow(
    "LLaMA-Factory",
    ("llamafactory", "llmtuner"),
    "hiyouga/LlamaFactory",
    "llamafactory",
    commands=("llamafactory-cli",),
    launching=("llamafactory/cli.py", "llamafactory/launcher.py"),
    in_log=r"llamafactory/",
    on_trainer=True,
    program=r"(^|[./])(llamafactory|llmtuner)([./-]|$)",
    functions=frozenset({"run_exp"}),
    takes_file=True,
    defaults={
        "cutoff_len": 2048,
        "finetuning_type": "lora",
        "lora_rank": 8,
        "lora_target": "all",
    },
    replaced_defaults=frozenset({"gradient_checkpointing", "bf16"}),
    rewards_by_logits=True,
    read=read,
)
