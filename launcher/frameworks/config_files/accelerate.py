"""An accelerate configuration file, as `accelerate launch` reads it.

Both the workers' accelerate and the readers read the variables
(accelerate/utils/launch.py, `prepare_simple_launcher_cmd_env`,
`prepare_deepspeed_cmd_env` and `prepare_multi_gpu_env`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import LaunchError
from ...core.nearest import near
from ...core.private_names import VALIDATE_LAUNCH, MissingNameError
from ...core.quantities import count_of
from ...system import regular_files
from ...system.typed_files import DocumentError, line_of, read_mapping
from . import vocabulary

MODELLED = ("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "DEEPSPEED")
"""Values of `distributed_type` whose memory and failures are modelled."""
UNKNOWN = ("MULTI_XPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU", "MULTI_NEURON")
"""Values for kinds of devices that aren't modelled."""
STARTED = (*MODELLED, "FSDP", "MEGATRON_LM", *UNKNOWN)
"""Values for which `accelerate launch` calls torchrun (accelerate/commands/launch.py)."""
OTHERS = ("TPU", "XLA")
"""Values whose processes torch_xla starts."""
ON_CPUS = ("NO", "MULTI_CPU")
"""Values that also apply to CPUs."""
ALONE = "starts one process on CPUs, unless mpirun starts it"
"""accelerate/commands/launch.py, `launch_command`: `simple_launcher` wherever `cpu` is set."""
FURTHER = ("dynamo_config", "dynamo_backend", "fp8_config", "parallelism_config")
"""Sections whose variables only accelerate can derive."""
VARIABLES = {
    **{name: f"DEEPSPEED_{name.upper()}" for name in vocabulary.DEEPSPEED},
    "zero3_init_flag": "DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "DEEPSPEED_CONFIG_FILE",
    "gradient_accumulation_steps": "GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "GRADIENT_CLIPPING",
}
"""Keys of `deepspeed_config`, and the suffixes of their variables ACCELERATE_*."""
QUESTION = f"""
import json, sys
from {VALIDATE_LAUNCH.module} import {VALIDATE_LAUNCH.path}, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
line = ["--config_file", sys.argv[1], "--num_processes", "2", "--main_process_port", "0", "x.py"]
options = {VALIDATE_LAUNCH.path}(launch_command_parser().parse_args(line))[0]
names = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_")
variables = prepare_multi_gpu_env(options).items()
print(json.dumps({{name: value for name, value in variables if name.startswith(names)}}))
"""
"""Program that prints the installed accelerate's variables, which vary between versions."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of a configuration file.

    Attributes:
        variables: of the workers, by name.
        workers: number per machine; None if the file doesn't state it.
        source: the file and its key for the number of workers.
        notes: settings that are launched but not modelled, or not read.
        devices: accelerate's name of the devices, if their kind isn't modelled.
    """

    variables: Mapping[str, str]
    workers: int | None
    source: str
    notes: tuple[str, ...] = ()
    devices: str = ""


NONE = Configuration({}, None, "")
"""Configuration without a file."""


def read(path: Path) -> Configuration:
    """Reads a configuration file.

    Raises:
        LaunchError: the file can't be read or launched; the message names file and line.
    """
    config = read_mapping(path)
    text = regular_files.read_text(path)
    kind = _kind(config, path, text)
    machines, processes = config.get("num_machines") or 1, config.get("num_processes")
    variables, notes = _variables(config, kind, path, text), []
    if kind not in MODELLED and variables.get("FSDP_VERSION") != "2":
        notes.append(f"{path}: {kind} isn't modelled: it is launched as asked")
    if machines != 1:
        notes.append(f"{path}: num_machines isn't read: --nnodes sets the number of nodes")
    workers = _workers(processes, machines)
    if kind in ON_CPUS and config.get("use_cpu") is True and workers and workers > 1:
        notes.append(f"{path}: {count_of(workers, 'worker')}, whereas `accelerate launch` {ALONE}")
    return Configuration(
        variables=variables,
        workers=workers,
        source=f"{path}: num_processes" + (" of each machine" if machines != 1 else ""),
        notes=tuple(notes),
        devices=f"{path}: {kind}" if kind in UNKNOWN else "",
    )


def _workers(processes: object, machines: object) -> int | None:
    """Number of workers per machine; None if the file doesn't state it."""
    if isinstance(processes, int) and isinstance(machines, int) and processes >= machines > 0:
        return processes // machines
    return None


def _kind(config: Mapping[str, Any], path: Path, text: str) -> str:
    """The value of `distributed_type`.

    Raises:
        LaunchError: its workers can't be started here, or the value is unknown to accelerate.
    """
    kind = str(config.get("distributed_type", "NO")).upper()
    place = str(config.get("compute_environment", "LOCAL_MACHINE"))
    line = line_of("distributed_type", text, 1)
    if kind in OTHERS or place != "LOCAL_MACHINE":
        what = kind if kind in OTHERS else place
        problem = f"safe-launch starts workers as torchrun does, and {what} needs another launcher"
        raise DocumentError(path, line, problem, "use accelerate launch")
    if kind not in STARTED:
        problem = f"`distributed_type`: {kind} is unknown"
        raise DocumentError(path, line, problem, near(kind, STARTED))
    return kind


def _variables(config: Mapping[str, Any], kind: str, path: Path, text: str) -> dict[str, str]:
    """The variables of the workers, by name.

    Raises:
        LaunchError: a value is invalid, or accelerate is needed and can't read the file.
    """
    if kind not in MODELLED or (kind != "DEEPSPEED" and any(config.get(key) for key in FURTHER)):
        return _by_accelerate(path)
    variables = {"ACCELERATE_MIXED_PRECISION": _text(config.get("mixed_precision", "no"))}
    if kind in ON_CPUS and config.get("use_cpu") is True:
        variables["ACCELERATE_USE_CPU"] = "true"
    if kind != "DEEPSPEED":
        return variables
    section = config.get("deepspeed_config", {})
    if not isinstance(section, dict):
        line = line_of("deepspeed_config", text, 1)
        raise DocumentError(path, line, "`deepspeed_config`: a mapping is expected")
    variables["ACCELERATE_USE_DEEPSPEED"] = "true"
    for key, end in VARIABLES.items():
        if key in section:
            variables[f"ACCELERATE_{end}"] = _text(section[key])
    stage = section.get("zero_stage")
    if stage is not None and stage not in (0, 1, 2, 3):
        line = line_of("zero_stage", text, 1)
        raise DocumentError(path, line, f"`zero_stage`: {stage!r} isn't a ZeRO stage")
    return variables


def _by_accelerate(path: Path) -> dict[str, str]:
    """The variables that the installed accelerate sets; takes seconds, since it imports torch.

    Raises:
        LaunchError: accelerate isn't installed, or refuses the file.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", QUESTION, str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = next(reversed(done.stderr.strip().splitlines()), "it printed nothing")
        if f"cannot import name '{VALIDATE_LAUNCH.path}'" in last:
            raise MissingNameError(VALIDATE_LAUNCH)
        raise LaunchError(f"{path}: accelerate can't use it: {last}")
    variables: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return variables


def _text(value: Any) -> str:
    """A YAML value as accelerate writes it; a bare `no` is parsed as false."""
    if isinstance(value, bool):
        return "true" if value else "no"
    return str(value)
