"""Reads and changes, in place, the DeepSpeed configuration in accelerate's plugin.

transformers and accelerate hold other references to the same dict, and copies of some values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..core.settings import Setting, Value
from ..frameworks.config_files.deepspeed import Config, section, with_settings
from ..frameworks.config_files.vocabulary import DEEPSPEED
from ..frameworks.deepspeed import of_config
from ..frameworks.framework import Script

COPIES = {**DEEPSPEED, "gradient_accumulation_steps": ("gradient_accumulation_steps",)}
"""Plugin fields and the configuration values they copy."""


def config_of(plugin: Any) -> Config | None:
    """The configuration of a `DeepSpeedPlugin`, if it has any."""
    config = getattr(getattr(plugin, "hf_ds_config", None), "config", None)
    return config if isinstance(config, dict) else None


def deepspeed_facts(config: Config) -> dict[str, Value | None]:
    """Settings of a DeepSpeed configuration, except those that are "auto"."""
    # Its notes are discarded: DeepSpeed itself reports configuration errors.
    stated = of_config(config, "", Script(world=int(os.environ.get("WORLD_SIZE", "1"))))
    return {str(name): known.value for name, known in stated}


def is_partitioned(model: Any) -> bool:
    """Whether a model's weights are partitioned, as ZeRO-3 does on loading."""
    return any(hasattr(weight, "ds_id") for weight in model.parameters())


def change(plugin: Any, settings: Mapping[Setting, Value]) -> None:
    """Changes a plugin's configuration before its engine is created."""
    configuration = plugin.hf_ds_config
    changed = with_settings(configuration.config, settings)
    if changed == configuration.config:
        return
    was_zero3 = configuration.is_zero3()
    configuration.config.clear()
    configuration.config.update(changed)
    configuration.set_stage_and_offload()
    for name, path in COPIES.items():
        if hasattr(plugin, name):
            setattr(plugin, name, _at(changed, path))
    if configuration.is_zero3() != was_zero3:
        plugin.zero3_init_flag = not was_zero3  # whether models are made partitioned
    if hasattr(plugin, "dschf"):  # the copy that transformers asks on loading a model
        plugin.set_deepspeed_weakref()


def _at(config: Config, path: tuple[str, ...]) -> Any:
    """A configuration value; "none" for an unset device, as in the plugin."""
    *sections, key = path
    for name in sections:
        config = section(config, name)
    return config.get(key, "none" if key == "device" else None)
