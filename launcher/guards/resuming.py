"""Makes a Trainer resume from where the launcher says, and tells the launcher where it saves."""

from __future__ import annotations

import inspect
import itertools
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ..checkpoints.checkpoint import UNIVERSAL, VARIABLE, Saves
from ..checkpoints.discovery import present
from ..evidence.observations import Observations
from ..evidence.worker_messages import SaveLocation

HOOKED = ("transformers.trainer", "deepspeed.runtime.engine")

_trainings = itertools.count()
"""Numbers of the calls of `Trainer.train` in this process."""


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the Trainer's loop, or `DeepSpeedEngine.load_checkpoint`."""
    if module.__name__ == HOOKED[0]:
        wrapt.wrap_function_wrapper(module, "Trainer.train", partial(_train, observations))
        wrapt.wrap_function_wrapper(module, "Trainer._inner_training_loop", _loop)
    else:
        wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.load_checkpoint", _load)


def _train(observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """The training that the launcher means resumes from its folder, whatever the script passes.

    What the script passes was where the job began; the launcher's folder is a later checkpoint of
    the same job. Which training it is tells its number, not `output_dir`: some scripts, as those of
    ms-swift, make a new folder at every launch.
    """
    given = inspect.signature(wrapped).bind_partial(*args, **kwargs)
    training, (number, folder) = next(_trainings), resumed()
    if folder and training == number:
        given.arguments["resume_from_checkpoint"] = folder
    output_dir = str(Path(instance.args.output_dir).absolute())
    observations.send(SaveLocation(Saves(output_dir, training, present(output_dir))))
    return wrapped(*given.args, **given.kwargs)


def _loop(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """What resumes from the launcher's folder has the micro batch of this launch.

    transformers 4 takes that of the checkpoint (`state.train_batch_size` in trainer.py), which with
    another accumulation makes another global batch.
    """
    given = inspect.signature(wrapped).bind(*args, **kwargs)
    folder = resumed()[1]
    is_ours = folder and given.arguments.get("resume_from_checkpoint") == folder
    if is_ours and not instance.args.auto_find_batch_size:
        given.arguments["batch_size"] = instance.args.train_batch_size
    return wrapped(*given.args, **given.kwargs)


def resumed() -> tuple[int, str]:
    """The training that is to resume, and its folder; read anew from the environment."""
    number, _, folder = os.environ.get(VARIABLE, "").partition(":")
    return int(number or 0), folder


def _load(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """The launcher's folder is loaded as the universal checkpoint that it is, others as ever.

    `"checkpoint": {"load_universal": true}` in the JSON would hold for every later loading too,
    e.g. of the best model at the end, and that is no universal checkpoint.
    """
    folder = str(inspect.signature(wrapped).bind(*args, **kwargs).arguments["load_dir"])
    if folder != resumed()[1]:
        return wrapped(*args, **kwargs)
    config, before = instance._config, instance._config.load_universal_checkpoint
    config.load_universal_checkpoint = before or (Path(folder) / UNIVERSAL).is_file()
    try:
        loaded = wrapped(*args, **kwargs)
    finally:
        config.load_universal_checkpoint = before
    with suppress(AttributeError):
        _fit_steps(instance.optimizer.optimizer)
    return loaded


def _fit_steps(optimizer: Any) -> None:
    """Gives the count of steps the type that the optimizer keeps it in.

    torch's keep a tensor, DeepSpeed's for the CPU an integer: with another offload it is another's.
    """
    import torch

    home = type(optimizer).__module__
    for state in optimizer.state.values():
        if home.startswith("torch.optim.") and isinstance(state.get("step"), int):
            state["step"] = torch.tensor(float(state["step"]))
        elif home.startswith("deepspeed.ops.adam.cpu_adam") and isinstance(
            state.get("step"), torch.Tensor
        ):
            state["step"] = int(state["step"])
