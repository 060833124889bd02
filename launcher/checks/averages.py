"""Checks averages of the trained model, which a script keeps beside it."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

MOST = 0.5
"""Maximum part of the elements that an average follows, of one that loses its updates."""
LEAST = 64
"""Minimum of the elements that the training changes, to judge an average by them."""


def stale_statistics(layers: Sequence[str], *, is_new: bool) -> Finding | None:
    """Reports an average that is evaluated with the first statistics of its batch norms.

    Args:
        layers: its batch norms whose statistics stayed, while its weights and the trained model's
            statistics moved.
        is_new: whether they are a new layer's, a mean of 0 and a variance of 1.
    """
    if not layers:
        return None
    return Finding(
        Check.TRAINED,
        certain=is_new,
        sentence=f"an average of the model is evaluated with batch norm as it was made: "
        f"{first_of(layers)} has the running statistics of before the first step, while its "
        "weights follow the trained ones",
        advice="Copy the model's buffers to the average as well, after each update, or call "
        "torch.optim.swa_utils.update_bn before the evaluation",
        parameter=layers[0],
    )


def lost_in_half(dtype: str, followed: int, changed: int) -> Finding | None:
    """Reports an average whose dtype is too coarse for its updates.

    Args:
        dtype: the average's.
        followed: its sampled elements that have changed, among those that the training changed.
        changed: the latter.
    """
    if changed < LEAST or not 0 < followed < MOST * changed:
        return None
    return Finding(
        Check.PRECISION,
        certain=False,
        sentence=f"an average of the model loses its updates: it is in {dtype}, and of "
        f"{count_of(changed, 'sampled element')} that the training has changed, only "
        f"{followed:,} have changed in it",
        advice="Keep the average in float32, and cast a copy of it to evaluate or save it",
    )


def empty_copy(names: Sequence[str], known: int) -> Finding | None:
    """Reports a copy of a model whose weights ZeRO stage 3 had divided.

    Args:
        names: its empty parameters that have elements in the model.
        known: number of its parameters.
    """
    if 2 * len(names) <= known:
        return None
    return Finding(
        Check.SAVED,
        certain=False,
        sentence=f"a copy of the model, such as an average, is empty: {first_of(names)} has no "
        "elements, as ZeRO stage 3 had divided the weights when it was made",
        advice="Copy the model before deepspeed.initialize and outside of zero.Init, and gather "
        "the weights by deepspeed.zero.GatheredParameters to update the copy",
        parameter=names[0],
    )


def is_begun_apart(
    first: Sequence[float], now: Sequence[float], model: Sequence[float], *, least: float = 0.5
) -> bool:
    """Whether an average has begun to move, and is still nearer to where it began.

    Args:
        first: its sampled values before the first step.
        now: those after a few steps.
        model: the trained model's.
        least: part of the way to the model.
    """
    moved = sum(abs(one - other) for one, other in zip(first, now, strict=True))
    apart = sum(abs(one - other) for one, other in zip(first, model, strict=True))
    return 0 < moved < least * apart
