"""Finds in a loss's graph classes that a view has mixed with places, instead of a transposition."""

from __future__ import annotations

from typing import Any

from ...core.private_names import METADATA
from .graphs import AROUND, LABELLED, SHAPES, before

VIEWS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0")
"""Autograd nodes that give the same values another shape."""
TURNS = ("TransposeBackward0", "PermuteBackward0", "TBackward0")
"""Autograd nodes that exchange dimensions."""
BIAS = "AddBackward0"
"""The autograd node of a linear layer's bias, if it is added behind."""
LINEAR = ("AddmmBackward0", "MmBackward0")
"""Autograd nodes of a linear layer, of rows of its outputs."""


def reshaped(loss: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shapes of a linear layer's output and of the view that a loss of labels takes for it.

    The layer has an output for each class, and the view has the classes before the places.
    """
    node = before(getattr(loss, "grad_fn", None), AROUND)
    if node is None or node.name() not in LABELLED:
        return None
    node = before(node.next_functions[0][0], VIEWS)
    if node is None or node.name() != "LogSoftmaxBackward0":
        return None
    taken = _shape(node)
    found = None
    node = node.next_functions[0][0]
    while node is not None and node.name() in (*SHAPES, BIAS) and node.name() not in TURNS:
        following = node.next_functions[0][0]
        if following is None:
            return None
        given = _shape(following)
        if node.name() in VIEWS and _are_mixed(given, _shape(node), taken):
            found = given
        node = following
    is_linear = node is not None and node.name() in LINEAR and _shape(node)[-1:] == taken[1:2]
    return None if found is None or not is_linear else (found, taken)


def _shape(node: Any) -> tuple[int, ...]:
    """The shape of what a node has made."""
    return tuple(METADATA.of(node)[0].shape)


def _are_mixed(given: tuple[int, ...], made: tuple[int, ...], taken: tuple[int, ...]) -> bool:
    """Whether a view of rows of classes has the classes before several places."""
    if made != taken or len(taken) < 3 or len(given) < 2:
        return False
    classes, places = taken[1], taken[2:]
    is_one = all(place == 1 for place in places)
    return given[-1] == classes > 1 and classes not in places and not is_one
