"""Makes a Trainer go on from where the launcher says, and tells the launcher where it saves."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ..checkpoints import present
from ..saved import UNIVERSAL, VARIABLE
from . import sightings

HOOKED = ("transformers.trainer", "deepspeed.runtime.engine")

_resumed: list[str] = []
"""Folders that a Trainer of this process has gone on from already."""


def install(module: ModuleType) -> None:
    """Wraps `Trainer.train`, or `DeepSpeedEngine.load_checkpoint`."""
    if module.__name__ == HOOKED[0]:
        wrapt.wrap_function_wrapper(module, "Trainer.train", _train)
    else:
        wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.load_checkpoint", _load)


def _train(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """The first training into the folder's parent goes on from it, whatever the script passes.

    What the script passes was where the job began; the launcher's folder is a later checkpoint of
    the same job. A second training of the process is the script's own business again.
    """
    given = inspect.signature(wrapped).bind_partial(*args, **kwargs)
    output_dir = str(Path(instance.args.output_dir).absolute())
    folder = os.environ.get(VARIABLE, "")
    if folder and folder not in _resumed and is_within(folder, output_dir):
        _resumed.append(folder)
        given.arguments["resume_from_checkpoint"] = folder
    if sightings.sender is not None:
        saves = {"output_dir": output_dir, "before": present(output_dir)}
        sightings.sender.send("saves", {"saves": saves})
    return wrapped(*given.args, **given.kwargs)


def is_within(folder: str, output_dir: str) -> bool:
    """Whether a checkpoint's folder lies in the folder that a Trainer writes to."""
    return Path(folder).parent.resolve() == Path(output_dir).resolve()


def _load(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """The launcher's folder is loaded as the universal checkpoint that it is, others as ever.

    `"checkpoint": {"load_universal": true}` in the JSON would hold for every later loading too,
    e.g. of the best model at the end, and that is no universal checkpoint.
    """
    given = inspect.signature(wrapped).bind(*args, **kwargs)
    folder = str(given.arguments["load_dir"])
    if folder != os.environ.get(VARIABLE) or not (Path(folder) / UNIVERSAL).is_file():
        return wrapped(*args, **kwargs)
    config, before = instance._config, instance._config.load_universal_checkpoint
    config.load_universal_checkpoint = True
    try:
        return wrapped(*args, **kwargs)
    finally:
        config.load_universal_checkpoint = before
