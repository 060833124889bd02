"""Settings stated in two places of which one silently wins; each as a line.

Covers only pairs that the framework accepts silently: transformers and accelerate raise on values
that must agree. A default isn't a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..core.errors import EXPLAINED
from ..frameworks.config_files.deepspeed import Config, section
from ..frameworks.config_files.vocabulary import optimizer_named
from ..frameworks.framework import FALSE, TRUE

DEFAULTS = {"learning_rate": ("lr", 0.001), "weight_decay": ("weight_decay", 0)}
"""Defaults of DeepSpeed's Adam, by the Trainer's names for them."""
SCHEDULES = {
    "WarmupLR": ("constant", "constant_with_warmup"),
    "WarmupDecayLR": ("linear",),
    "WarmupCosineLR": ("cosine",),
    "OneCycle": (),
    "LRRangeTest": (),
}
"""DeepSpeed's schedules, and transformers' names for the same."""
HALVES = ("bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Stated:
    """A stated value.

    Attributes:
        where: the place and the setting's name, e.g. `zero3.json: gradient_clipping`.
        at: the line, if known.
    """

    value: object
    where: str
    at: str = ""

    def __str__(self) -> str:
        return f"{self.where} {self.value}" + (f" ({self.at})" if self.at else "")


Place = Callable[[str, object], Stated]
"""Function that returns a configuration's value, or the default for an absent key."""


def line(ignored: Stated, holds: Stated) -> str:
    """Formats two statements and which one is in force."""
    return f"{ignored} has no effect: {holds} is in force ({EXPLAINED})"


def differing(ignored: Stated, holds: Stated) -> Iterator[str]:
    """Yields the line if the two values differ."""
    if ignored.value != holds.value:
        yield line(ignored, holds)


def of_trainer(
    stated: Mapping[str, Stated], config: Config, label: str, clipping: float
) -> Iterator[str]:
    """Arguments of a Trainer that DeepSpeed's configuration overrides.

    Its "auto" values have been filled in, and transformers compares values that must agree
    (transformers/integrations/deepspeed.py, `trainer_config_process`): the values of its optimizer
    and schedule that the Trainer doesn't fill in remain, and their kinds.

    Args:
        stated: the arguments that aren't left to their defaults, by name.
        config: DeepSpeed's configuration, as the Trainer has completed it.
        label: the configuration's name.
        clipping: the norm that this DeepSpeed clips to by default.
    """

    def of_config(key: str, value: object) -> Stated:
        held: object = config
        for name in key.split("."):
            held = held.get(name) if isinstance(held, Mapping) else None
        where = f"{label}: {key}" if held is not None else f"{label} has no {key}, whose default"
        return Stated(value, where)

    if "optimizer" in config:
        yield from _optimizer(stated, config, of_config)
    kind = section(config, "scheduler").get("type")
    schedule = stated.get("lr_scheduler_type")
    if schedule is not None and kind in SCHEDULES and str(schedule.value) not in SCHEDULES[kind]:
        yield line(schedule, of_config("scheduler.type", kind))
    norm = stated.get("max_grad_norm")
    if norm is not None and config.get("gradient_clipping") is None:
        stated_norm = Stated(norm.value or 0, norm.where)
        if stated_norm.value != clipping:
            yield line(stated_norm, of_config("gradient_clipping", clipping))
    for half in HALVES:
        switch = stated.get(half)
        is_off = half in config and "enabled" not in section(config, half)
        if switch is not None and switch.value is True and is_off:
            yield line(switch, of_config(f"{half}.enabled", "false"))


def _optimizer(stated: Mapping[str, Stated], config: Config, of_config: Place) -> Iterator[str]:
    """Arguments overridden by the optimizer in the configuration."""
    optimizer = section(config, "optimizer")
    kind, params = str(optimizer.get("type")), section(optimizer, "params")
    yield from _other_kind(stated.get("optim"), of_config("optimizer.type", kind))
    if kind.lower() not in ("adam", "adamw") or params.get("torch_adam"):
        return
    for name, (key, default) in DEFAULTS.items():
        is_set_by_schedule = name == "learning_rate" and "scheduler" in config
        if name in stated and key not in params and not is_set_by_schedule:
            yield from differing(stated[name], of_config(f"optimizer.params.{key}", default))


def of_optimizer(
    stated: Mapping[str, Stated], kind: Stated, groups: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Arguments of a Trainer that a passed optimizer overrides."""
    for name, (key, _) in DEFAULTS.items():
        held = [group.get(f"initial_{key}", group.get(key)) for group in groups]
        if name in stated and held and stated[name].value not in held:
            rate = Stated(f"with {key} {held[0]}", f"{kind.where} {kind.value}", kind.at)
            yield line(stated[name], rate)
    yield from _other_kind(stated.get("optim"), kind)


def _other_kind(argument: Stated | None, optimizer: Stated) -> Iterator[str]:
    """Yields the line if another kind of optimizer was requested."""
    if argument is not None:
        kinds = {optimizer_named(str(stated.value)) for stated in (argument, optimizer)}
        if None not in kinds and len(kinds) > 1:
            yield line(argument, optimizer)


def of_precision(argument: Stated | None, variable: Stated | None, config: Config) -> Iterator[str]:
    """An Accelerator's precision that another setting overrides.

    Arguments win over the environment, and DeepSpeed's configuration over both; accelerate raises
    if the configuration names the other half precision.

    Args:
        argument: the Accelerator's argument; None if it has none.
        variable: the environment variable; None if it isn't set. `no` is ignored, as `accelerate
            launch` sets it by default.
        config: DeepSpeed's configuration; empty without DeepSpeed.
    """
    if argument is not None and variable is not None and variable.value != "no":
        yield from differing(variable, argument)
    stated = argument if argument is not None else variable
    if stated is None or not config:
        return
    if stated.value == "no" and stated is argument:
        half = next((name for name in HALVES if section(config, name).get("enabled") is True), None)
        if half is not None:
            yield line(stated, Stated("true", f"{half}.enabled in DeepSpeed's configuration"))
    elif stated.value in HALVES and section(config, str(stated.value)).get("enabled") is False:
        yield line(stated, Stated("false", f"{stated.value}.enabled in DeepSpeed's configuration"))


def of_variables(
    variables: Mapping[str, str], environment: Mapping[str, str], file: str
) -> Iterator[str]:
    """Variables of accelerate's configuration file that the environment overrides."""
    for name, value in variables.items():
        held = environment.get(name, value)
        # A `no` may be accelerate's default, and true has several spellings.
        if value not in (*TRUE, *FALSE) and not _is_same(held, value):
            yield line(Stated(value, f"{file}: {name}"), Stated(held, f"${name}"))


def _is_same(word: str, other: str) -> bool:
    """Whether two texts are the same word, or the same number."""
    with suppress(ValueError):
        return float(word) == float(other)
    return word.lower() == other.lower()


def of_workers(workers: int | None, where: str, nproc: int, source: str) -> Iterator[str]:
    """The number of workers per machine in accelerate's configuration file, if overridden.

    `where` is the file and its key, `source` the origin of `nproc`, the number that is launched.
    """
    if workers is not None:
        yield from differing(Stated(workers, where), Stated(nproc, "nproc", source))
