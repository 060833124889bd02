"""transformers, and TrainingArguments in flags, argument files, and the version's defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..core.choices import Checkpointing, Engine, Precision
from ..core.errors import LaunchError
from ..core.settings import BATCH, OF_DDP, Fact, Setting
from ..core.workload import Known, Origin, Statement
from . import fsdp
from .config_files.vocabulary import default_mode
from .deepspeed import FLAGS, is_bare
from .framework import TRUE, Argument, FrameworkRow, Script

TRANSFORMERS = FrameworkRow(
    "transformers",
    ("transformers",),
    "huggingface/transformers",
    in_log=r"transformers/trainer\.py",
    on_trainer=True,
)
SIGNS = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_checkpointing_kwargs",
    "activation_checkpointing_kwargs",
)
"""Flags unique to TrainingArguments."""
SWITCHES = ("activation_checkpointing", "gradient_checkpointing", "grad_checkpoint")
"""The checkpointing switch: transformers' newer and older name, InternVL's."""
CHECKPOINTED = {
    *("gradient_checkpointing_enable", "activation_checkpointing_enable"),
    *("prepare_model_for_kbit_training", "prepare_model_for_int8_training"),
    *("enable_gradient_checkpointing", "_set_gradient_checkpointing", "set_grad_checkpointing"),
    *("torch.utils.checkpoint", "checkpoint_sequential"),
}
"""Names in a source that may enable checkpointing without the switch: of transformers, peft,
diffusers, timm and torch."""
BATCHES = ("loader_batch_size", "per_device_train_batch_size", "micro_batch_size")
"""Flags for the batch size in a script without a Trainer: two are unambiguous."""
MIXED = {"fp16": Precision.FP16, "bf16": Precision.BF16}
"""accelerate's names of precisions; `no` leaves it to the model."""


def has_trainer_flags(script: Script) -> bool:
    """Whether the script gets TrainingArguments flags that its own parser doesn't declare."""
    return any(
        name in script.flags and not (script.declares(name) or script.decides(name))
        for name in SIGNS
    )


def is_trainers(script: Script) -> bool:
    """Whether the script's arguments are those of transformers' Trainer."""
    return script.takes_all or has_trainer_flags(script)


def read(script: Script) -> Iterator[Statement]:
    """Batch, checkpointing, precision and DDP in the arguments."""
    yield from _checkpointing(script)
    if is_trainers(script):
        yield from _engine(script)
        yield from _batch(script)
    else:
        yield from _loop_batch(script)
    yield from _precision(script)
    for setting in OF_DDP:
        chosen = script.boolean(setting.row.argument) if is_trainers(script) else None
        if chosen is not None:
            yield setting, chosen.known(chosen.value)


def _engine(script: Script) -> Iterator[Statement]:
    switch, on_cpu = fsdp.flag(script), script.on("use_cpu")
    if switch is not None and on_cpu is not None:
        script.notes.append(
            f"{switch.source} without effect: on a CPU ({on_cpu.source}) accelerate trains with "
            "DDP (safe-launch explain fsdp-trains-ddp-on-cpu)"
        )
        yield Fact.ENGINE, on_cpu.known(Engine.DDP.value)
    elif switch is not None:
        mixed = next((known for _, known in _precision(script)), None)
        yield from fsdp.of_trainer(script, switch, mixed)
    elif not (is_bare(script) or script.text("deepspeed") or script.decides("deepspeed", "fsdp")):
        yield Fact.ENGINE, Known(Engine.DDP.value, Origin.DEFAULT, "no --deepspeed, no --fsdp")
        yield Setting.STATIC_GRAPH, Known(False, Origin.DEFAULT, "DDP's default of static_graph")
        yield Fact.UNSYNCED_PASSES, Known(True, Origin.DEFAULT, "the Trainer's accumulation")


def _batch(script: Script) -> Iterator[Statement]:
    for setting, default in zip(BATCH, (8, 1), strict=True):
        name = setting.row.argument
        number = _positive(script, name)
        if number is not None:
            yield setting, number.known(number.value)
        elif script.leaves(name) and not script.replaces(name):
            yield setting, TRANSFORMERS.default(name, default)


def _loop_batch(script: Script) -> Iterator[Statement]:
    """Batch of a custom loop; its DeepSpeed configuration takes precedence."""
    if any(script.text(name) for name in FLAGS):
        return
    for setting, flags in zip(BATCH, (BATCHES, ("gradient_accumulation_steps",)), strict=True):
        number = script.first_number(*flags)
        if number is not None:
            yield setting, number.known(number.value)


