"""Locates a parameter's middle elements in its gradients and in optimizers."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...checks.finding import Check
from ...checks.seen_gradients import ELEMENTS
from ...core.private_names import FRAGMENTS
from ...evidence.observations import observations
from .. import fsdp
from .calls import after, argument
from .models import parameters_of

HOOKED = (FRAGMENTS.module, fsdp.TORCHS)


@dataclass(frozen=True, slots=True)
class Line:
    """Part of a tensor's middle row, readable in any layout without copying the tensor.

    Attributes:
        shape: the tensor's shape.
    """

    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of elements."""
        return min(self.shape[-1], ELEMENTS)

    @property
    def begin(self) -> int:
        """Flat index of the first element."""
        row = 0
        for size in self.shape[:-1]:
            row = row * size + size // 2
        return row * self.shape[-1] + (self.shape[-1] - self.count) // 2

    def of(self, tensor: Any) -> Any:
        """Copies the line of a whole tensor: a view would prevent moving a gradient."""
        import torch

        kind = torch.float64 if tensor.dtype is torch.float64 else torch.float32
        first = (self.shape[-1] - self.count) // 2
        for size in self.shape[:-1]:
            tensor = tensor[size // 2]
        return tensor.detach()[first : first + self.count].to(kind, copy=True)

    def of_shard(self, begin: int, values: Any) -> tuple[int, Any] | None:
        """The shard's part of the line, and its offset in the line.

        Args:
            begin: flat index of the shard's first element.
            values: the flat shard.
        """
        first = max(begin, self.begin)
        end = min(begin + values.numel(), self.begin + self.count)
        if first >= end:
            return None
        return first - self.begin, values.detach()[first - begin : end - begin].clone()


Place = tuple[int, Any] | None
"""Offset in a line, and the values from there; None if this rank holds none."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a parameter in a rank's partition of DeepSpeed's optimizer.

    Attributes:
        flat: the optimizer's flat tensor.
        start: offset of the part in the parameter.
        place: offset of the part in the flat tensor.
        count: number of elements.
    """

    flat: weakref.ref[Any]
    start: int
    place: int
    count: int


@dataclass(frozen=True, slots=True)
class Owned:
    """The location of a parameter, with FSDP2 of its unsharded form, too.

    Attributes:
        owner: its module.
        attribute: its name in the module.
        name: its name in the model.
    """

    owner: weakref.ref[Any]
    attribute: str
    name: str

    @property
    def parameter(self) -> Any:
        """The tensor that is there now; None if the module is gone."""
        return getattr(self.owner(), self.attribute, None)


def places_in(model: Any) -> Iterator[tuple[Any, Owned]]:
    """A model's parameters with their locations, tied ones with each."""
    for prefix, owner in model.named_modules():
        for attribute, param in owner.named_parameters(recurse=False):
            name = f"{prefix}.{attribute}".lstrip(".")
            yield param, Owned(weakref.ref(owner), attribute, name)


# Keyed by the parameter's id, valid while the entry's references live. Weak references aren't an
# option: `swap_tensors`, which moves FSDP2's models, refuses weakly referenced parameters.
_fragments: dict[int, Fragment] = {}
_owned: dict[int, Owned] = {}


def install(module: ModuleType) -> None:
    """Wraps FSDP2's sharding and DeepSpeed's optimizers to note where parts are."""
    if module.__name__ == fsdp.TORCHS:
        if hasattr(module, "fully_shard"):  # from torch 2.6 on
            after(module, "fully_shard", Check.GRADIENTS, _shard)
        return
    with observations.going_on():
        FRAGMENTS.of(module)
        after(module, FRAGMENTS.path, Check.GRADIENTS, _link)


def _link(_instance: Any, args: Any, _kwargs: Any, mapping: Any) -> None:
    """Notes the part of a parameter that a rank's partition has."""
    if len(args) > 2:
        low, high = mapping.lp_fragment_address, mapping.hp_fragment_address
        flat = weakref.ref(args[2])
        _fragments[id(args[0])] = Fragment(flat, low.start, high.start, high.numel)


def _shard(_instance: Any, args: Any, kwargs: Any, _result: Any) -> None:
    """Notes sharded parameters at once: reentrant checkpointing may leave a block unsharded."""
    modules = argument(args, kwargs, 0, "module")
    for root in modules if isinstance(modules, list | tuple) else [modules]:
        _owned.update((id(param), place) for param, place in places_in(root))


def owned(parameter: Any) -> Owned | None:
    """The entry of a parameter sharded by FSDP2."""
    place = _owned.get(id(parameter))
    return place if place is not None and place.owner() is not None else None


def is_known(optimizer: Any, parameter: Any) -> bool:
    """Whether an optimizer holds a parameter or its DeepSpeed partition."""
    return id(parameter) in _fragments or any(
        param is parameter for param in parameters_of(optimizer)
    )


def reached_by(optimizer: Any, parameter: Any, line: Line) -> Place:
    """The line's gradient that an optimizer is about to use; None if another rank holds it."""
    held = {id(param): param for param in parameters_of(optimizer)}
    if id(parameter) not in held:
        return _in_partition(held, parameter, line)
    gradient = parameter.grad
    if gradient is None:
        return None
    if not hasattr(gradient, "to_local"):
        return 0, line.of(gradient)
    mesh, rows, local = gradient.device_mesh, line.shape[0], gradient.to_local()
    chunk = -(-rows // mesh.size())  # as torch.chunk divides
    begin = min(rows, mesh.get_local_rank() * chunk)
    if local.shape[:1] != (min(rows, begin + chunk) - begin,) or not local.is_contiguous():
        return None
    return line.of_shard(begin * (local[0].numel() if len(local) else 0), local.view(-1))


def _in_partition(held: dict[int, Any], parameter: Any, line: Line) -> Place:
    fragment = _fragments.get(id(parameter))
    if fragment is None:
        return None
    flat = fragment.flat()
    if flat is None or id(flat) not in held or flat.grad is None:
        return None
    values = flat.grad.view(-1)[fragment.place : fragment.place + fragment.count]
    return line.of_shard(fragment.start, values)


def is_row_sharded(parameter: Any, ranks: int) -> bool:
    """Whether FSDP2 shards a parameter by rows over all ranks."""
    mesh, placements = parameter.device_mesh, parameter.placements
    is_first = len(placements) == 1 and placements[0].is_shard(0)
    return is_first and type(placements[0]).__name__ == "Shard" and mesh.size() == ranks
