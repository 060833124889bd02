"""Detects features that `all_gather` has collected without gradients, and that a loss uses.

A row of another rank is remembered of each gather, and sought among the constants that the matrix
products near the loss have saved.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from ...checks import gradients
from ...checks.finding import Check
from ...core.private_names import OPERAND
from ...evidence.observations import observations
from ..callers import user_place
from .graphs import nodes_of
from .reporting import is_on, report, safely

HOOKED = ("torch.distributed.distributed_c10d",)
GATHERED = ("all_gather", "all_gather_into_tensor")
PRODUCT = "MmBackward0"
MOST = 16
"""Maximum gathers to remember between two backward passes."""
LEAST = 8
"""Minimum features of a row: with fewer, rows are alike by chance."""
ELEMENTS = 1 << 24
"""Maximum elements of features to look at."""
ALIKE = 0.999
"""Cosine of equal rows after a cast, a scale or a normalization."""


class Gathers:
    """Gathers of the first steps.

    Attributes:
        is_open: whether to note further gathers.
        noted: another rank's row, the number of rows and the user's line, of each gather.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.noted: list[tuple[Any, int, str]] = []

    def note(self, collected: Any, sent: Any, group: Any = None) -> None:
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
        self.noted.append((row, world * sent.numel() // width, user_place()))

    def look(self, loss: Any) -> None:
        """Looks for noted rows in a loss, before its backward pass begins."""
        noted, self.noted = self.noted, []
        with observations.going_on():
            where = _used(loss, noted)
            if where is not None:
                self.is_open = False
                step = (observations.steps_of_all() or 0) + 1
                report(gradients.gathered(step, where))


def _used(loss: Any, noted: Sequence[tuple[Any, int, str]]) -> str | None:
    """The user's line with the gather that a loss uses; None if it uses none."""
    for node in (node for node in nodes_of(loss) if node.name() == PRODUCT):
        for row, rows, where in noted:
            if any(_has_row(matrix, row) for matrix in _constants(node, rows, row.numel())):
                return where
    return None


def _constants(product: Any, rows: int, width: int) -> Iterator[Any]:
    """A product's constants with at least so many rows; others may be costly to unpack."""
    OPERAND.of(type(product))
    for name in ("_saved_self", OPERAND.attribute):
        shape = [int(size) for size in getattr(product, f"{name}_sym_sizes")]
        is_in_question = width in shape and rows * width <= math.prod(shape) <= ELEMENTS
        saved = getattr(product, name) if is_in_question else None
        if saved is not None and not (saved.requires_grad or hasattr(saved, "to_local")):
            yield from (matrix for matrix in (saved, saved.T) if matrix.shape[-1] == width)


def _has_row(constant: Any, row: Any) -> bool:
    """Whether any row of a constant has this direction."""
    from torch.nn.functional import cosine_similarity

    return bool((cosine_similarity(constant.float(), row.float()) > ALIKE).any())


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
        has_gradient = torch.is_grad_enabled() and getattr(sent, "requires_grad", False)
        if result is None and has_gradient and is_on(Check.GRADIENTS):
            group = kwargs.get("group", next(iter(others), None))
            safely(Check.GRADIENTS, gathers.note, collected, sent, group)
        return result

    return gather
