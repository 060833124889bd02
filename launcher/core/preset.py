"""The preset: the decision on how the workers train."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .settings import Setting, Value, parse_value

VARIABLE = "SAFE_LAUNCH_PRESET"
"""Environment variable that carries the preset, as JSON, to the workers."""
OVERRIDES_VARIABLE = "SAFE_LAUNCH_OVERRIDES"
"""Environment variable with the settings that the plan changes, which the guards enforce."""
REPLACED_VARIABLE = "SAFE_LAUNCH_REPLACED"
"""Environment variable with the script's own values of those settings, if known."""


@dataclass(frozen=True, slots=True)
class Preset:
    """An assignment of the settings, each an attribute of its name.

    None leaves a setting to the script.
    """

    values: tuple[tuple[Setting, Value], ...]

    def __getattr__(self, name: str) -> Any:
        """A setting's value, of its type."""
        if name not in {*Setting}:
            raise AttributeError(f"there is no setting `{name}`")
        return self.settings().get(Setting(name))

    def settings(self) -> dict[Setting, Value]:
        """The settings that are decided, by name."""
        return dict(self.values)

    def __str__(self) -> str:
        """The settings in words, without the switches that are off."""
        return ", ".join(
            describe(setting, value) for setting, value in self.values if value is not False
        )


def preset_of(values: Mapping[Setting, Value]) -> Preset:
    """The preset that assigns `values` and leaves the rest to the script."""
    known = (setting for setting in Setting if setting in values)
    return Preset(tuple((setting, setting.kind(values[setting])) for setting in known))  # type: ignore[misc]


def describe(setting: Setting, value: Value) -> str:
    """A setting and its value in the field's words, e.g. `ZeRO stage 2`."""
    return setting.row.values.words(value)


def encode(values: Mapping[Setting, Value]) -> str:
    """Settings as JSON for the workers' environment."""
    return json.dumps({setting.value: value for setting, value in values.items()})


def decode(text: str) -> dict[Setting, Value]:
    """The settings in a text from `encode`.

    Raises:
        ValueError: the text isn't such JSON.
    """
    return parsed(json.loads(text))


def parsed(values: Mapping[str, object]) -> dict[Setting, Value]:
    """The settings of these names and values; raises like `decode`."""
    return {Setting(name): parse_value(Setting(name), value) for name, value in values.items()}


def current_preset() -> Preset | None:
    """The preset that this process was launched with; None outside of safe-launch."""
    text = os.environ.get(VARIABLE)
    return None if text is None else preset_of(decode(text))
