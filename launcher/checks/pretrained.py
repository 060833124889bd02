"""Checks that pretrained weights reach the model, and stay in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod, sqrt

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

Shapes = Mapping[str, Sequence[int]]
LEAST = 0.5
"""Minimum part of a model's elements that a load leaves out, to be reported."""
ALIKE = 0.5
"""Correlation of values with those that they are made of, as by noise, at least."""
FEW = 32
"""Minimum of sampled elements to correlate."""


def renamed(
    missing: Shapes, unexpected: Shapes, elements: int, *, is_all: bool = False
) -> Finding | None:
    """Reports pretrained weights most of which have other names than the model's.

    Args:
        missing: shapes of the model's tensors that weren't loaded.
        unexpected: shapes of the loaded ones that the model lacks.
        elements: of the whole model.
        is_all: whether nothing at all was loaded, which is reported otherwise.
    """
    there = Counter(_kind(name, shape) for name, shape in unexpected.items())
    fitting = []
    for name, shape in missing.items():
        if there[_kind(name, shape)]:
            there[_kind(name, shape)] -= 1
            fitting.append(name)
    lost = sum(prod(missing[name]) for name in fitting)
    if is_all or len(fitting) < 2 or lost <= LEAST * elements:
        return None
    return Finding(
        Check.SAVED,
        certain=False,
        sentence=f"load_state_dict has left {lost / elements:.0%} of the model as it was: "
        f"{first_of(fitting)} {'are' if len(fitting) > 1 else 'is'} missing, and as many of the "
        f"same shapes have other names, such as {_alike(fitting[0], missing, unexpected)}, which "
        "strict=False ignores",
        advice="Rename the loaded weights as the model's",
        parameter=fitting[0],
    )


def _kind(name: str, shape: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    return name.rpartition(".")[2], tuple(shape)


def _alike(name: str, missing: Shapes, unexpected: Shapes) -> str:
    kind = _kind(name, missing[name])
    return next(other for other, shape in unexpected.items() if _kind(other, shape) == kind)


def overwritten(
    loaded: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]]
) -> Finding | None:
    """Reports loaded weights that something has drawn anew before the first step.

    Noise, a cast or a merged adapter leave them correlated with what was loaded.

    Args:
        loaded: samples of the matrices right after the load.
        now: those before the first step; a name is missing if its tensor was replaced.
    """
    drawn = [
        name
        for name, values in loaded.items()
        if len(values) == len(now.get(name, ())) >= FEW
        and list(values) != list(now[name])
        and abs(_correlation(values, now[name])) < ALIKE
    ]
    if 2 * len(drawn) <= len(loaded):
        return None
    return Finding(
        Check.SAVED,
        certain=False,
        sentence="loaded weights are overwritten before the first step: "
        f"{count_of(len(drawn), 'sampled weight')} of {len(loaded)}, first {drawn[0]}, "
        f"{'has' if len(drawn) == 1 else 'have'} nothing of what load_state_dict has put there",
        advice="Initialize the model before its weights are loaded, not after",
        step=1,
        parameter=drawn[0],
    )


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    means = sum(one) / len(one), sum(other) / len(other)
    pairs = [(a - means[0], b - means[1]) for a, b in zip(one, other, strict=True)]
    scale = sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))
    return sum(a * b for a, b in pairs) / scale if scale else 0.0
