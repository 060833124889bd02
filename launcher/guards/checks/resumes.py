"""Records on rank 0 the steps after a save, and after loading one."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...checks.resumed import Noted, Start, starts_over
from ...core.limits import LINE
from ...core.private_names import SAVE_CHECKPOINT
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import FRAMEWORKS, LOOPS, is_called_by, user_place
from ..divided_data import tensors_in
from ..resuming import resumed
from .calls import after, argument, before, first_passes
from .copies import Copy, copied
from .replicas import digest_of
from .reporting import is_on, report, safely

TRAINER, DDP, ACCELERATE, TORCH = (
    *("transformers.trainer", "torch.nn.parallel.distributed"),
    *("accelerate.accelerator", "torch.serialization"),
)
SAVER, LOADER = (
    "torch.distributed.checkpoint.state_dict_saver",
    "torch.distributed.checkpoint.state_dict_loader",
)
HOOKED = (TRAINER, DDP, ACCELERATE, TORCH, SAVER, LOADER)
TENSORS, ELEMENTS = 4, 256
"""Tensors of a batch, and elements of each, in the digest."""


@dataclass(slots=True)
class Open:
    """An incomplete record of the steps after a start or a save.

    Attributes:
        done: called when the record is complete.
    """

    done: Callable[[Start], None]
    batch: Copy | None = None
    rates: list[float] = field(default_factory=list)
    has_state: bool = False


class Resumes:
    """The saves and the resume of a process.

    Attributes:
        open: incomplete records.
        has_trainer: whether a Trainer provides the batches.
    """

    def __init__(self) -> None:
        self.open: list[Open] = [Open(self._begun)]
        self.has_trainer = False
        self._first: Start | None = None
        self._loaded: tuple[str, str] | None = None
        self._saved: set[str] = set()  # paths with an optimizer's state
        self._again = ""  # the user's line that loads such a path
        self._optimizer: Callable[[], Any] = lambda: None
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()  # models, until their next batch

    def batch(self, batch: Any) -> None:
        """Records a batch before its forward pass."""
        for record in self.open:
            if record.batch is None:
                parts = [tensor.detach().reshape(-1)[:ELEMENTS] for tensor in tensors_in(batch)]
                record.batch = copied(
                    [*islice((tensor for tensor in parts if tensor.numel()), TENSORS)]
                )

    def step(self, optimizer: Any) -> None:
        """Records an optimizer's step; only the first optimizer to step counts."""
        if self._again and optimizer is not self._optimizer():
            if not optimizer.state:
                report(starts_over(), where=self._again, step=1)
            self._again = ""
        if self._optimizer() not in (None, optimizer):
            return
        self._optimizer = weakref.ref(optimizer)
        opened, self.open = self.open, []  # if what follows raises, it is skipped
        rate = _rate(optimizer)
        self.open = opened
        for record in list(self.open):
            if not record.rates:
                record.has_state = bool(optimizer.state)
            record.rates.append(rate)
            is_whole = len(record.rates) > 1 and (record.batch is None or record.batch.is_there)
            if is_whole:
                self.open.remove(record)
                rows = record.batch.parts() if record.batch else []
                digest = digest_of(*rows) if any(len({*row}) > 1 for row in rows) else ""
                record.done(Start(digest, tuple(record.rates[:2]), record.has_state))

    def _begun(self, first: Start) -> None:
        self._first = first
        if self._loaded is not None:
            observations.send(Noted(*self._loaded, first))

    def loads(self, path: str) -> None:
        """Records a load before the first step as a resume."""
        if self._first is None and not any(record.rates for record in self.open) and is_noted(path):
            self._loaded = str(Path(path).absolute()), user_place()

    def loads_again(self, path: str) -> None:
        """Records that the script itself loads what this process has saved."""
        if str(Path(path).absolute()) in self._saved:
            self._again = user_place()

    def explained(self) -> None:
        """Forgets the load, whose states are known to be missing."""
        self._loaded, self._again = None, ""

    def saved(self, path: str) -> None:
        """Records a save, which may be the end of the training."""
        optimizer = self._optimizer()
        if self._first is None or optimizer is None or not is_noted(path):
            return
        about = str(Path(path).absolute()), user_place(), self._first
        state = _rate(optimizer), bool(optimizer.state)
        if optimizer.state:
            self._saved.add(about[0])
        observations.send(Noted(*about, None, *state))
        self.open = [Open(lambda then: observations.send(Noted(*about, then, *state)))]
        models = {*data_parallel.wrapped, *data_parallel.outermost()}
        for model in () if self.has_trainer else models:
            self.watch(model)

    def begin(self) -> None:
        """Inspects the next batch of sharded and compiled models, as a loader begins."""
        for model in () if self.has_trainer else data_parallel.outermost():
            if model not in data_parallel.wrapped and model not in self._watched:
                self.watch(model)

    def watch(self, wrapper: Any) -> None:
        """Inspects a wrapper's next training batch."""
        self._watched.add(wrapper)
        first_passes(wrapper, Check.RESUMED, self._pass, when=_is_in_training)

    def _pass(self, model: Any, args: Any, kwargs: Any) -> None:
        self._watched.discard(model)
        self.batch((args, kwargs))


def _is_in_training(model: Any) -> bool:
    return bool(data_parallel.inner(model).training)


