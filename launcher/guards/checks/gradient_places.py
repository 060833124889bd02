"""Elements in the middle of a parameter: in its gradients, and in what optimizers hold of them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import wrapt

from ...checks.seen_gradients import ELEMENTS
from ...core.private_names import FRAGMENTS
from ...evidence.observations import Observations

FSDP = "torch.distributed.fsdp"
HOOKED = (FRAGMENTS.module, FSDP)


@dataclass(frozen=True, slots=True)
class Line:
    """A part of the middle row of a tensor, which any layout gives without a copy of the tensor.

    Attributes:
        shape: the tensor's.
    """

    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Its elements."""
        return min(self.shape[-1], ELEMENTS)

    @property
    def begin(self) -> int:
        """Its first element, by its place among all elements."""
        row = 0
        for size in self.shape[:-1]:
            row = row * size + size // 2
        return row * self.shape[-1] + (self.shape[-1] - self.count) // 2

    def of(self, tensor: Any) -> Any:
        """The line of a whole tensor, as a copy: a view would keep a gradient from being moved."""
        import torch

        kind = torch.float64 if tensor.dtype is torch.float64 else torch.float32
        first = (self.shape[-1] - self.count) // 2
        for size in self.shape[:-1]:
            tensor = tensor[size // 2]
        return tensor.detach()[first : first + self.count].to(kind, copy=True)

    def of_shard(self, begin: int, values: Any) -> tuple[int, Any] | None:
        """What a shard has of it, and from which of its elements on.

        Args:
            begin: the shard's first element among all of the tensor.
            values: the shard, of one dimension.
        """
        first = max(begin, self.begin)
        end = min(begin + values.numel(), self.begin + self.count)
        if first >= end:
            return None
        return first - self.begin, values.detach()[first - begin : end - begin].clone()


Place = tuple[int, Any] | None
"""From which element of a line on, and the values from there on; None if none is held here."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a parameter that is in a rank's partition of DeepSpeed's optimizer.

    Attributes:
        flat: the optimizer's tensor.
        start: its first element among the parameter's.
        place: the same among the flat tensor's.
        count: its elements.
    """

    flat: weakref.ref[Any]
    start: int
    place: int
    count: int


@dataclass(frozen=True, slots=True)
class Owned:
    """A parameter that FSDP2 has divided, and where it puts the whole one for the passes.

    Attributes:
        owner: its module.
        attribute: its name there.
        name: the model's.
    """

    owner: weakref.ref[Any]
    attribute: str
    name: str


# By the parameter's id, which is its own while what is noted with it lives: `swap_tensors`, with
# which FSDP2's models are moved, refuses a parameter that anybody holds a weak reference to.
_fragments: dict[int, Fragment] = {}
_owned: dict[int, Owned] = {}


def install(module: ModuleType, observations: Observations) -> None:
    """Notes what FSDP2 divides, and where DeepSpeed's optimizers keep their part of it."""
    if module.__name__ == FSDP:
        if hasattr(module, "fully_shard"):  # from torch 2.6 on
            wrapt.wrap_function_wrapper(module, "fully_shard", _shard)
        return

    def link(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        mapping = wrapped(*args, **kwargs)
        if len(args) > 2:
            low, high = mapping.lp_fragment_address, mapping.hp_fragment_address
            flat = weakref.ref(args[2])
            _fragments[id(args[0])] = Fragment(flat, low.start, high.start, high.numel)
        return mapping

    with observations.going_on():
        FRAGMENTS.of(module)
        wrapt.wrap_function_wrapper(module, FRAGMENTS.path, link)


def _shard(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Notes it at once: a block that reentrant checkpointing runs twice stays whole."""
    result = wrapped(*args, **kwargs)
    given = args[0] if args else kwargs["module"]
    for root in given if isinstance(given, list | tuple) else [given]:
        for prefix, owner in root.named_modules():
            for attribute, each in owner.named_parameters(recurse=False):
                name = f"{prefix}.{attribute}".lstrip(".")
                _owned[id(each)] = Owned(weakref.ref(owner), attribute, name)
    return result


def owned(parameter: Any) -> Owned | None:
    """What is noted of a parameter that FSDP2 has divided."""
    found = _owned.get(id(parameter))
    return found if found is not None and found.owner() is not None else None


def is_known(optimizer: Any, parameter: Any) -> bool:
    """Whether an optimizer holds a parameter, or a part of it that DeepSpeed tells of."""
    groups = optimizer.param_groups
    return id(parameter) in _fragments or any(
        each is parameter for group in groups for each in group["params"]
    )


def reached_by(optimizer: Any, parameter: Any, line: Line) -> Place:
    """What of a line's gradient an optimizer is about to use; None if another rank has it."""
    held = {id(each): each for group in optimizer.param_groups for each in group["params"]}
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
    """Whether FSDP2 has divided a parameter by its rows among all ranks."""
    mesh, placements = parameter.device_mesh, parameter.placements
    is_first = len(placements) == 1 and placements[0].is_shard(0)
    return is_first and type(placements[0]).__name__ == "Shard" and mesh.size() == ranks
