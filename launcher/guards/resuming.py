"""Resumes a Trainer from the launcher's checkpoint, and reports the save folders."""

from __future__ import annotations

import inspect
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ..checkpoints.checkpoint import UNIVERSAL, VARIABLE, Saves
from ..checkpoints.save_folders import present
from ..core.private_names import ENGINE_CONFIG, INNER_LOOP, LOAD_UNIVERSAL
from ..evidence.observations import observations
from ..evidence.worker_messages import SaveLocation
from ..system import regular_files

HOOKED = ("transformers.trainer", "deepspeed.runtime.engine")

_trainings = itertools.count()
"""Numbers the calls of `Trainer.train` in this process."""


def install(module: ModuleType) -> None:
    """Wraps the Trainer's loop, or `DeepSpeedEngine.load_checkpoint`."""
    if module.__name__ == HOOKED[0]:
        wrapt.wrap_function_wrapper(module, "Trainer.train", _train)
        with observations.going_on():
            INNER_LOOP.of(module.Trainer)
            wrapt.wrap_function_wrapper(module, INNER_LOOP.path, _loop)
    else:
        wrapt.wrap_function_wrapper(module, "DeepSpeedEngine.load_checkpoint", _load)


def _train(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Resumes the selected call of `train` from the launcher's folder instead of the script's.

    The script names the checkpoint at which the job began; the launcher's is a later one of the
    same job. Calls are identified by number, not by `output_dir`: some scripts, like those of
    ms-swift, create a new folder at every launch.
    """
    call = inspect.signature(wrapped).bind_partial(*args, **kwargs)
    training, (number, folder) = next(_trainings), resumed()
    if folder and training == number:
        call.arguments["resume_from_checkpoint"] = folder
    with suppress(AttributeError, OSError, TypeError, ValueError):  # the Trainer itself fails
        origin = call.arguments.get("resume_from_checkpoint")
        observations.see(resumes_midway=_is_midway(instance.args, origin) or None)
    output_dir = str(Path(instance.args.output_dir).absolute())
    observations.send(SaveLocation(Saves(output_dir, training, present(output_dir))))
    return wrapped(*call.args, **call.kwargs)


def _is_midway(arguments: Any, origin: Any) -> bool:
    """Whether a training resumes within an epoch, skipping its first samples.

    Args:
        arguments: the Trainer's.
        origin: a folder, True for the last one in the output folder, or None.
    """
    from transformers.trainer_utils import get_last_checkpoint

    folder = get_last_checkpoint(arguments.output_dir) if origin is True else origin
    if not folder or arguments.ignore_data_skip:
        return False
    state = json.loads(regular_files.read(Path(folder) / "trainer_state.json"))
    return float(state["epoch"]) > 1 and float(state["epoch"]) % 1 != 0


def _loop(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Keeps this launch's micro batch when resuming from the launcher's folder.

    transformers 4 restores the checkpoint's (`state.train_batch_size` in trainer.py), which would
    change the global batch, as the accumulation is this launch's.
    """
    call = inspect.signature(wrapped).bind(*args, **kwargs)
    folder = resumed()[1]
    is_from_launcher = folder and call.arguments.get("resume_from_checkpoint") == folder
    if is_from_launcher and not instance.args.auto_find_batch_size:
        call.arguments["batch_size"] = instance.args.train_batch_size
    return wrapped(*call.args, **call.kwargs)


def resumed() -> tuple[int, str]:
    """Number and folder of the resuming call, read from the environment each time."""
    number, _, folder = os.environ.get(VARIABLE, "").partition(":")
    return int(number or 0), folder


def _load(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Loads the launcher's folder as a universal checkpoint, and all others as usual.

    `"checkpoint": {"load_universal": true}` in the JSON would also apply to later loads, e.g. of
    the best model at the end, which isn't a universal checkpoint.
    """
    folder = str(inspect.signature(wrapped).bind(*args, **kwargs).arguments["load_dir"])
    if folder != resumed()[1]:
        return wrapped(*args, **kwargs)
    with ExitStack() as meanwhile:
        with observations.going_on():
            meanwhile.enter_context(_universal(ENGINE_CONFIG.of(instance), folder))
        loaded = wrapped(*args, **kwargs)
    with suppress(AttributeError):
        _fit_steps(instance.optimizer.optimizer)
    return loaded


@contextmanager
def _universal(config: Any, folder: str) -> Iterator[None]:
    """Makes DeepSpeed load a universal checkpoint in this context, if the folder is one."""
    name, before = LOAD_UNIVERSAL.attribute, LOAD_UNIVERSAL.of(config)
    setattr(config, name, before or (Path(folder) / UNIVERSAL).is_file())
    try:
        yield
    finally:
        setattr(config, name, before)


def _fit_steps(optimizer: Any) -> None:
    """Converts the step count to the optimizer's type.

    torch's optimizers keep a tensor, DeepSpeed's CPU optimizer an integer; a checkpoint saved with
    another offload has the other type.
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
