"""Checks what steps make of parameters, and that their dtypes can represent updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

MANY_UNCHANGED, NEARLY_ALL = 0.25, 0.9
"""Shares of sampled elements with a gradient that stay unchanged: suspicious, certain."""
LEAST = 64
"""Minimum number of such elements."""
ROUNDING = 1e-4
"""Relative change of a weight that is put back by a computation, at least."""
MOST_SKIPPED = 25
"""Steps in a row that a scaler may skip: from 65,536 it has then gone below 0.002."""


UPDATES = 2
"""Updates that a cast must outlast to be reported."""
STEPS = 4
"""First steps to look for such casts."""
WITH_SQUARES = ("Adam", "Adagrad", "RMSprop", "Lamb")
"""Parts of names of optimizers that divide by the root of a mean of squares."""


@dataclass(frozen=True, slots=True)
class Update:
    """The effect of a step on sampled elements of a parameter.

    Attributes:
        name: the parameter's.
        dtype: its dtype, e.g. `bfloat16`.
        rate: its learning rate.
        before: elements before the step.
        after: elements after the step.
        gradient: gradients of the elements; empty if none.
    """

    name: str
    dtype: str
    rate: float
    before: Sequence[float]
    after: Sequence[float]
    gradient: Sequence[float] = ()


def unchanged(updates: Sequence[Update], optimizer: str) -> Finding | None:
    """Reports updates that leave many weights as they are despite gradients and a rate."""
    hit = [
        (update, before != after)
        for update in updates
        if update.rate > 0
        for before, after, slope in zip(update.before, update.after, update.gradient, strict=False)
        if slope and before
    ]
    same = [update for update, is_changed in hit if not is_changed]
    if len(hit) < LEAST or len(same) < MANY_UNCHANGED * len(hit):
        return None
    first = same[0]
    return Finding(
        Check.TRAINED,
        certain=len(same) >= NEARLY_ALL * len(hit),
        sentence=f"updates are lost: a step of {optimizer} left {len(same) / len(hit):.0%} of the "
        f"sampled weights with a gradient as they were, bit for bit ({first.dtype}, rate "
        f"{first.rate:g})",
        advice=f"The rate is below what {first.dtype} can add to a weight: keep the weights in "
        "float32 (with autocast), or raise the rate",
        parameter=first.name,
    )


def exchanged(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], rounding: Sequence[float]
) -> list[int]:
    """The places of parameters that have other values, beyond their relative rounding."""
    return [
        place
        for place, values in enumerate(zip(before, after, strict=True))
        if any(
            abs(old - new) > max(ROUNDING, rounding[place]) * abs(old)
            for old, new in zip(*values, strict=True)
        )
    ]


def left_by_evaluation(names: Sequence[str]) -> Finding:
    """Reports sampled parameters that an evaluation has replaced."""
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="after an evaluation the weights aren't those of the last step: "
        f"{first_of(names)}",
        advice="Put the trained weights back after an average of them (EMA) was evaluated: the "
        "next steps train on from the average",
        parameter=names[0],
    )


def moved(updates: Sequence[Update], optimizer: str) -> Finding | None:
    """Reports frozen parameters changed by a step."""
    changed = [update.name for update in updates if list(update.before) != list(update.after)]
    if not changed:
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{optimizer} updates frozen weights: {first_of(changed)}, with requires_grad "
        "False, was changed by its step",
        advice="A gradient was left from before it was frozen: set it to None, or leave it out of "
        "the optimizer",
        parameter=changed[0],
    )


def still_zero(samples: Mapping[str, Sequence[float]], steps: int) -> Finding | None:
    """Reports adapters whose sampled second matrix is still zero after many updates."""
    if steps < 2 or not samples or any(any(values) for values in samples.values()):
        return None
    first = next(iter(samples))
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"the adapters aren't trained: {first} is still zero after {steps} updates",
        advice="The optimizer may hold other tensors than the model's, or no gradient reaches the "
        "adapters",
        step=steps,
        parameter=first,
    )


def not_numbers(updates: Sequence[Update], optimizer: str) -> Finding | None:
    """Reports parameters of which a step has made NaN."""
    broken = [update.name for update in updates if any(map(math.isnan, update.after))]
    if not broken or any(math.isnan(value) for update in updates for value in update.before):
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{optimizer}'s step has made NaN of {first_of(broken)}: all later steps are lost",
        advice="Stop the run and go back to a checkpoint before it. Look for a loss or a gradient "
        "of inf or NaN: a rate that is too high, an empty sample, fp16 without a scaler",
        parameter=broken[0],
    )


def still_scaled() -> Finding:
    """Reports a step whose gradients are still multiplied by a loss scale."""
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence="the optimizer's step uses gradients that are still multiplied by the loss scale: "
        "scaler.scale was called, but neither scaler.step nor scaler.unscale_",
        advice="Call scaler.step(optimizer) and scaler.update() instead of optimizer.step()",
        step=1,
    )


def skipped(scales: Sequence[float], factor: float) -> Finding | None:
    """Reports a scaler that skips all of its latest steps.

    Args:
        scales: its scale, seen every `MOST_SKIPPED` steps.
        factor: what a skipped step multiplies it with.
    """
    if len(scales) < 2 or scales[-1] > scales[-2] * factor ** (MOST_SKIPPED - 1):
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"the GradScaler has skipped the last {count_of(MOST_SKIPPED, 'step')}, as "
        "gradients had inf or NaN: the training makes no progress",
        advice="Find where the loss gets inf or NaN: use bf16 instead of fp16, lower the learning "
        "rate, look for empty samples",
    )


def without_master(optimizer: str, halves: list[str], floats: int) -> Finding | None:
    """Reports float16 weights that an optimizer updates directly.

    Their gradients' squares underflow below 6e-8 (IEEE 754, binary16), and so does Adam's epsilon.

    Args:
        optimizer: its class, from torch.
        halves: names of its parameters in float16 that have gradients in float16.
        floats: number of its other parameters.
    """
    if not halves or floats or not any(name in optimizer for name in WITH_SQUARES):
        return None
    return Finding(
        Check.PRECISION,
        certain=True,
        sentence=f"{optimizer} updates weights of float16 without a copy in float32: squares of "
        "gradients and its epsilon underflow to zero",
        advice="Load the weights in float32 and compute under autocast with a GradScaler, or train "
        "in bfloat16",
        step=1,
        parameter=halves[0],
    )


def without_copy(optimizer: str, halves: Mapping[str, int], elements: int) -> Finding | None:
    """Reports bfloat16 weights and states although mixed precision is configured.

    Mixed precision keeps the weights in float32, and casts them for each operation.

    Args:
        optimizer: its class, from torch.
        halves: elements of its parameters in bfloat16 that have gradients, by name.
        elements: of all its parameters with gradients.
    """
    if 2 * sum(halves.values()) <= elements or not any(name in optimizer for name in WITH_SQUARES):
        return None
    return Finding(
        Check.PRECISION,
        certain=False,
        sentence=f"mixed precision is on, but {first_of(halves)} and {optimizer}'s states are "
        "bfloat16 themselves: no copy in float32 takes up small updates",
        advice="Load the weights in float32 (dtype=torch.float32): autocast, or FSDP2's "
        "policy, casts them",
        step=1,
        parameter=next(iter(halves)),
    )


def unscaled(optimizer: str) -> Finding:
    """Reports float16 autocast without loss scaling.

    Gradients below 6e-8 underflow in float16 (IEEE 754, binary16).
    """
    return Finding(
        Check.PRECISION,
        certain=False,
        sentence=f"{optimizer} steps with gradients of passes under autocast to float16, and no "
        "GradScaler has scaled the loss: small gradients underflow to zero",
        advice="Scale the loss by torch.amp.GradScaler, or compute in bfloat16",
        step=1,
    )


def computed_with_old(updates: int) -> Finding:
    """Reports casts that are this many updates older than their weights."""
    return Finding(
        Check.PRECISION,
        certain=False,
        sentence=f"one autocast region goes on over {updates} optimizer steps: it caches its casts "
        "of the weights, so that passes compute with the weights of before these steps",
        advice="Enter autocast anew for each forward pass, or pass cache_enabled=False",
    )
