"""Checks that model, loss and optimizer fit together."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

LOSSES = 10
"""First steps whose losses are inspected."""
LEAST = 1e-6
"""Minimum of a loss that is inspected: one of advantages is zero in each first step."""


def idle(optimizer: str, held: Collection[str], steps: int) -> Finding | None:
    """Reports an optimizer without steps that alone holds parameters with gradients.

    Args:
        optimizer: its class.
        held: names of these parameters.
        steps: another optimizer's steps so far.
    """
    if not held:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{optimizer} has made no step by the {steps}th of another optimizer: "
        f"{first_of(held)}, which only it holds, {'have' if len(held) > 1 else 'has'} gradients, "
        "and nothing updates them",
        advice="Call its step() as well",
        step=steps,
        parameter=next(iter(held)),
    )


def made_before_sharding(optimizer: str, parameters: int) -> Finding:
    """Reports an optimizer of which `fully_shard` has replaced all parameters, this many."""
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{optimizer} trains nothing: fully_shard has replaced all of its "
        f"{count_of(parameters, 'parameter')} since it was made",
        advice="Make the optimizer after fully_shard "
        "(safe-launch explain fsdp2-optimizer-made-before)",
        step=1,
    )


def evaluating(layers: Collection[str]) -> Finding | None:
    """Reports a model trained in evaluation mode, if some layers depend on the mode."""
    if not layers:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the model is trained in evaluation mode: "
        f"{first_of(layers, 'is', 'are')} off or frozen (dropout, batch norm)",
        advice="Call model.train() before the training, and again after each evaluation",
    )


def not_evaluating(layers: Collection[str]) -> Finding:
    """Reports an evaluation in training mode, if some layers depend on the mode."""
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the model is evaluated in training mode: "
        f"{first_of(layers, 'acts', 'act')} as in training (dropout, batch norm, which also "
        "follows this data)",
        advice="Call model.eval() before the evaluation, and model.train() after it",
    )


def moving(layers: Collection[str]) -> Finding | None:
    """Reports frozen batch norms whose statistics follow the new data."""
    if not layers:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"frozen layers change: {first_of(layers, 'is', 'are')} batch norm in training "
        "mode, whose running mean and variance follow the new data, though its weights are frozen",
        advice="Call eval() on the frozen layers after each model.train(), e.g. in the model's "
        "train method",
        parameter=next(iter(layers)),
    )


def normalized_twice(fault: str) -> Finding | None:
    """Reports a torch loss that normalizes an output normalized by the model.

    Args:
        fault: the repeated operation; empty if none.
    """
    if not fault:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{fault}: the loss can't get small, and gradients almost vanish",
        advice="Give the loss the model's raw output",
        step=1,
    )


def still_loss(values: Sequence[float]) -> Finding | None:
    """Reports a loss that is the same in a pass of each of the first steps."""
    if len(values) < LOSSES or len({*values}) > 1 or not abs(values[0]) > LEAST:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the loss is the same in each of the first {LOSSES} steps, {values[0]:.6g}, "
        "whatever the batch",
        advice="Look at what it is computed from: two outputs that are always equal, such as those "
        "of a model and of a reference that follows it, or nothing that depends on the model",
        step=LOSSES,
    )


def broadcast_loss(shapes: tuple[tuple[int, ...], tuple[int, ...]] | None) -> Finding | None:
    """Reports a loss that compares each output with every target.

    Args:
        shapes: of the output, and of its differences; None if they are alike.
    """
    if shapes is None:
        return None
    output, made = (str(list(shape)) for shape in shapes)
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the loss compares each output with the target of every sample: an output of "
        f"shape {output} and its target are broadcast to {made}",
        advice="Give both the same shape, e.g. by squeeze(-1) or unsqueeze(-1)",
        step=1,
    )


def decays_all(optimizer: str, spared: int, vectors: Collection[str]) -> Finding | None:
    """Reports an empty group without weight decay while biases decay.

    Args:
        optimizer: its class.
        spared: number of the group.
        vectors: names of biases and the like in groups with decay.
    """
    if not vectors:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{optimizer}'s group {spared}, without weight decay, is empty: "
        f"{first_of(vectors, 'decays', 'decay')} with the others",
        advice="Look at what chooses the groups: names are compared as a whole, or have a prefix",
        step=1,
        parameter=next(iter(vectors)),
    )


def decays_norms(optimizer: str, norms: Collection[str]) -> Finding | None:
    """Reports norm layers whose weights decay while other vectors are spared."""
    if not norms:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{optimizer} decays the weights of norm layers, {first_of(norms)}, and spares "
        "other vectors: the code that chooses the group without weight decay misses their names",
        advice="Choose it by the shape (parameter.ndim < 2) or the class of the layer",
        step=1,
        parameter=next(iter(norms)),
    )


def emptied(names: tuple[str, str]) -> Finding:
    """Reports tied weights that `to_empty` has made two."""
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"tied weights were parted: to_empty() has made two parameters of {names[0]} and "
        f"{names[1]}, which was one, and they are trained apart",
        advice="Tie them again right after to_empty(), before fully_shard and the optimizer",
        step=1,
        parameter=names[1],
    )


def parted(output: str, embedding: str) -> Finding:
    """Reports two separate weights of equal values that the configuration ties."""
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"tied weights were parted: {output} and {embedding} have the same values and are "
        "trained apart, though the configuration ties them (tie_word_embeddings)",
        advice="Call model.tie_weights() after replacing one of them, and before the optimizer "
        "is made",
        step=1,
        parameter=output,
    )


def nothing_drawn(function: str) -> Finding:
    """Reports a function that initializes weights after `zero.Init` has divided them."""
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{function} initializes weights that ZeRO stage 3 has divided: outside of "
        "GatheredParameters they're empty on every rank, and stay as they were made",
        advice="Do it in the model's __init__, or within deepspeed.zero.GatheredParameters("
        "parameters, modifier_rank=0)",
        step=0,
    )


def mixed_classes(shapes: tuple[tuple[int, ...], tuple[int, ...]] | None) -> Finding | None:
    """Reports outputs that are reshaped for a loss instead of transposed.

    Args:
        shapes: of the output, and as the loss takes it; None without such a view.
    """
    if shapes is None:
        return None
    given, taken = (str(list(shape)) for shape in shapes)
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence="the loss takes an output by view or reshape, which mixes the classes with the "
        f"places: its shape is {given}, and it is taken as {taken}",
        advice="Exchange the dimensions instead: output.transpose(1, 2)",
        step=1,
    )
