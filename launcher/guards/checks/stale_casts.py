"""Detects casts of weights that one autocast region keeps over several optimizer steps.

Autocast caches them until its outermost exit, so that a later pass has the same autograd node.
"""

from __future__ import annotations

from typing import Any

from ...checks import precision
from ...core.private_names import VERSION
from ...evidence.observations import observations
from .graphs import nodes_of
from .reporting import report_here

CASTS = 8
"""Maximum casts to remember of a pass."""
CAST = "ToCopyBackward0"


class StaleCasts:
    """Casts of the first steps' passes.

    Attributes:
        is_open: whether to look at further passes.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._step = -1
        self._last: dict[Any, int] = {}  # by node: the version of its weight in the last step
        self._stale: dict[Any, int] = {}  # by node: the updates since

    def look(self, loss: Any) -> None:
        """Looks at the first backward pass after each step, before it begins."""
        step = observations.steps_of_all() or 0
        if step == self._step:
            return
        self._step = step
        now = _casts_of(loss) if _is_within_autocast(loss) else {}
        self._stale = {
            node: self._stale.get(node, 0) + (version > self._last[node])
            for node, version in now.items()
            if node in self._last
        }
        self._last = now
        updates = max(self._stale.values(), default=0)
        if updates >= precision.UPDATES:
            report_here(precision.stale(updates, step + 1))
        if updates >= precision.UPDATES or step >= precision.STEPS:
            self.is_open, self._last, self._stale = False, {}, {}


def _is_within_autocast(loss: Any) -> bool:
    """Whether the backward pass begins within a region, as the next steps may."""
    import torch

    has_kinds = hasattr(torch, "get_autocast_dtype")  # from torch 2.4 on
    return has_kinds and hasattr(loss, "device") and torch.is_autocast_enabled(loss.device.type)


def _casts_of(loss: Any) -> dict[Any, int]:
    """The casts of weights next to a loss, and the versions of these weights."""
    versions: dict[Any, int] = {}
    for node in nodes_of(loss):
        if node.name() == CAST and len(versions) < CASTS:
            weight = getattr(node.next_functions[0][0], "variable", None)
            if weight is not None:
                versions[node] = VERSION.of(weight)
    return versions
