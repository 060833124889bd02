"""Samples gradients as backward passes add them and as the optimizer gets them.

Hooks on a few parameters see every addition before its reduction. Node 0 compares the mean over
ranks with the optimizers' gradients; no rank waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...checks.between_ranks import Compared, Shared
from ...checks.finding import Check
from ...checks.seen_gradients import PARTS, WINDOWS, Passed, Seen, Way, encoded
from ...core.limits import LINE
from ...evidence.observations import observations
from .copies import Copy, copied
from .gradient_places import Line, Place, reached_by
from .replicas import digest_of, numbered
from .reporting import skip


@dataclass(slots=True, eq=False)
class Sampled:
    """A sampled parameter.

    Attributes:
        name: its name in the model.
        parameter: the optimizer's parameter; with DeepSpeed, the model's.
        line: the sampled elements.
        owner: the module where FSDP2 puts the unsharded tensor; None for others.
        attribute: the parameter's name in `owner`.
        parts: gradients added by this step's backward passes.
        coming: the gradient a pass is about to add.
        reached: the gradient the optimizer is about to use.
    """

    name: str
    parameter: Any
    line: Line
    owner: Any = None
    attribute: str = ""
    parts: list[Any] = field(default_factory=list)
    coming: Any = None
    reached: Place = None


@dataclass(frozen=True, slots=True)
class Window:
    """A step whose values are being copied.

    Attributes:
        counts: additions per parameter.
        begins: offsets of the optimizer's values per parameter; None for no values.
        parts: the additions.
        reached: the optimizer's gradients.
    """

    counts: tuple[int, ...]
    begins: tuple[int | None, ...]
    parts: Copy
    reached: Copy


class Gradients:
    """Samples of one optimizer's gradients in the two steps after choosing parameters."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._sampled: tuple[Sampled, ...] = ()
        self._way = Way.SCRIPT
        self._place = ""
        self._weights: Copy | None = None
        self._types: set[Any] = set()
        self._handles: list[Any] = []
        self._hooked: set[int] = set()  # ids of the tensors that FSDP2 gives its modules
        self._has_stepped = False
        self._windows: list[Window] = []

    def begin(
        self, way: Way, sampled: Sequence[Sampled], *types: Any, weights: Copy | None = None
    ) -> None:
        """Chooses what to sample from the next step on.

        Args:
            way: the mechanism that takes gradients to the optimizer.
            sampled: the parameters.
            types: known types in which gradients are sent between ranks.
            weights: if passed, only ranks that began with equal values are compared.
        """
        self._way, self._sampled, self._types = way, tuple(sampled), {*types}
        self._weights = weights
        self._place = numbered(self._where, "gradients")

    def take(self, optimizer: Any) -> None:
        """Notes the gradients the optimizer is about to use, possibly once per parameter group."""
        if not self._handles:
            return
        self._has_stepped = True
        for sampled in self._sampled:
            reached = reached_by(optimizer, sampled.parameter, sampled.line)
            if reached is not None:
                sampled.reached = reached
                self._types.add(reached[1].dtype)

    def over(self, step: int) -> None:
        """Ends a step and begins the next; skipped steps are ignored.

        Args:
            step: its number.
        """
        if self._sampled and not self._handles:
            self._handles = [
                handle for sampled in self._sampled for handle in self._attached(sampled)
            ]
        elif self._has_stepped:
            self._keep()
        self._has_stepped = False
        for sampled in self._sampled:
            sampled.parts, sampled.coming, sampled.reached = [], None, None
        if len(self._windows) == WINDOWS and self._are_there():
            self._send(step)

    def _attached(self, sampled: Sampled) -> Iterator[Any]:
        """Hooks on a parameter that see additions."""
        if sampled.owner is None:
            yield from self._hooks(sampled, sampled.parameter)
            return

        def forward(module: Any, _args: Any) -> None:
            tensor = getattr(module, sampled.attribute)
            if id(tensor) not in self._hooked and self._handles and tensor is not sampled.parameter:
                self._hooked.add(id(tensor))
                self._handles += self._hooks(sampled, tensor)

        yield sampled.owner.register_forward_pre_hook(forward)

    def _hooks(self, sampled: Sampled, tensor: Any) -> list[Any]:
        """Hooks before and after an addition: a gradient may be computed without being added."""
        return [
            tensor.register_hook(partial(self._comes, sampled, tensor)),
            tensor.register_post_accumulate_grad_hook(partial(self._is_added, sampled)),
        ]

    def _comes(self, sampled: Sampled, tensor: Any, gradient: Any) -> None:
        """Copies the gradient about to be added."""
        is_kept = self._way is Way.DEEPSPEED or any(
            param.grad is not None for param in (tensor, sampled.parameter)
        )
        if not is_kept:
            sampled.parts.clear()
        sampled.coming = None
        if gradient.is_sparse:
            return
        if not sampled.parts and tensor.grad is not None:  # what an earlier step has left
            sampled.parts.append(sampled.line.of(tensor.grad))
        self._types.add(gradient.dtype)
        sampled.coming = sampled.line.of(gradient)

    def _is_added(self, sampled: Sampled, _tensor: Any) -> None:
        if sampled.coming is not None:
            sampled.parts.append(sampled.coming)
            sampled.coming = None
        if len(sampled.parts) > PARTS:
            *first, summed, surplus, last = sampled.parts
            sampled.parts = [*first, summed + surplus, last]

    def _keep(self) -> None:
        """Begins to copy a step's samples."""
        counts = tuple(len(sampled.parts) for sampled in self._sampled)
        begins = tuple(
            None if sampled.reached is None else sampled.reached[0] for sampled in self._sampled
        )
        parts = copied([part for sampled in self._sampled for part in sampled.parts])
        reached = copied(
            [sampled.reached[1] for sampled in self._sampled if sampled.reached is not None]
        )
        if parts is None or reached is None:
            skip(Check.GRADIENTS, "a graph of the device is being captured")
            self.end()
            return
        self._windows.append(Window(counts, begins, parts, reached))
        if len(self._windows) == WINDOWS:
            self._detach()

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for sampled in self._sampled:
            sampled.parameter = sampled.owner = None

    def end(self) -> None:
        """Removes all hooks."""
        self._detach()
        self._sampled, self._windows = (), []

    def _are_there(self) -> bool:
        copies = [copy for window in self._windows for copy in (window.parts, window.reached)]
        return all(copy.is_there for copy in copies)

    def _send(self, step: int) -> None:
        import torch

        windows = tuple(tuple(self._passed(window)) for window in self._windows)
        roundoff = max(torch.finfo(kind).eps for kind in self._types) / 2
        value = encoded(Seen(self._way, roundoff, windows))
        names = tuple(sampled.name[-200:] for sampled in self._sampled)
        weights = self._weights.parts() if self._weights else []
        # Ranks with different parts of a model may begin with the same constants.
        if len(value) <= LINE and all(len({*part}) > 1 for part in weights):
            place = f"{self._place}#{digest_of(*weights)}"
            observations.send(Compared(Shared.GRADIENTS, value, place, step, names))
        self.end()

    def _passed(self, window: Window) -> Iterator[Passed]:
        """The rows of each parameter."""
        parts, reached = iter(window.parts.parts()), iter(window.reached.parts())
        for sampled, count, begin in zip(self._sampled, window.counts, window.begins, strict=True):
            length = sampled.line.count
            row = [float("nan")] * length
            if begin is not None:
                values = next(reached)
                row[begin : begin + len(values)] = values
            yield Passed(tuple(next(parts) for _ in range(count)), row)
