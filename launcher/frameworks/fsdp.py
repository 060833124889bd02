"""Reads the settings of FSDP: the Trainer's flags, accelerate's variables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.choices import Checkpointing, Engine, Offload, Precision, Units
from ..core.errors import reason_of
from ..core.settings import Fact, Setting, Value
from ..core.workload import Known, Origin, Statement
from ..system import regular_files
from .framework import FALSE, TRUE, Argument, Script

LAYERS = "TRANSFORMER_BASED_WRAP"
UNITS = {LAYERS: Units.LAYERS, "NO_WRAP": Units.WHOLE}
"""Units by accelerate's policies; those of the size policy depend on the model."""
PREFIX = "fsdp_"
"""Optional prefix of `--fsdp_config` keys (transformers/training_args.py, `_process_fsdp_args`)."""


def flag(script: Script) -> Argument | None:
    """The Trainer's FSDP flag: with a value or, in late 5.x, alone."""
    switch = script.flags.get("fsdp")
    return switch if switch is not None and switch.value is None else script.text("fsdp")


def of_trainer(script: Script, switch: Argument, mixed: Known | None) -> Iterator[Statement]:
    """Settings of `--fsdp` and `--fsdp_config`, in accelerate's terms.

    transformers 4 sets accelerate's variables, 5 the corresponding arguments
    (transformers/training_args.py, `__post_init__` and `_process_fsdp_args`). `mixed` is the type
    of mixed precision; None without.
    """
    yield Fact.ENGINE, switch.known(Engine.FSDP.value)
    config = _config(script)
    where = script.text("fsdp_config") or switch
    items = str(switch.value or "").split()
    is_recent = not script.versions.get("transformers", "4").startswith("4.")
    reshard = Setting.RESHARD_AFTER_FORWARD.row
    variables: dict[str, object] = {
        "FSDP_AUTO_WRAP_POLICY": config.get("auto_wrap_policy", LAYERS),
        reshard.variable: config.get(reshard.fsdp, "shard_grad_op" not in items),
        "FSDP_OFFLOAD_PARAMS": config.get("cpu_offload", "offload" in items),
        "FSDP_ACTIVATION_CHECKPOINTING": config.get("activation_checkpointing"),
        "FSDP_VERSION": config.get("version", 2),
    }
    if not is_recent:
        by_size = "SIZE_BASED_WRAP" if config.get("min_num_params") else LAYERS
        variables = {
            **{name: each for name, each in script.environment.items() if name.startswith("FSDP_")},
            "FSDP_OFFLOAD_PARAMS": "offload" in items,
            **({"FSDP_AUTO_WRAP_POLICY": by_size} if "auto_wrap" in items else {}),
        }
    assumed = Known(2, Origin.DEFAULT, "the default of transformers 5")

    def known(value: Value, name: str) -> Known:
        is_default = name == "FSDP_VERSION" and is_recent and "version" not in config
        return assumed if is_default else where.known(value)

    yield from of_variables(variables, known, mixed)


def of_variables(
    variables: Mapping[str, object], known: Callable[[Value, str], Known], mixed: Known | None
) -> Iterator[Statement]:
    """The settings of accelerate's variables (accelerate/utils/dataclasses.py, FSDP plugin).

    `known` states a value, given the variable's name; `mixed` is as in `of_trainer`.
    """
    version = str(variables.get("FSDP_VERSION", 1))
    if version in ("1", "2"):
        yield Fact.FSDP_VERSION, known(int(version), "FSDP_VERSION")
    name = "FSDP_AUTO_WRAP_POLICY"
    units = UNITS.get(str(variables.get(name, "NO_WRAP")).upper())
    if units is not None:
        yield Fact.FSDP_UNITS, known(units.value, name)
    name = Setting.RESHARD_AFTER_FORWARD.row.variable
    reshard = str(variables.get(name, True)).lower()
    if version == "2" and reshard in TRUE + FALSE:  # the first version has strategies instead
        yield Setting.RESHARD_AFTER_FORWARD, known(reshard in TRUE, name)
    name = "FSDP_OFFLOAD_PARAMS"
    is_held = _is_true(variables.get(name))
    held = Offload.OPTIMIZER_AND_PARAMETERS if is_held else Offload.NONE
    yield Setting.OFFLOAD, known(held.value, name)
    name = "FSDP_ACTIVATION_CHECKPOINTING"
    if _is_true(variables.get(name)):
        # accelerate/accelerator.py: `checkpoint_wrapper` with NO_REENTRANT.
        yield Setting.GRADIENT_CHECKPOINTING, known(Checkpointing.NON_REENTRANT.value, name)
    if mixed is not None and mixed.value != Precision.FP32:
        # accelerate casts the trained parameters (utils/fsdp_utils.py, `fsdp2_prepare_model`).
        masters = replace(mixed, value=Precision.FP32.value)
        yield Fact.MASTER_PRECISION, masters


def _config(script: Script) -> dict[str, Any]:
    """The content of `--fsdp_config`, a file or a mapping; empty if it can't be read."""
    argument = script.text("fsdp_config")
    value = None if argument is None else argument.value
    if isinstance(value, str):
        try:
            text = value if value.lstrip().startswith("{") else regular_files.read_text(Path(value))
            value = json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            script.notes.append(f"--fsdp_config: {reason_of(error)}")
            value = None
    mapping = value if isinstance(value, dict) else {}
    return {str(key).removeprefix(PREFIX): each for key, each in mapping.items()}


def _is_true(value: object) -> bool:
    return str(value).lower() in TRUE
