"""Reads Hugging Face's TrainingArguments: flags, files of arguments, and the version's defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.errors import ExitCode, LaunchError
from ...core.settings import Checkpointing, Engine, Fact, Origin, Precision, Setting
from ...core.workload import Known, Statement
from ..script.script import Given, Script

SIGNS = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_checkpointing_kwargs",
    "activation_checkpointing_kwargs",
)
"""Flags that no other framework has."""
SWITCHES = ("activation_checkpointing", "gradient_checkpointing")


def given(script: Script) -> bool:
    """Whether the script gets flags of TrainingArguments."""
    return any(name in script.flags for name in SIGNS)


def read(script: Script) -> Iterator[Statement]:
    """Batch, checkpointing, precision and DDP in the arguments."""
    if not script.takes_all and not given(script):
        return
    fsdp = _fsdp(script)
    if fsdp is not None:
        yield Fact.ENGINE, _known(fsdp, Engine.FSDP.value)
    elif "deepspeed" in script.flags and script.flags["deepspeed"].value is None:
        # TrainingArguments' flag has a value: alone, it is the switch of DeepSpeed's argparse.
        bare = script.flags["deepspeed"]
        yield Fact.ENGINE, _known(bare, Engine.DEEPSPEED.value)
    elif script.text("deepspeed") is None:
        yield Fact.ENGINE, Known(Engine.DDP.value, Origin.DEFAULT, "no --deepspeed, no --fsdp")
        yield Setting.STATIC_GRAPH, Known(False, Origin.DEFAULT, "DDP's default of static_graph")
    yield from _batch(script)
    yield from _checkpointing(script)
    yield from _precision(script)
    for setting, flag in (
        (Setting.FIND_UNUSED_PARAMETERS, "ddp_find_unused_parameters"),
        (Setting.STATIC_GRAPH, "ddp_static_graph"),
    ):
        chosen = script.boolean(flag)
        if chosen is not None:
            yield setting, _known(chosen, chosen.value)


def _fsdp(script: Script) -> Given | None:
    """The flag for FSDP: with a value or, in late 5.x, alone."""
    given = script.flags.get("fsdp")
    return given if given is not None and given.value is None else script.text("fsdp")


def _known(where: Given, value: Any) -> Known:
    return Known(value, where.origin, where.source)


def _batch(script: Script) -> Iterator[Statement]:
    for setting, name, default in (
        (Setting.MICRO_BATCH, "per_device_train_batch_size", 8),
        (Setting.ACCUMULATION, "gradient_accumulation_steps", 1),
    ):
        number = _positive(script, name)
        if number is not None:
            yield setting, _known(number, number.value)
        elif name not in script.flags and script.owner != "swift":
            yield setting, Known(default, Origin.DEFAULT, f"transformers' default of {name}")


def _positive(script: Script, name: str) -> Given | None:
    """A flag with a positive whole number.

    Raises:
        LaunchError: it is a whole number, but not positive.
    """
    given = script.flags.get(name)
    text = "" if given is None else str(given.value)
    if given is not None and re.fullmatch(r"-[0-9]+|[+-]?0+", text):
        problem = f"{given.source}: {text} isn't a batch size: at least 1 is needed"
        raise LaunchError(ExitCode.USAGE, problem)
    return script.number(name)


def _checkpointing(script: Script) -> Iterator[Statement]:
    # Late 5.x calls it activation_checkpointing and still accepts the older name.
    name = next((switch for switch in SWITCHES if switch in script.flags), SWITCHES[-1])
    switch = script.boolean(name)
    has_own = "trl" in script.names or script.owner in ("swift", "llamafactory")
    if switch is None:
        if name in script.flags:
            return
        if not has_own:
            source = "transformers' default of gradient_checkpointing"
            off = Known(Checkpointing.OFF.value, Origin.DEFAULT, source)
            yield Setting.GRADIENT_CHECKPOINTING, off
        elif not script.owner:
            source = "recent trl's default of gradient_checkpointing"
            yield Fact.CHECKPOINTED, Known(True, Origin.DEFAULT, source)
        return
    if not switch.value:
        yield Setting.GRADIENT_CHECKPOINTING, _known(switch, Checkpointing.OFF.value)
        return
    asked = mode_asked(script)
    if asked is not None:
        yield Setting.GRADIENT_CHECKPOINTING, asked
        return
    default = default_mode(script.versions)
    # trl's own defaults depend on its version, on ZeRO's stage and on adapters.
    if default is not None and not has_own:
        mode, source = default
        source = f"{switch.source}, {source}"
        yield Setting.GRADIENT_CHECKPOINTING, Known(mode.value, switch.origin, source)
    elif not script.owner:
        yield Fact.CHECKPOINTED, _known(switch, value=True)


def mode_asked(script: Script) -> Known | None:
    """The implementation in the switch's kwargs; None where they leave it open."""
    kwargs = next((given for each in SWITCHES if (given := script.text(f"{each}_kwargs"))), None)
    mode = None if kwargs is None else _mode(_mapping(kwargs, script).get("use_reentrant"))
    return None if kwargs is None or mode is None else _known(kwargs, mode.value)


def _mode(use_reentrant: object) -> Checkpointing | None:
    if use_reentrant is None:
        return None
    return Checkpointing.REENTRANT if use_reentrant else Checkpointing.NON_REENTRANT


def default_mode(versions: Mapping[str, str]) -> tuple[Checkpointing, str] | None:
    """The mode of gradient checkpointing without `use_reentrant`, and the source of that default.

    transformers 4.x uses the reentrant implementation, 5.0 and later the non-reentrant one
    (https://github.com/huggingface/transformers/pull/43203).
    """
    version = versions.get("transformers")
    if version is None:
        return None
    old = int(version.partition(".")[0]) < 5
    mode = Checkpointing.REENTRANT if old else Checkpointing.NON_REENTRANT
    return mode, f"transformers {version}'s default of use_reentrant"


def _mapping(where: Given, script: Script) -> dict[str, Any]:
    """A dict from a file, or from a command line as JSON."""
    if isinstance(where.value, dict):
        return where.value
    try:
        value = json.loads(str(where.value))
    except (ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else error
        script.notes.append(f"{where.source}: not JSON: {problem}: {where.value}")
        return {}
    if not isinstance(value, dict):
        script.notes.append(f"{where.source}: a JSON object is expected: {where.value}")
        return {}
    return {key: _converted(item) for key, item in value.items()}


def _converted(value: object) -> object:
    """Converts texts in JSON like `_convert_str_dict` of transformers/training_args.py."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _precision(script: Script) -> Iterator[Statement]:
    for precision in (Precision.BF16, Precision.FP16):
        flag = script.boolean(precision.value)
        if flag is not None and flag.value:
            yield Setting.PRECISION, _known(flag, precision.value)
            return
    if "trl" in script.names or script.owner in ("swift", "llamafactory"):
        return  # its own arguments default to bf16 in some versions, or to the model's type
    if script.takes_all and not {"bf16", "fp16"} & script.flags.keys():
        source = "transformers' default of bf16 and fp16"
        yield Setting.PRECISION, Known(Precision.FP32.value, Origin.DEFAULT, source)
