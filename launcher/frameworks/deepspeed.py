"""Reads the DeepSpeed configuration that a script's arguments name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..core.choices import Engine, Offload
from ..core.errors import LaunchError
from ..core.quantities import count_of
from ..core.settings import BATCH, Fact, Setting
from ..core.workload import Statement
from .config_files.deepspeed import Config, ConfigError, load
from .config_files.deepspeed_statements import batch_of, of_config
from .framework import Script

FLAGS = (
    "deepspeed",
    "deepspeed_config",
    "ds_config",
    "deepspeed_config_file",
    "deepspeed_config_path",
)


def read(script: Script) -> Iterator[Statement]:
    """Stage, offload, batch and precision; "auto" is left to the framework that fills it in.

    Raises:
        LaunchError: a file named *.json doesn't exist or isn't a JSON object.
    """
    flag = script.first(*FLAGS)
    if flag is not None:
        value = flag.value
        is_inline = isinstance(value, dict) or str(value).lstrip().startswith("{")
        if is_inline or str(value).endswith(".json"):
            try:
                config = load(value)
            except ConfigError as error:
                raise LaunchError(f"{flag.source}: {error}") from error
            yield from statements(config, flag.source if is_inline else Path(value).name, script)
            return
        if flag is not script.flags.all.get("ds_config"):
            # Some frameworks have named configurations: `--deepspeed zero2`.
            yield Fact.ENGINE, flag.known(Engine.DEEPSPEED.value)
    if is_bare(script):
        yield from _made_by_script(script)


def is_bare(script: Script) -> bool:
    """Whether `--deepspeed` has no value: then it is the switch of DeepSpeed's argparse."""
    return "deepspeed" in script.flags and script.flags["deepspeed"].value is None


def _made_by_script(script: Script) -> Iterator[Statement]:
    """Stage and offload of a configuration built from flags by the script: DeepSpeed-Chat."""
    bare, stage = script.flags["deepspeed"], script.text("zero_stage")
    yield Fact.ENGINE, bare.known(Engine.DEEPSPEED.value)
    if stage is None:
        return
    if str(stage.value) not in ("0", "1", "2", "3"):
        script.notes.append(f"{stage.source}: {stage.value!r} isn't a ZeRO stage")
        return
    number = int(stage.value)
    yield Setting.ZERO_STAGE, stage.known(number)
    offload = script.boolean("offload")
    if offload is not None:
        all_of_it = Offload.OPTIMIZER_AND_PARAMETERS if number == 3 else Offload.OPTIMIZER
        kept = all_of_it if offload.value else Offload.NONE
        yield Setting.OFFLOAD, offload.known(kept.value)


def statements(config: Config, label: str, script: Script) -> Iterator[Statement]:
    """The statements in a configuration.

    Raises:
        LaunchError: its numbers contradict each other or the flags.
    """
    _refuse_contradictions(config, label, script)
    yield from of_config(config, label, script)


def _refuse_contradictions(config: Config, label: str, script: Script) -> None:
    """Refuses values that transformers and DeepSpeed would refuse at the start of training.

    The Trainer requires flags to agree (transformers/integrations/deepspeed.py, `fill_match`),
    DeepSpeed the numbers of a configuration (deepspeed/runtime/config.py, `_batch_assertion`).

    Raises:
        LaunchError: two numbers that must agree don't; the message has both, with their places.
    """
    micro, steps, whole = batch_of(config, label, replace(script, notes=[]))
    for setting, value in zip(BATCH, (micro, steps), strict=True):
        key = setting.row.deepspeed
        flag = script.flags.get(setting.row.argument) if script.takes_all else None
        text = "" if flag is None else str(flag.value)
        if flag is not None and value is not None and text.isdecimal() and int(text) != value:
            problem = f"{label}: {key} is {value}, but {flag.source} is {text}"
            raise LaunchError(problem, f'write "auto" for {key} in the file')
    if micro and steps and whole and micro * steps * script.world != whole:
        workers = count_of(script.world, "worker")
        product = f"{micro} x {steps} x {workers} = {micro * steps * script.world}"
        problem = (
            f"{label}: train_batch_size is {whole}, but micro batch x accumulation is {product}"
        )
        raise LaunchError(problem, 'leave one of them out, or write "auto"')
