"""Gradients between two steps: cleared, left over or clipped while passes add to them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from ...checks import divided, gradients
from ...checks.finding import Check
from ...core.private_names import VERSION
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import LOOPS, is_called_by, user_place
from . import dtypes
from .copies import Copy, copied, local, sample, spread
from .models import is_compiled, known_models, names_of, parameters_of
from .reporting import is_on, report, report_here

MOST = 192
"""Maximum passes to look for cleared gradients."""
STEPS = 10
"""First steps to look for clipped ones."""
SAMPLED = 4
"""Gradients to sample, to look for those that are kept."""
PASSES = 4
"""Maximum passes of a step then."""


class Accumulated:
    """The passes since the last step, or since gradients were cleared after it.

    The optimizer isn't kept alive, nor are its parameters.

    Attributes:
        is_open: whether to count further passes: a loop with one optimizer accumulates.
    """

    def __init__(self, optimizers: Callable[[], Collection[Any]]) -> None:
        self.is_open = False
        self._optimizers = optimizers
        self._place: Place | None = None  # of one with a gradient
        self._passes = 0
        self._left = 0
        self._usual = 0  # passes of the first step

    def restart(self) -> None:
        """Begins to count, as a new optimizer is watched."""
        self.is_open = is_on(Check.GRADIENTS)
        self._place, self._passes, self._left = None, 0, 0

    def passing(self) -> None:
        """Counts a backward pass before it begins."""
        param = None if self._place is None else _at(self._place)
        if self._place is not None and (param is None or param.grad is None):
            self._passes = 0
        self._passes += 1

    def begin(self) -> None:
        """Notes the passes before a loader begins."""
        self._left = self._passes

    def stepping(self, optimizer: Any, steps: int) -> None:
        """Judges the passes before an optimizer's step.

        Args:
            optimizer: the stepping optimizer.
            steps: its previous steps.
        """
        if self._place is None:
            self._place, self._usual = _with_gradient(optimizer), self._passes
        passes, left = self._passes, self._left
        self._passes = self._left = 0
        has_left = passes == left + self._usual > self._usual
        if has_left:
            report_here(divided.left_over(passes, left), step=steps + 1)
        is_alone = self._place is not None and len(self._optimizers()) == 1
        self.is_open = is_alone and self._usual > 1 and not has_left


Place = tuple[weakref.ref[Any], int, int]
"""An optimizer, and the numbers of a group and of a parameter in it."""


def _with_gradient(optimizer: Any) -> Place | None:
    """The place of a parameter whose gradient is in `grad`; FSDP2 keeps it elsewhere."""
    for place, group in enumerate(optimizer.param_groups):
        for number, param in enumerate(group["params"]):
            if param.grad is not None:
                is_whole = not hasattr(param, "to_local")
                return (weakref.ref(optimizer), place, number) if is_whole else None
    return None


def _at(place: Place) -> Any:
    """The parameter at a place; None if the optimizer is gone."""
    optimizer = place[0]()
    return None if optimizer is None else optimizer.param_groups[place[1]]["params"][place[2]]


class Stepping(Protocol):
    """An optimizer's steps so far."""

    steps: int


class Clearing:
    """Backward passes of the first steps by line, and those that began without gradients.

    Attributes:
        is_open: whether to inspect further passes.
    """

    def __init__(self, optimizers: Callable[[], Iterable[tuple[Any, Stepping]]]) -> None:
        self.is_open = True
        self._optimizers = optimizers
        self._counts: dict[str, list[tuple[int, int]]] = {}  # by line: passes and cleared ones
        self._looked = 0
        self._done = 0
        self._version: int | None = None  # of a parameter that a step may change
        # Whether the last pass has left gradients, which FSDP2 may keep elsewhere.
        self._had = False

    def look(self) -> None:
        """Inspects which gradients this step's earlier passes left, before the next pass."""
        steps = sum(watch.steps for _, watch in self._optimizers())
        held = list(self._parameters())
        is_other = any(not hasattr(model, "reshard") for model in data_parallel.others)
        is_plain = not (dtypes.scalers or is_other or is_called_by(*LOOPS, "deepspeed"))
        self._looked += 1
        self.is_open = bool(held) and is_plain and self._looked <= MOST
        if not self.is_open:
            return
        where = user_place()
        version = held[0]._version
        if steps != self._done or version != self._version:
            self._done, self._version = steps, version
            for counts in self._counts.values():
                counts.append((0, 0))
        counts = self._counts.setdefault(where, [(0, 0)])
        passes, cleared = counts[-1]
        is_cleared = passes > 0 and self._had and all(param.grad is None for param in held)
        counts[-1] = passes + 1, cleared + is_cleared
        if steps >= divided.STEPS:
            self.is_open = False
            if len(self._counts) == 1:  # of several, some are for the inputs, or for other models
                seen = self._counts[where][: divided.STEPS]
                report(divided.cleared(seen), where=where)

    def after(self) -> None:
        """Notes whether a pass has left gradients."""
        self._had = any(param.grad is not None for param in self._parameters())

    def _parameters(self) -> Iterator[Any]:
        for optimizer, _ in self._optimizers():
            yield from (param for param in parameters_of(optimizer) if param.requires_grad)


