"""What a launch becomes when nodes are lost."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from .request import LaunchRequest


def left(request: LaunchRequest, lost: Set[int]) -> LaunchRequest | str:
    """The launch on the nodes that are left; why it can't go on with them, in words.

    Args:
        request: the launch that lost nodes.
        lost: their ranks.
    """
    workers = tuple(nproc for rank, nproc in enumerate(request.nodes) if rank not in lost)
    least = request.placement.least
    if len(workers) < least:
        kept = f"{len(workers)} of {len(request.nodes)} nodes are left"
        return f"{kept}, and --nnodes asks for at least {least}: another allocation may do"
    return replace(request, workers=workers, whole_world=request.whole_world or request.world)