def is_noted(path: str) -> bool:
    """Whether this rank records a path: rank 0 does for all."""
    return is_on(Check.RESUMED) and os.environ.get("RANK") == "0" and len(path) < LINE // 2


def _rate(optimizer: Any) -> float:
    """The first group's learning rate.

    Raises:
        TypeError: the rate is on a device.
    """
    rate = optimizer.param_groups[0]["lr"]
    if not isinstance(rate, int | float):
        raise TypeError("the learning rate is a tensor")
    return float(rate)


resumes = Resumes()


def install(module: ModuleType) -> None:
    """Wraps functions that save, load, or pass batches to models."""
    match module.__name__:
        case name if name == TRAINER:
            before(module, "Trainer.train", Check.RESUMED, _trains)
            wrapt.wrap_function_wrapper(module, "Trainer.training_step", _steps)
            with observations.going_on():
                SAVE_CHECKPOINT.of(module.Trainer)
                after(module, SAVE_CHECKPOINT.path, Check.RESUMED, _trainer_saved)
        case name if name == DDP:
            after(module, "DistributedDataParallel.__init__", Check.RESUMED, _wrapped)
        case name if name == ACCELERATE:
            after(module, "Accelerator.save_state", Check.RESUMED, _state_saved)
            before(module, "Accelerator.load_state", Check.RESUMED, _state_loads)
        case name if name == SAVER:
            after(module, "save", Check.RESUMED, _parts_saved)
        case name if name == LOADER:
            before(module, "load", Check.RESUMED, _parts_load)
        case _:
            after(module, "save", Check.RESUMED, _object_saved)
            before(module, "load", Check.RESUMED, _object_loads)


def _trains(trainer: Any, args: Any, kwargs: Any) -> None:
    from transformers.trainer_utils import get_last_checkpoint

    resumes.has_trainer = True
    origin = argument(args, kwargs, 0, "resume_from_checkpoint")
    if origin is True:
        origin = get_last_checkpoint(trainer.args.output_dir)
    if origin := resumed()[1] or origin:
        resumes.loads(str(origin))


def _steps(wrapped: Any, _trainer: Any, args: Any, kwargs: Any) -> Any:
    if resumes.open and is_noted(""):
        safely(Check.RESUMED, resumes.batch, argument(args, kwargs, 1, "inputs"))
    return wrapped(*args, **kwargs)


def _trainer_saved(trainer: Any, *_call: Any) -> None:
    resumes.saved(f"{trainer.args.output_dir}/checkpoint-{trainer.state.global_step}")


def _wrapped(wrapper: Any, *_call: Any) -> None:
    if resumes.open and is_noted(""):
        resumes.watch(wrapper)


def _state_saved(_accelerator: Any, args: Any, kwargs: Any, _result: Any) -> None:
    if folder := argument(args, kwargs, 0, "output_dir"):
        resumes.saved(str(folder))


def _state_loads(_accelerator: Any, args: Any, kwargs: Any) -> None:
    if folder := argument(args, kwargs, 0, "input_dir"):
        resumes.loads(str(folder))


def _object_saved(_instance: Any, args: Any, kwargs: Any, *_result: Any) -> None:
    """Records a plain loop's saved dict if it contains an optimizer's state."""
    content, path = argument(args, kwargs, 0, "obj"), argument(args, kwargs, 1, "f")
    if not isinstance(content, Mapping) or not isinstance(path, str | Path):
        return
    has_optimizer = any(
        isinstance(value, Mapping) and "param_groups" in value for value in content.values()
    )
    if has_optimizer and not is_called_by(*LOOPS, "deepspeed"):  # Accelerator.save is the script's
        resumes.saved(str(path))


def _parts_saved(_instance: Any, args: Any, kwargs: Any, *_result: Any) -> None:
    """Records a checkpoint in parts that has an optimizer's state, or an object with both."""
    content = args[0] if args else kwargs.get("state_dict")
    held = content.values() if isinstance(content, Mapping) else ()
    parts = [part for value in held for part in (value, *getattr(value, "__dict__", {}).values())]
    has_optimizer = any(
        "param_groups" in part if isinstance(part, Mapping) else hasattr(part, "param_groups")
        for part in parts
    )
    if has_optimizer and (path := _folder(kwargs)) and not is_called_by(*FRAMEWORKS):
        resumes.saved(path)


def _parts_load(_instance: Any, _args: Any, kwargs: Any) -> None:
    if (path := _folder(kwargs)) and not is_called_by(*FRAMEWORKS):
        resumes.loads(path)
        resumes.loads_again(path)


def _folder(kwargs: Mapping[str, Any]) -> str:
    """The folder of a checkpoint in parts; empty if it isn't one."""
    storage = kwargs.get("storage_writer") or kwargs.get("storage_reader")
    path = kwargs.get("checkpoint_id") or getattr(storage, "path", None)
    return os.fspath(path) if isinstance(path, str | os.PathLike) else ""


def _object_loads(_instance: Any, args: Any, kwargs: Any) -> None:
    path = argument(args, kwargs, 0, "f")
    if isinstance(path, str | Path) and not is_called_by(*FRAMEWORKS):
        resumes.loads(str(path))
        resumes.loads_again(str(path))