def _positive(script: Script, name: str) -> Argument | None:
    """A flag with a positive whole number.

    Raises:
        LaunchError: the number isn't positive.
    """
    flag = script.flags.get(name)
    text = "" if flag is None else str(flag.value)
    if flag is not None and re.fullmatch(r"-[0-9]+|[+-]?0+", text):
        raise LaunchError(f"{flag.source}: {text} isn't a batch size: at least 1 is needed")
    return script.number(name)


def _checkpointing(script: Script) -> Iterator[Statement]:
    # Late 5.x renamed it to activation_checkpointing, and still accepts the older name.
    name = next((switch for switch in SWITCHES if switch in script.flags), SWITCHES[1])
    switch = script.boolean(name)
    if switch is not None and switch.value:
        by_trainer = is_trainers(script) and name in SWITCHES[:2]
        yield from _recomputed(script, switch, by_trainer=by_trainer)
    elif not script.words.named.isdisjoint(CHECKPOINTED):
        return
    elif switch is not None:
        yield Setting.GRADIENT_CHECKPOINTING, switch.known(Checkpointing.OFF.value)
    elif is_trainers(script) and not _is_replaced(script, *SWITCHES) and script.leaves(*SWITCHES):
        off = TRANSFORMERS.default("gradient_checkpointing", Checkpointing.OFF.value)
        yield Setting.GRADIENT_CHECKPOINTING, off


def _is_replaced(script: Script, *names: str) -> bool:
    """Whether another framework has its own defaults for these arguments."""
    return "trl" in script.names or script.replaces(*names)


def _recomputed(script: Script, switch: Argument, *, by_trainer: bool) -> Iterator[Statement]:
    """The checkpointing implementation, if a switch enables it."""
    mode = stated_mode(script) if by_trainer else None
    if mode is None and by_trainer and _takes_default(script):
        default = default_mode(script.versions)
        if default is not None:
            source = f"{switch.source}, {default[1]}"
            mode = Known(default[0].value, Origin.DEFAULT, source)
    if mode is not None:
        yield Setting.GRADIENT_CHECKPOINTING, _at_most(mode, switch)
    elif not script.owner:
        yield Fact.CHECKPOINTED, switch.known(value=True)


def _at_most(mode: Known, switch: Argument) -> Known:
    """The mode, with its switch's certainty and source."""
    if mode.origin < switch.origin:
        return Known(mode.value, mode.origin, f"{switch.source}, {mode.source}")
    return Known(mode.value, switch.origin, mode.source)


def _takes_default(script: Script) -> bool:
    """Whether the implementation is transformers' default.

    trl had another default before transformers 5, and takes the reentrant one with adapters at
    stage 3 (trl/trainer/sft_trainer.py, `SFTTrainer.__init__`).
    """
    is_set = script.decides(*(f"{switch}_kwargs" for switch in SWITCHES))
    if is_set or script.replaces(*SWITCHES):
        return False
    if "trl" in script.names:
        is_recent = not script.versions.get("transformers", "4").startswith("4.")
        enabled = script.environment.get("ACCELERATE_USE_DEEPSPEED", "false").lower() in TRUE
        return is_recent and script.text("deepspeed") is None and not enabled
    return True


def stated_mode(script: Script) -> Known | None:
    """The implementation in the switch's kwargs, if stated."""
    kwargs = script.first(*(f"{switch}_kwargs" for switch in SWITCHES))
    mode = None if kwargs is None else _mode(_mapping(kwargs, script).get("use_reentrant"))
    return None if kwargs is None or mode is None else kwargs.known(mode.value)


def _mode(use_reentrant: object) -> Checkpointing | None:
    if use_reentrant is None:
        return None
    return Checkpointing.REENTRANT if use_reentrant else Checkpointing.NON_REENTRANT


def _mapping(where: Argument, script: Script) -> dict[str, Any]:
    """A dict from a file, or from JSON on a command line."""
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
        flag = script.on(precision.value)
        if flag is not None:
            # Workers report the flag's meaning in the script's own parser.
            is_declared = script.declares(precision.value) and not is_trainers(script)
            origin = Origin.SCRIPT if is_declared else flag.origin
            yield Setting.PRECISION, Known(precision.value, origin, flag.source)
            return
    mixed = script.text("mixed_precision")
    if mixed is not None and str(mixed.value) in MIXED:
        yield Setting.PRECISION, mixed.known(MIXED[str(mixed.value)].value)
    elif script.takes_all and script.leaves(*MIXED) and not _is_replaced(script, *MIXED):
        yield Setting.PRECISION, TRANSFORMERS.default("bf16 and fp16", Precision.FP32.value)
