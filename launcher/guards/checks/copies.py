"""Asynchronous copies of sampled elements, read a step later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from ..callers import user_place

ELEMENTS = 32
"""Consecutive elements sampled from the middle of a parameter."""
MOST = 8
"""Maximum parameters to sample."""


@dataclass(frozen=True, slots=True)
class Copy:
    """An asynchronous copy of values to the host.

    Attributes:
        host: a tensor in host memory.
        event: recorded after the copy; None if the copy is complete.
        ends: end offset of each part.
        module: torch's module for the device, e.g. `torch.cuda`; None on the host.
    """

    host: Any
    event: Any
    ends: tuple[int, ...]
    module: Any = None

    @property
    def is_there(self) -> bool:
        """Whether the copy is complete; querying an event during a graph capture would abort it."""
        if self.event is None:
            return True
        return not _is_captured(self.module) and bool(self.event.query())

    def parts(self) -> list[list[float]]:
        """The values of each part."""
        values = [] if self.host is None else self.host.tolist()
        return [values[begin:end] for begin, end in pairwise((0, *self.ends))]


def copied(parts: Sequence[Any]) -> Copy | None:
    """Begins to copy 1-D tensors; None if that would disturb the device.

    Copies as float32, which is exact for narrower types.
    """
    import torch

    if not parts:
        return Copy(None, None, ())
    ends = tuple(accumulate(part.numel() for part in parts))
    device = parts[0].device
    module: Any = getattr(torch, device.type, None)
    kind = torch.float64 if any(part.dtype is torch.float64 for part in parts) else torch.float32
    if device.type != "cpu" and (not hasattr(module, "Event") or _is_captured(module)):
        return None
    with torch.no_grad():
        flat = torch.cat([part.to(kind) for part in parts])
        if device.type == "cpu":
            return Copy(flat, None, ends)
        host = torch.empty(flat.shape, dtype=kind, pin_memory=True)
        host.copy_(flat, non_blocking=True)
        event = module.Event()
        event.record()
    return Copy(host, event, ends, module)


class Facts:
    """Values of a training's first calls, as they arrive.

    Attributes:
        where: the user's line at the first.
    """

    def __init__(self, most: int) -> None:
        self.where = ""
        self._most = most
        self._copies: dict[int, Copy] = {}

    def __len__(self) -> int:
        """The number of added calls."""
        return len(self._copies)

    def __contains__(self, call: int) -> bool:
        """Whether a call was added by this number."""
        return call in self._copies

    def add(self, *parts: Any, call: int | None = None) -> bool:
        """Begins to copy a call's tensors; False if that would disturb the device."""
        copy = copied([part.detach().reshape(-1) for part in parts])
        if copy is not None:
            self.where = self.where or user_place()
            self._copies[len(self._copies) if call is None else call] = copy
        return copy is not None

    @property
    def are_enough(self) -> bool:
        """Whether no more calls are to be added."""
        return len(self._copies) >= self._most

    @property
    def have_arrived(self) -> bool:
        """Whether the values of all added calls can be read."""
        return all(copy.is_there for copy in self._copies.values())

    @property
    def are_there(self) -> bool:
        """Whether the values of enough calls can be read."""
        return self.are_enough and self.have_arrived

    def parts(self) -> list[list[list[float]]]:
        """The values of each call's tensors."""
        return [copy.parts() for copy in self._copies.values()]

    def truths(self) -> list[list[bool]]:
        """Whether each call's tensors, of one element each, are true."""
        return [[part[0] > 0 for part in parts] for parts in self.parts()]


def is_plain(tensor: Any) -> bool:
    """Whether a tensor's values can be read without an effect on the training."""
    return _is_whole(tensor) and not is_captured(tensor.device)


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor is no subclass's, and has values in memory."""
    import torch

    is_known = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return is_known and tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0


def is_captured(device: Any) -> bool:
    """Whether a graph of a tensor's device is being captured."""
    import torch

    return device.type != "cpu" and _is_captured(getattr(torch, device.type, None))


def _is_captured(module: Any) -> bool:
    """Whether a device graph is being captured, which allows no copies to the host."""
    ask = getattr(module, "is_current_stream_capturing", None)
    return ask is not None and bool(ask())


def spread(members: Sequence[Any], most: int = MOST) -> list[Any]:
    """Evenly spaced members, including the first and the last."""
    if len(members) <= most:
        return list(members)
    return [members[place * (len(members) - 1) // (most - 1)] for place in range(most)]


def sample(tensor: Any) -> Any | None:
    """Elements from the middle of a tensor; None if that requires copying the tensor."""
    if not _is_whole(tensor) or not tensor.is_floating_point() or not tensor.is_contiguous():
        return None
    begin = max(0, (tensor.numel() - ELEMENTS) // 2)
    return tensor.detach().view(-1)[begin : begin + ELEMENTS]


def sampled(named: Iterable[tuple[str, Any]], most: int = MOST) -> dict[str, Copy]:
    """Begins to copy samples of some tensors, by name."""
    usable = [(name, tensor) for name, tensor in named if sample(tensor) is not None]
    copies = {name: copied([sample(tensor)]) for name, tensor in spread(usable, most)}
    return {name: copy for name, copy in copies.items() if copy is not None}


def arrived(copies: Mapping[str, Copy]) -> dict[str, list[float]]:
    """The samples that have arrived, by name."""
    return {name: copy.parts()[0] for name, copy in copies.items() if copy.is_there}


def local(tensor: Any) -> Any:
    """This rank's part of a tensor that FSDP2 or ZeRO stage 3 has divided; others unchanged."""
    if hasattr(tensor, "to_local"):
        return tensor.to_local()
    part = getattr(tensor, "ds_tensor", None)
    return tensor if part is None or tensor.numel() else part
