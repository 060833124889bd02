"""Finds the model that a script's arguments name, and reads its shape from its files."""

from __future__ import annotations

from pathlib import Path

from ...core.model import Model
from ..models.from_folder import read_model
from ..script.script import Script

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
)
"""transformers' examples, ms-swift, trl, LLaMA-Factory and the scripts of models themselves.

`model_type` was a name in a registry of ms-swift 2; it counts only if it is a folder.
"""


def read_model_of(script: Script) -> tuple[Model | None, tuple[str, ...]]:
    """The model in the script's arguments, and notes about it.

    Raises:
        LaunchError: one of the model's files is broken.
    """
    for flag in FLAGS:
        # ms-swift's `--model_name` is what a model is taught to call itself.
        given = None if flag == "model_name" and script.owner == "swift" else script.text(flag)
        if given is None or not isinstance(given.value, str):
            continue
        if flag == "model_type" and not Path(given.value).is_dir():
            continue
        notes: list[str] = []
        model = read_model(given.value, str(Path.cwd()), notes, script.environment)
        return model, tuple(f"{given.source}: {note}" for note in notes)
    return None, ()
