"""accelerate, and the variables in which `accelerate launch` passes its configuration.

The variables' names are those of `prepare_deepspeed_cmd_env` and `prepare_multi_gpu_env` in
accelerate/utils/launch.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..core.choices import Engine, Offload, Precision
from ..core.errors import LaunchError
from ..core.settings import Fact, Setting, Value
from ..core.workload import Known, Origin, Statement
from . import fsdp
from .config_files.deepspeed import OFFLOADS, ConfigError, load
from .deepspeed import FLAGS, statements
from .framework import TRUE, FrameworkRow, Script

ACCELERATE = FrameworkRow(
    "accelerate",
    ("accelerate",),
    "huggingface/accelerate",
    commands=("accelerate",),
    launching=("accelerate/commands/",),
)
MIXED = {"no": Precision.FP32, "fp16": Precision.FP16, "bf16": Precision.BF16}
OTHERS = {
    *("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"),
    *("lightning", "pytorch_lightning", "lightning_fabric"),
}
"""Names in scripts that distribute the training without accelerate."""
READERS = {"accelerate", "transformers", "trl"}
"""Packages that read the environment variables."""
PLUGINS = {"deepspeed_plugin", "deepspeed_plugins"}
"""Arguments of `Accelerator` that correspond to variables."""


def read(script: Script) -> Iterator[Statement]:
    """Engine, stage, accumulation and precision in the environment.

    On a requested CPU, accelerate trains with DDP instead of DeepSpeed or FSDP. Arguments of
    `Accelerator` replace the variables (accelerate/state.py and accelerator.py, 1.10.1 and 1.15.0).

    Raises:
        LaunchError: the DeepSpeed configuration can't be used.
    """
    variables = script.environment
    if script.names & OTHERS and not script.names & READERS:
        return

    def known(value: Value, name: str) -> Known:
        return Known(value, Origin.CONFIG, f"${name}")

    name = Setting.PRECISION.row.variable
    text = variables.get(name, "").lower()
    mixed = known(MIXED[text].value, name) if text in MIXED else None
    if mixed is not None:
        yield Setting.PRECISION, mixed
    engines = {
        engine: name
        for engine in (Engine.FSDP, Engine.DEEPSPEED)
        if variables.get(name := f"ACCELERATE_USE_{engine.name}", "false").lower() in TRUE
    }
    if not engines:
        return
    arguments = _accelerator_arguments(script)
    if variables.get("ACCELERATE_USE_CPU", "false").lower() in TRUE:
        arguments["cpu"] = True
    if arguments.get("cpu") is True:
        names = " and ".join(f"${name}" for name in engines.values())
        where = "$ACCELERATE_USE_CPU or Accelerator(cpu=True)"
        script.notes.append(f"{names} without effect: on a CPU ({where}) accelerate uses DDP")
    if arguments.get("cpu", False) is not False:
        return  # only the run shows the value of an expression
    for engine, name in engines.items():
        yield Fact.ENGINE, known(engine.value, name)
    is_fsdp = Engine.FSDP in engines and "fsdp_plugin" not in arguments
    if is_fsdp and fsdp.flag(script) is None:
        yield from fsdp.of_variables(variables, known, mixed)
    if Engine.DEEPSPEED not in engines or arguments.keys() & PLUGINS:
        return
    if any(script.text(flag) for flag in FLAGS):
        return  # the script's own configuration decides (transformers/training_args.py)
    name = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
    if variables.get(name, "none").lower() != "none":
        try:
            yield from statements(load(variables[name]), f"${name}", script)
        except ConfigError as error:
            raise LaunchError(f"${name}: {error}") from error
        return
    for setting in (Setting.ZERO_STAGE, Setting.ACCUMULATION):
        name = setting.row.variable
        text = variables.get(name, "")
        if text.isdecimal() and len(text) < 10 and int(text) in setting.row.values.numbers:
            yield setting, known(int(text), name)
        elif text not in ("", "auto"):
            script.notes.append(f"${name}: {text!r} isn't a value of {setting.value}")
    places = [f"ACCELERATE_DEEPSPEED_OFFLOAD_{what}_DEVICE" for what in ("OPTIMIZER", "PARAM")]
    if not any(name in variables for name in places):
        return
    held = tuple(variables.get(name, "none").lower() != "none" for name in places)
    offload = OFFLOADS.get((held[0], held[1]), Offload.OPTIMIZER_AND_PARAMETERS)
    yield Setting.OFFLOAD, known(offload.value, "ACCELERATE_DEEPSPEED_OFFLOAD_*_DEVICE")


def _accelerator_arguments(script: Script) -> dict[str, object]:
    """Arguments of the script's `Accelerator` calls, with their values if literal."""
    return {
        str(keyword.arg): _literal(keyword.value)
        for call in ast.walk(script.tree or ast.Module([], []))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Accelerator")
        for keyword in call.keywords
    }


def _literal(expression: ast.expr) -> object:
    return expression.value if isinstance(expression, ast.Constant) else expression
