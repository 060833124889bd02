"""Reads the environment variables in which `accelerate launch` passes on its configuration.

The names are those of `prepare_deepspeed_cmd_env` and `prepare_multi_gpu_env` in
accelerate/utils/launch.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ...core.errors import ExitCode, LaunchError
from ...core.settings import Engine, Fact, Offload, Origin, Precision, Setting, Value
from ...core.workload import Known, Statement
from ..config_files.deepspeed import OFFLOADS, ConfigError, load
from ..script.given import TRUE
from ..script.script import Script
from .deepspeed_json import FLAGS, statements

MIXED = {
    "no": Precision.FP32.value,
    "fp16": Precision.FP16.value,
    "bf16": Precision.BF16.value,
}


def read(script: Script) -> Iterator[Statement]:
    """Engine, stage, accumulation and precision that the environment asks for.

    Raises:
        LaunchError: its DeepSpeed configuration can't be used.
    """
    variables = script.environment

    def known(value: Value, name: str) -> Known:
        return Known(value, Origin.CONFIG, f"${name}")

    mixed = variables.get("ACCELERATE_MIXED_PRECISION", "").lower()
    if mixed in MIXED:
        yield Setting.PRECISION, known(MIXED[mixed], "ACCELERATE_MIXED_PRECISION")
    if variables.get("ACCELERATE_USE_FSDP", "false").lower() in TRUE:
        yield Fact.ENGINE, known(Engine.FSDP.value, "ACCELERATE_USE_FSDP")
    if variables.get("ACCELERATE_USE_DEEPSPEED", "false").lower() not in TRUE:
        return
    yield Fact.ENGINE, known(Engine.DEEPSPEED.value, "ACCELERATE_USE_DEEPSPEED")
    if any(script.text(flag) for flag in FLAGS):
        return  # the script's own configuration decides (transformers/training_args.py)
    name = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
    if variables.get(name, "none").lower() != "none":
        try:
            yield from statements(load(variables[name]), f"${name}", script)
        except ConfigError as error:
            raise LaunchError(ExitCode.USAGE, f"${name}: {error}") from error
        return
    for name, setting, allowed in (
        ("ACCELERATE_DEEPSPEED_ZERO_STAGE", Setting.ZERO_STAGE, range(4)),
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", Setting.ACCUMULATION, range(1, sys.maxsize)),
    ):
        text = variables.get(name, "")
        if text.isdecimal() and len(text) < 10 and int(text) in allowed:
            yield setting, known(int(text), name)
        elif text not in ("", "auto"):
            script.notes.append(f"${name}: {text!r} isn't a value of {setting.value}")
    places = [f"ACCELERATE_DEEPSPEED_OFFLOAD_{what}_DEVICE" for what in ("OPTIMIZER", "PARAM")]
    if not any(name in variables for name in places):
        return
    held = tuple(variables.get(name, "none").lower() != "none" for name in places)
    offload = OFFLOADS.get((held[0], held[1]), Offload.OPTIMIZER_AND_PARAMETERS)
    yield Setting.OFFLOAD, known(offload.value, "ACCELERATE_DEEPSPEED_OFFLOAD_*_DEVICE")
