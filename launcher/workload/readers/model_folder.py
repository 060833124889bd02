"""Finds the model that a script's arguments name, and reads its shape from its files."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ...core.choices import Precision
from ...core.model import Model
from ...core.settings import Fact
from ...core.workload import Known, Origin, Statement
from ...frameworks.arguments import Argument
from ...frameworks.config_files.vocabulary import dtype_named
from ...frameworks.framework import Script
from ..models.from_folder import read_model

FROM_SCRATCH = "config_name"
"""Flag of transformers' examples for a model initialized from a configuration.

Hydra's flag of that name differs, so it counts only for a folder, or beside `AutoConfig`.
"""

FLAGS = (
    "model_name_or_path",
    "model_id_or_path",
    "pretrained_model_name_or_path",
    "base_model",
    "model_path",
    "model_id",
    "model_name",
    "model",
    "model_type",
    FROM_SCRATCH,
)
"""Flags of transformers' examples, ms-swift, trl, LLaMA-Factory and models' own scripts.

`model_type` was a registry name in ms-swift 2; it counts only if it is a folder.
"""
UNSURE = ("model_type", FROM_SCRATCH)
"""Flags with other meanings too."""


def read_model_of(script: Script) -> tuple[Model | None, tuple[str, ...]]:
    """The model in the script's arguments, and notes about it.

    Raises:
        LaunchError: one of the model's files is broken.
    """
    _, named = _named(script)
    if named is None:
        return None, ()
    notes: list[str] = []
    model = read_model(_folder(named), notes, script.environment)
    return model, tuple(f"{named.source}: {note}" for note in notes)


def statements(script: Script, model: Model | None) -> Iterator[Statement]:
    """Dtype of a model from scratch: its configuration's, or fp32, in every version.

    transformers/modeling_utils.py, `_from_config`.
    """
    flag, named = _named(script)
    if flag == FROM_SCRATCH and named is not None and model is not None:
        kind = dtype_named(model.stored) or Precision.FP32
        source = f"the type in {model.source}, by {named.source}"
        yield Fact.LOADED_PRECISION, Known(kind.value, Origin.DEFAULT, source)


def _named(script: Script) -> tuple[str, Argument | None]:
    """The flag that names the model, and its value."""
    for flag in FLAGS:
        named = script.text(flag)
        if named is None or not isinstance(named.value, str):
            continue
        is_sure = flag not in UNSURE or (flag == FROM_SCRATCH and "AutoConfig" in script.names)
        if is_sure or os.path.isdir(_folder(named)):  # noqa: PTH112 - a name may be too long
            return flag, named
    return "", None


def _folder(named: Argument) -> str:
    """The folder or hub name of a model; a configuration may be given by its file."""
    return str(named.value).removesuffix("/config.json")
