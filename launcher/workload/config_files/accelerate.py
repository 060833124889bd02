"""An accelerate configuration file as the variables that `accelerate launch` sets from it.

Both the workers' accelerate and the readers read the variables
(accelerate/utils/launch.py, `prepare_simple_launcher_cmd_env`,
`prepare_deepspeed_cmd_env` and `prepare_multi_gpu_env`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...system.typed_yaml import DocumentError, line_of, near, read_mapping

KNOWN = ("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "DEEPSPEED")
DEEPSPEED = {
    "zero_stage": "ZERO_STAGE",
    "offload_optimizer_device": "OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "ZERO3_INIT",
    "zero3_save_16bit_model": "ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "CONFIG_FILE",
}
"""Keys of `deepspeed_config`, and the suffixes of their variables ACCELERATE_DEEPSPEED_*."""


def variables(path: Path) -> dict[str, str]:
    """The variables for the workers, by name.

    Raises:
        LaunchError: the file can't be read, or isn't supported; the message names file and line.
    """
    config = read_mapping(path)
    text = path.read_text(encoding="utf-8")
    kind = str(config.get("distributed_type", "NO")).upper()
    if kind not in KNOWN:
        line = line_of("distributed_type", text, 1)
        hint = f"supported are {', '.join(KNOWN)}" if kind == "FSDP" else near(kind, KNOWN)
        raise DocumentError(path, line, f"`distributed_type`: {kind} isn't supported", hint)
    found = {"ACCELERATE_MIXED_PRECISION": _text(config.get("mixed_precision", "no"))}
    if kind in ("NO", "MULTI_CPU") and config.get("use_cpu") is True:
        found["ACCELERATE_USE_CPU"] = "true"
    if kind != "DEEPSPEED":
        return found
    own = config.get("deepspeed_config", {})
    if not isinstance(own, dict):
        line = line_of("deepspeed_config", text, 1)
        raise DocumentError(path, line, "`deepspeed_config`: a mapping is expected")
    found["ACCELERATE_USE_DEEPSPEED"] = "true"
    for key, end in DEEPSPEED.items():
        if key in own:
            found[f"ACCELERATE_DEEPSPEED_{end}"] = _text(own[key])
    for key in ("gradient_accumulation_steps", "gradient_clipping"):
        if key in own:
            found[f"ACCELERATE_{key.upper()}"] = _text(own[key])
    stage = own.get("zero_stage")
    if stage is not None and stage not in (0, 1, 2, 3):
        line = line_of("zero_stage", text, 1)
        raise DocumentError(path, line, f"`zero_stage`: {stage!r} isn't a ZeRO stage")
    return found


def _text(value: Any) -> str:
    """A value of YAML as accelerate writes it; a bare `no` is read as false."""
    if isinstance(value, bool):
        return "true" if value else "no"
    return str(value)