class Clipped:
    """The gradients that were clipped last, until they are used, cleared, or added to."""

    def __init__(self, optimizers: Callable[[], Iterable[Any]]) -> None:
        self._optimizers = optimizers
        self._marks: dict[int, tuple[int, int]] = {}  # by parameter: its gradient, as clipped
        self._where = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the next backward pass may add to clipped gradients."""
        return bool(self._marks)

    def note(self, parameters: Iterable[Any]) -> None:
        """Notes gradients that were just clipped."""
        self._marks = {}
        if (observations.steps_of_all() or 0) < STEPS:
            chosen = spread([param for param in parameters if param.grad is not None])
            with observations.going_on():
                self._marks = {id(param): _mark(param.grad) for param in chosen}
            self._where = user_place()

    def used(self, optimizer: Any) -> None:
        """Drops the gradients that an optimizer's step uses."""
        for param in parameters_of(optimizer) if self._marks else ():
            self._marks.pop(id(param), None)

    def before(self) -> None:
        """Drops the gradients that were cleared since, before a backward pass."""
        self._marks = dict(self._found(is_changed=False))

    def after(self) -> None:
        """Reports gradients that the pass has added to."""
        added = any(self._found(is_changed=True))
        self._marks = {}
        if added:
            report(divided.clipped_early(), where=self._where)

    def _found(self, *, is_changed: bool) -> Iterator[tuple[int, tuple[int, int]]]:
        for optimizer in self._optimizers():
            for param in parameters_of(optimizer):
                mark = self._marks.get(id(param))
                if mark and param.grad is not None and (_mark(param.grad) != mark) is is_changed:
                    yield id(param), mark


class Kept:
    """Gradients that an optimizer's steps leave, and that the next passes find and add to.

    For one process, FSDP2's shards and compiled models, whose gradients aren't sampled otherwise.
    By their values: a change of shards doesn't always count as one.

    Attributes:
        is_open: whether to look at further passes and steps.
    """

    def __init__(self, optimizers: Callable[[], Collection[Any]]) -> None:
        self.is_open = False
        self._optimizers = optimizers
        self._places: list[Place] = []
        self._left: Copy | None = None  # as a pass or a step has left them
        self._found: Copy | None = None  # as this pass has found them
        # As they were left, found by the next pass, and left by it.
        self._changes: list[tuple[Copy, Copy, Copy]] = []
        self._passes = 0  # of this step
        self._steps = 0

    def restart(self) -> None:
        """Begins to look, as a new optimizer is watched."""
        self.is_open = is_on(Check.GRADIENTS)
        self._places, self._changes, self._left, self._found = [], [], None, None
        self._passes = self._steps = 0

    def passing(self) -> None:
        """Compares the gradients with what they were, before a backward pass."""
        self._passes += 1
        self._found = self._copied() if self._places else None
        is_cleared = self._found is None or self._left is None
        if (self._places and is_cleared) or self._passes > PASSES:
            self.is_open = False

    def passed(self) -> None:
        """Notes the gradients that a backward pass has left."""
        left, self._left = self._left, self._copied() if self._places else None
        if left is not None and self._found is not None and self._left is not None:
            self._changes.append((left, self._found, self._left))

    def stepping(self, optimizer: Any) -> None:
        """Judges the steps so far, before another."""
        self.is_open = len(self._optimizers()) == 1 and 0 < self._passes <= PASSES
        self._passes = 0
        if not self._places and self.is_open:
            self._places = _some_with_gradients(optimizer)
            self.is_open = bool(self._places)
        elif self.is_open:
            self._steps += 1
            if self._steps >= divided.STEPS:
                self._judge(optimizer)
        if self.is_open:
            self._left = self._copied()  # which may be clipped now

    def _judge(self, optimizer: Any) -> None:
        if all(copy.is_there for change in self._changes for copy in change):
            self.is_open = False
            values = [[copy.parts() for copy in change] for change in self._changes]
            # Gradients of a loop's own float32 copies are written, and no pass adds to them.
            if all(a == b != c and any(map(any, a)) for a, b, c in values):
                name = names_of(optimizer)[id(_at(self._places[0]))]
                report_here(gradients.never_cleared(name), step=self._steps + 1)
        elif self._steps > 2 * divided.STEPS:
            self.is_open = False

    def _copied(self) -> Copy | None:
        """Begins to copy a part of the gradients; None if one was cleared."""
        params = list(map(_at, self._places))
        if any(param is None or param.grad is None for param in params):
            return None
        parts = [sample(local(param.grad.detach())) for param in params]
        return None if any(part is None for part in parts) else copied(parts)


def _some_with_gradients(optimizer: Any) -> list[Place]:
    """Places of parameters with gradients, unless these are sampled or can't be."""
    places = [
        (weakref.ref(optimizer), place, number)
        for place, group in enumerate(optimizer.param_groups)
        for number, param in enumerate(group["params"])
        if param.grad is not None and sample(local(param.grad.detach())) is not None
    ]
    chosen = spread(places, SAMPLED)
    params = list(map(_at, chosen))
    is_sampled = data_parallel.world() > 1 and not any(hasattr(p, "to_local") for p in params)
    is_several = len({param.device for param in params}) > 1
    is_compiled_in = any(map(is_compiled, known_models()))
    return [] if is_several or (is_sampled and not is_compiled_in) else chosen


def _mark(gradient: Any) -> tuple[int, int]:
    """The place of a gradient's values on this rank, and how often they were changed."""
    part = local(gradient.detach())
    return part.data_ptr(), VERSION.of(part)
