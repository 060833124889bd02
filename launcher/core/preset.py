"""The preset: the decision on how the workers train."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from .choices import Checkpointing, Offload, Precision
from .settings import Setting, Value, parse_value

VARIABLE = "SAFE_LAUNCH_PRESET"
"""Environment variable that carries the preset, as JSON, to the workers."""
OVERRIDES_VARIABLE = "SAFE_LAUNCH_OVERRIDES"
"""Environment variable with the settings that the plan changes, which the guards enforce."""
REPLACED_VARIABLE = "SAFE_LAUNCH_REPLACED"
"""Environment variable with the script's own values of those settings, if known."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A complete assignment of the settings; None leaves a setting to the script.

    Attributes:
        zero_stage: ZeRO stage 0 to 3; 0 is plain data parallelism.
        offload: what is kept in host memory.
        gradient_checkpointing: off, reentrant or non_reentrant.
        micro_batch: samples of one rank's forward pass.
        accumulation: micro batches of one optimizer step. micro_batch x accumulation x world size
            is the global batch.
        precision: type of the forward and backward computation.
        static_graph: DDP's promise that the graph is the same in every step.
        find_unused_parameters: whether DDP looks for parameters without a gradient in every step.
        reshard_after_forward: whether FSDP frees a layer's gathered parameters after its forward
            pass, and gathers them again for its backward pass.
    """

    zero_stage: int | None = None
    offload: Offload | None = None
    gradient_checkpointing: Checkpointing | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    precision: Precision | None = None
    static_graph: bool | None = None
    find_unused_parameters: bool | None = None
    reshard_after_forward: bool | None = None

    def settings(self) -> dict[Setting, Value]:
        """The settings that are decided, by name."""
        return {
            setting: value
            for setting in Setting
            if (value := getattr(self, setting.value)) is not None
        }

    def __str__(self) -> str:
        """The settings in words, without the switches that are off."""
        told = ((name, value) for name, value in self.settings().items() if value is not False)
        return ", ".join(describe(setting, value) for setting, value in told)


def preset_of(values: Mapping[Setting, Value]) -> Preset:
    """The preset that assigns `values` and leaves the rest to the script."""
    typed = {setting.value: setting.kind(value) for setting, value in values.items()}
    return Preset(**typed)  # type: ignore[arg-type]


def describe(setting: Setting, value: Value) -> str:
    """A setting and its value in the field's words, e.g. `ZeRO stage 2`."""
    match setting:
        case Setting.ZERO_STAGE:
            return f"ZeRO stage {value}"
        case Setting.OFFLOAD:
            return "no offload" if value == Offload.NONE else f"offload of {value}"
        case Setting.GRADIENT_CHECKPOINTING:
            return {
                Checkpointing.OFF.value: "no gradient checkpointing",
                Checkpointing.REENTRANT.value: "reentrant checkpointing",
                Checkpointing.NON_REENTRANT.value: "non-reentrant checkpointing",
            }[str(value)]
        case Setting.RESHARD_AFTER_FORWARD:
            return f"parameters {'freed' if value else 'kept'} after the forward pass"
        case Setting.MICRO_BATCH:
            return f"micro batch {value}"
        case Setting.ACCUMULATION:
            return f"accumulation {value}"
        case Setting.PRECISION:
            return str(value)
        case _:
            return f"{setting.value}={value}"


def encode(values: Mapping[Setting, Value]) -> str:
    """Settings as JSON for the workers' environment."""
    return json.dumps({setting.value: value for setting, value in values.items()})


def decode(text: str) -> dict[Setting, Value]:
    """The settings in a text from `encode`.

    Raises:
        ValueError: the text isn't such JSON.
    """
    raw = json.loads(text)
    return {Setting(name): parse_value(Setting(name), value) for name, value in raw.items()}


def current_preset() -> Preset | None:
    """The preset that this process was launched with; None outside of safe-launch."""
    text = os.environ.get(VARIABLE)
    return None if text is None else preset_of(decode(text))


assert [field.name for field in fields(Preset)] == [setting.value for setting in Setting]
