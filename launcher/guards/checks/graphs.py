"""Walks autograd graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

NODES = 200
"""Maximum nodes of a loss to visit, those next to it first."""


def nodes_of(*tensors: Any, most: float = NODES) -> Iterator[Any]:
    """The nodes next to a loss or other tensors, breadth first, each once."""
    coming = deque(getattr(tensor, "grad_fn", None) for tensor in tensors)
    seen = set[Any]()
    while coming and len(seen) < most:
        node = coming.popleft()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            coming.extend(before for before, _ in node.next_functions)
