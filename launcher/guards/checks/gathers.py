"""Detects features that `all_gather` has collected without gradients, and that a loss uses.

A row of another rank is remembered of each gather, and sought in what the matrix products near the
loss have saved: among constants, or among features of which only this rank's have a gradient, as
they were put back into their place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from ...checks import gradients
from ...checks.finding import Check
from ...core.private_names import FACTOR, OPERAND
from ...evidence.observations import observations
from ..callers import user_place
from .graphs import nodes_of
from .reporting import is_on, report, safely

HOOKED = ("torch.distributed.distributed_c10d",)
GATHERED = ("all_gather", "all_gather_into_tensor")
PRODUCT = "MmBackward0"
JOINED = ("CatBackward0", "StackBackward0")
SCALED, NEAR = "MulBackward0", 4
"""Products of a loss and a number, among the nodes next to the loss: others may be costly to
unpack."""
MOST = 16
"""Maximum gathers to remember between two backward passes."""
LEAST = 8
"""Minimum features of a row: with fewer, rows are alike by chance."""
VIEWS = 2
"""Maximum parts of what was gathered at once, such as two views of each sample."""
ELEMENTS = 1 << 24
"""Maximum elements of features to look at."""
ALIKE = 0.999
"""Cosine of equal rows after a cast, a scale or a normalization."""


@dataclass(frozen=True, slots=True)
class Gather:
    """A completed gather.

    Attributes:
        row: a row of another rank.
        rows: the number of all ranks' rows.
        world: the number of ranks.
        is_constant: whether what was sent had a gradient that the gather has cut off. Without
            gradients at all, as of a teacher's features, constants are meant.
        where: the user's line.
    """

    row: Any
    rows: int
    world: int
    is_constant: bool
    where: str


class Gathers:
    """Gathers of the first steps.

    Attributes:
        is_open: whether to note further gathers.
        noted: those since the last backward pass.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.noted: list[Gather] = []

    def note(self, collected: Any, sent: Any, group: Any = None, *, is_constant: bool) -> None:
        """Notes a completed gather."""
        import torch.distributed as dist

        self.is_open = (observations.steps_of_all() or 0) < gradients.GATHERING
        world, width = dist.get_world_size(group), sent.shape[-1] if sent.dim() > 1 else 0
        is_large = sent.numel() > ELEMENTS or len(self.noted) == MOST
        if not self.is_open or world < 2 or width < LEAST or is_large:
            return
        place = (dist.get_rank(group) + 1) % world
        part = collected if isinstance(collected, list | tuple) else collected.chunk(world)
        row = part[place].detach().reshape(-1, width)[0].clone()
        rows = world * sent.numel() // width
        self.noted.append(Gather(row, rows, world, is_constant, user_place()))

    def look(self, loss: Any) -> None:
        """Looks for noted rows in a loss, before its backward pass begins."""
        noted, self.noted = self.noted, []
        with observations.going_on():
            where = _used(loss, noted)
            if where is not None:
                self.is_open = False
                step = (observations.steps_of_all() or 0) + 1
                report(gradients.gathered(), where=where, step=step)


def _used(loss: Any, noted: list[Gather]) -> str | None:
    """The user's line with the gather that a loss uses; None if it uses none."""
    nodes = list(nodes_of(loss)) if noted else []
    joined = [node.next_functions for node in nodes if node.name() in JOINED]
    scaled = [node for node in nodes[:NEAR] if node.name() == SCALED] if joined else []
    factors = {_factor(node) for node in scaled}
    for node in (node for node in nodes if node.name() == PRODUCT):
        for gather in noted:
            is_mixed = any(_is_of_one_rank(parts, gather.world) for parts in joined)
            is_mixed = is_mixed and gather.world not in factors
            for matrix in _operands(node, gather.rows, gather.row.numel()):
                is_sought = is_mixed if matrix.requires_grad else gather.is_constant
                if is_sought and _has_row(matrix, gather.row):
                    return gather.where
    return None


def _factor(node: Any) -> float:
    """The number that a node multiplies by, such as that of ranks, whose mean DDP takes.

    0 for another tensor, or one on a device, which would have to be waited for.
    """
    factor = FACTOR.of(node)
    is_number = factor is not None and factor.numel() == 1 and factor.device.type == "cpu"
    return float(factor) if is_number else 0.0


def _is_of_one_rank(parts: Any, world: int) -> bool:
    """Whether one of the joined ranks' features has a gradient, and the others are constants."""
    return len(parts) == world and sum(before is not None for before, _ in parts) == 1


def _operands(product: Any, rows: int, width: int) -> Iterator[Any]:
    """A product's matrices with about so many rows or more; others may be costly to unpack."""
    OPERAND.of(type(product))
    for name in ("_saved_self", OPERAND.attribute):
        shape = [int(size) for size in getattr(product, f"{name}_sym_sizes")]
        least = rows * width // VIEWS
        is_in_question = width in shape and least <= math.prod(shape) <= ELEMENTS
        saved = getattr(product, name) if is_in_question else None
        if saved is not None and not hasattr(saved, "to_local"):
            yield from (matrix for matrix in (saved, saved.T) if matrix.shape[-1] == width)


def _has_row(matrix: Any, row: Any) -> bool:
    """Whether any row of a matrix has this direction."""
    from torch.nn.functional import cosine_similarity

    return bool((cosine_similarity(matrix.detach().float(), row.float()) > ALIKE).any())


gathers = Gathers()


def install(module: ModuleType) -> None:
    """Wraps the collectives in plain functions, which compiled graphs don't see."""
    for name in filter(module.__dict__.__contains__, GATHERED):
        setattr(module, name, _noting(getattr(module, name)))


def _noting(function: Any) -> Any:
    import torch

    @functools.wraps(function)
    def gather(*args: Any, **kwargs: Any) -> Any:
        # In this order: otherwise a compiled graph has a guard on the attribute, and is recompiled.
        if torch.compiler.is_compiling() or not gathers.is_open:
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        collected, sent, *others = *args, *kwargs.values()
        has_gradient = getattr(sent, "requires_grad", False)
        if result is None and has_gradient and is_on(Check.GRADIENTS):
            group = kwargs.get("group", next(iter(others), None))
            is_constant = torch.is_grad_enabled()
            note = partial(gathers.note, is_constant=is_constant)
            safely(Check.GRADIENTS, note, collected, sent, group)
        return result

    return gather
