"""Compares the ranks' weights as FSDP divides them."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import wrapt

from ...checks.between_ranks import Compared, Shared
from ...checks.finding import Check
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_place
from . import early_steps
from .calls import argument
from .copies import Copy, copied, local, sample, spread
from .replicas import digest_of, unjudged
from .reporting import is_on, safely

HOOKED = ("torch.distributed.fsdp",)
MOST = 64
"""Maximum units to look at."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A module that FSDP has divided.

    Attributes:
        module: the module.
        place: the user's line, and its number there.
        names: sampled parameters.
        whole: their values before.
        shards: this rank's values of them afterwards.
    """

    module: weakref.ref[Any]
    place: str
    names: tuple[str, ...]
    whole: tuple[Copy, ...]
    shards: Copy


_units: list[Unit] = []
_waiting: list[tuple[Unit, Copy]] = []
_places: Counter[str] = Counter()


def install(module: ModuleType) -> None:
    """Wraps `fully_shard`."""
    if hasattr(module, "fully_shard"):  # from torch 2.6 on
        wrapt.wrap_function_wrapper(module, "fully_shard", _sharding)
        early_steps.looking(Check.REPLICAS, look)


def _sharding(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    module = argument(args, kwargs, 0, "module")
    held: dict[str, Copy] = {}
    if is_on(Check.REPLICAS) and hasattr(module, "named_parameters") and len(_units) < MOST:
        safely(Check.REPLICAS, _sample, module, kwargs.get("mesh"), held)
    result = wrapped(*args, **kwargs)
    if held:
        safely(Check.REPLICAS, _note, module, held)
    return result


def _sample(module: Any, mesh: Any, held: dict[str, Copy]) -> None:
    """Begins to copy samples of whole parameters that are about to be divided among all ranks."""
    import torch.distributed as dist

    ranks = dist.get_world_size() if mesh is None else mesh.size()
    if ranks != data_parallel.world() or ranks < 2 or unjudged:
        return
    whole = [(name, param) for name, param in module.named_parameters() if _is_whole(param)]
    for name, param in spread(whole):
        if (copy := copied([sample(param)])) is not None:
            held[name] = copy


def _is_whole(param: Any) -> bool:
    return not hasattr(param, "to_local") and not param.is_meta and sample(param) is not None


def _shards(module: Any, names: tuple[str, ...]) -> Copy | None:
    """Begins to copy this rank's part of the parameters."""
    params = dict(module.named_parameters())
    parts = [sample(local(params[name].detach())) for name in names if name in params]
    known = [part for part in parts if part is not None]
    return copied(known) if known and len(parts) == len(names) else None


def _note(module: Any, held: dict[str, Copy]) -> None:
    """Records a divided module."""
    place = user_place()
    _places[place] += 1
    names = tuple(held)
    shards = _shards(module, names)
    if shards is not None:
        about = f"{place}#{_places[place]}", names, tuple(held.values()), shards
        _units.append(Unit(weakref.ref(module), *about))


def look(_optimizer: Any, step: int) -> None:
    """Sends what the ranks had, unless something has written the weights since."""
    if step == 1 and _units:
        units, _units[:] = [*_units], []
        for unit in units:
            module = unit.module()
            now = None if module is None else _shards(module, unit.names)
            if now is not None:
                _waiting.append((unit, now))
    while _waiting:
        unit, now = _waiting[0]
        if not all(copy.is_there for copy in (now, unit.shards, *unit.whole)):
            break
        _waiting.pop(0)
        if now.parts() == unit.shards.parts():
            value = " ".join(digest_of(*copy.parts()) for copy in unit.whole)
            names = tuple(name[-200:] for name in unit.names)
            observations.send(Compared(Shared.DIVIDED, value, unit.place, 0, names))
