"""Checks that updates use a dtype that can represent them."""

from __future__ import annotations

from collections.abc import Mapping

from .finding import Check, Finding, first_of

UPDATES = 2
"""Updates that a cast must outlast to be reported."""
STEPS = 4
"""First steps to look for such casts."""
WITH_SQUARES = ("Adam", "Adagrad", "RMSprop", "Lamb")
"""Parts of names of optimizers that divide by the root of a mean of squares."""


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

    Args:
        optimizer: its class.
    """
    return Finding(
        Check.PRECISION,
        certain=False,
        sentence=f"{optimizer} steps with gradients of passes under autocast to float16, and no "
        "GradScaler has scaled the loss: small gradients underflow to zero",
        advice="Scale the loss by torch.amp.GradScaler, or compute in bfloat16",
        step=1,
    )


def stale(updates: int) -> Finding:
    """Reports casts of weights that are older than the weights.

    Args:
        updates: of the weight since its cast.
    """
    return Finding(
        Check.PRECISION,
        certain=False,
        sentence=f"one autocast region goes on over {updates} optimizer steps: it caches its casts "
        "of the weights, so that passes compute with the weights of before these steps",
        advice="Enter autocast anew for each forward pass, or pass cache_enabled=False",
    )
