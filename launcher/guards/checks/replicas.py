"""Digests weights that the ranks must have alike for node 0 to compare; no rank waits."""

from __future__ import annotations

import os
import struct
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from types import ModuleType
from typing import Any

import wrapt

from ...checks.between_ranks import Compared, Shared
from ...checks.finding import Check
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from ..fsdp import TORCHS
from . import early_steps
from .calls import argument
from .copies import Copy, copied, local, sample, sampled, spread
from .models import parameters_of
from .reporting import is_on, safely, skip

AVERAGERS = "torch.distributed.algorithms.model_averaging.averagers"
DDP = "torch.nn.parallel.distributed"
LOCAL = "accelerate.local_sgd"
HOOKED = (AVERAGERS, DDP, LOCAL, TORCHS)
BETWEEN = {
    AVERAGERS: ("ModelAverager.__init__", "the script averages models itself"),
    DDP: (
        "DistributedDataParallel.register_comm_hook",
        "a communication hook exchanges the gradients",
    ),
    LOCAL: ("LocalSGD.__init__", "the script averages models itself (LocalSGD)"),
}
"""Features that let replicas differ, with the reason to skip the check."""
MOST, UNITS = 16, 64
"""Maximum parameters of an optimizer, and modules that FSDP divides, to look at."""

_places: Counter[tuple[str, ...]] = Counter()
unjudged: list[str] = []
"""Reasons why replicas may differ in this process."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A module that FSDP has divided.

    Attributes:
        module: the module.
        place: the user's line, and its number there.
        whole: samples of parameters before, by name.
        shards: this rank's values of them afterwards.
    """

    module: weakref.ref[Any]
    place: str
    whole: dict[str, Copy]
    shards: Copy


_units: list[Unit] = []


def install(module: ModuleType) -> None:
    """Notes features that let replicas differ, and wraps `fully_shard`."""
    if module.__name__ == TORCHS:
        if hasattr(module, "fully_shard"):  # from torch 2.6 on
            wrapt.wrap_function_wrapper(module, "fully_shard", _sharding)
            early_steps.looking(Check.REPLICAS, look_at_begin)
        return
    path, why = BETWEEN[module.__name__]

    def wrapper(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        unjudged.append(why)
        for check in (Check.REPLICAS, Check.GRADIENTS):
            skip(check, why)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, path, wrapper)


class Replicas:
    """Digests of replicated tensors in one optimizer's steps, read after their copies arrive."""

    def __init__(self, where: str, what: Shared = Shared.WEIGHTS) -> None:
        self._where = where
        self._what = what
        self._place = ""
        self._is_by_values = False
        self._is_begun = False
        self._waiting: list[tuple[int, tuple[str, ...], Copy]] = []

    def look(
        self, parameters: Sequence[tuple[str, Any]], done: int, *, if_begun_alike: bool = False
    ) -> None:
        """Begins to copy samples of replicated parameters, and sends earlier samples.

        Args:
            parameters: names and parameters that must be whole and equal on every rank.
            done: number of steps.
            if_begun_alike: compare only ranks that began with equal, non-constant values: others
                hold different parts of a model.
        """
        self._is_by_values = if_begun_alike
        self._send()
        devices = {param.device for _, param in parameters[:1]}
        usable = [
            (name, param)
            for name, param in parameters
            if param.device in devices and sample(param) is not None
        ]
        chosen = spread(usable, MOST)
        if not chosen or unjudged or not is_on(Check.REPLICAS):
            return
        parts = [sample(parameter) for _, parameter in chosen]
        copy = copied(parts)
        if copy is None:
            skip(Check.REPLICAS, "a graph of the device is being captured")
            return
        labels = tuple(name[-200:] for name, _ in chosen)
        if not self._place:
            self._place = numbered(self._where, *labels)
        self._waiting.append((done, labels, copy))
        self._send()

    def _send(self) -> None:
        while self._waiting and self._waiting[0][2].is_there:
            done, names, copy = self._waiting.pop(0)
            value = " ".join(map(digest_of, copy.parts()))
            if self._is_by_values and not self._is_begun:
                is_constant = all(len({*part}) < 2 for part in copy.parts())
                rank = os.environ.get("RANK")  # which no other has
                self._place += f"#{rank if is_constant else digest_of(*copy.parts())}"
            self._is_begun = True
            observations.send(Compared(self._what, value, self._place, done, names))


def numbered(where: str, *about: str) -> str:
    """A line with the number of those that are about the same there, alike on all ranks."""
    key = where, *about
    _places[key] += 1
    return f"{where}#{_places[key]}"


