"""Walks the autograd graph of a loss."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

NODES = 200
"""Maximum nodes to visit, those next to the loss first."""


def nodes_of(loss: Any) -> Iterator[Any]:
    """The nodes next to a loss, breadth first, each once."""
    coming = deque([getattr(loss, "grad_fn", None)])
    seen = set[Any]()
    while coming and len(seen) < NODES:
        node = coming.popleft()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            coming.extend(before for before, _ in node.next_functions)