def replicated_by_ddp(optimizer: Any, names: Mapping[int, str]) -> list[tuple[str, Any]]:
    """An optimizer's DDP parameters, with their names."""
    alike = data_parallel.replicated()
    return [(names[id(param)], param) for param in parameters_of(optimizer) if id(param) in alike]


def buffers_of_ddp() -> list[tuple[str, Any]]:
    """Buffers that DDP replaces by rank 0's, except running statistics of norm layers."""
    return [
        (f"{path}.{name}" if path else name, buffer)
        for wrapper in data_parallel.wrapped
        if wrapper.broadcast_buffers and wrapper.process_group.size() == data_parallel.world() > 1
        for path, layer in wrapper.module.named_modules()
        if not hasattr(layer, "running_mean")
        for name, buffer in layer.named_buffers(recurse=False)
    ]


def beside_shards(optimizer: Any, names: Mapping[int, str]) -> list[tuple[str, Any]]:
    """An optimizer's unsharded parameters beside FSDP2's sharded ones."""
    held = list(parameters_of(optimizer))
    meshes = [param.device_mesh for param in held if hasattr(param, "to_local")]
    if not meshes or any(mesh.size() != data_parallel.world() for mesh in meshes):
        return []
    return [(names[id(param)], param) for param in held if not hasattr(param, "to_local")]


def replicated_by_engine(engine: Any) -> list[tuple[str, Any]]:
    """Parameters DeepSpeed replicates below stage 3, unless layers are split."""
    if (
        int(engine.zero_optimization_stage()) > 2
        or not engine.dp_world_size == data_parallel.world() > 1
    ):
        return []
    trained = [
        (name, param) for name, param in engine.module.named_parameters() if param.requires_grad
    ]
    is_split = any(
        not getattr(param, "allreduce", True) or getattr(param, "tensor_model_parallel", False)
        for _, param in trained
    )
    return [] if is_split else trained


def digest_of(*rows: list[float]) -> str:
    """Digest of values, bit for bit."""
    packed = b"".join(struct.pack(f"{len(values)}d", *values) for values in rows)
    return blake2b(packed, digest_size=8).hexdigest()


def _sharding(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    module = argument(args, kwargs, 0, "module")
    held: dict[str, Copy] = {}
    if is_on(Check.REPLICAS) and hasattr(module, "named_parameters") and len(_units) < UNITS:
        mesh = kwargs.get("mesh")
        safely(Check.REPLICAS, lambda: held.update(_whole(module, mesh)))
    result = wrapped(*args, **kwargs)
    if held:
        safely(Check.REPLICAS, _note, module, held)
    return result


def _whole(module: Any, mesh: Any) -> dict[str, Copy]:
    """Begins to copy samples of whole parameters that are about to be divided among all ranks."""
    import torch.distributed as dist

    ranks = dist.get_world_size() if mesh is None else mesh.size()
    if ranks != data_parallel.world() or ranks < 2 or unjudged:
        return {}
    return sampled(module.named_parameters())


def _shards(module: Any, names: tuple[str, ...]) -> Copy | None:
    """Begins to copy this rank's part of the parameters."""
    params = dict(module.named_parameters())
    parts = [sample(local(params[name].detach())) for name in names if name in params]
    known = [part for part in parts if part is not None]
    return copied(known) if known and len(parts) == len(names) else None


def _note(module: Any, held: dict[str, Copy]) -> None:
    """Records a divided module."""
    place, shards = numbered(user_place()), _shards(module, tuple(held))
    if shards is not None:
        _units.append(Unit(weakref.ref(module), place, held, shards))


def look_at_begin(_optimizer: Any, step: int) -> None:
    """Compares what is trained with what was divided."""
    units: list[Unit] = []
    if step == 1:
        units, _units[:] = [*_units], []
    for unit in units:
        module = unit.module()
        now = None if module is None else _shards(module, tuple(unit.whole))
        if now is not None:
            copies = now, unit.shards, *unit.whole.values()
            early_steps.later(Check.REPLICAS, copies, partial(_send_divided, unit, now))


def _send_divided(unit: Unit, now: Copy) -> None:
    """Sends what a rank had, unless something has written the weights since."""
    if now.parts() == unit.shards.parts():
        value = " ".join(digest_of(*copy.parts()) for copy in unit.whole.values())
        names = tuple(name[-200:] for name in unit.whole)
        observations.send(Compared(Shared.DIVIDED, value, unit.place, 0, names))
