"""Whether model, loss and optimizer are put together as they are meant."""

from __future__ import annotations

from collections.abc import Collection

from .finding import Check, Finding, first_of


def idle(optimizer: str, held: Collection[str], steps: int, where: str) -> Finding | None:
    """An optimizer that makes no step, of parameters with gradients that no other has.

    Args:
        optimizer: its class.
        held: names of these parameters.
        steps: another optimizer's steps by then.
        where: the user's line that made it.
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
        where=where,
    )


def evaluating(layers: Collection[str], step: int, where: str) -> Finding | None:
    """A model that is trained in evaluation mode, though layers of it act otherwise there.

    Args:
        layers: their names.
        step: the last that was looked at.
        where: the user's line that steps.
    """
    if not layers:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"the model is trained in evaluation mode: {first_of(layers)} "
        f"{'are' if len(layers) > 1 else 'is'} off or frozen (dropout, batch norm)",
        advice="Call model.train() before the training, and again after each evaluation",
        step=step,
        where=where,
    )


def normalized_twice(fault: str, where: str) -> Finding | None:
    """A loss of torch's that normalizes what the model has normalized.

    Args:
        fault: what it does; empty for nothing.
        where: the user's line that goes backward.
    """
    if not fault:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{fault}: the loss can't get small, and gradients almost vanish",
        advice="Give the loss the model's raw output",
        step=1,
        where=where,
    )


def decays_all(optimizer: str, spared: int, vectors: Collection[str], where: str) -> Finding | None:
    """A group without weight decay that is empty, though biases are in a group that decays.

    Args:
        optimizer: its class.
        spared: number of the group.
        vectors: names of biases and the like in groups with decay.
        where: the user's line that made it.
    """
    if not vectors:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{optimizer}'s group {spared}, without weight decay, is empty: "
        f"{first_of(vectors)} {'decay' if len(vectors) > 1 else 'decays'} with the others",
        advice="Look at what chooses the groups: names are compared as a whole, or have a prefix",
        step=1,
        parameter=next(iter(vectors)),
        where=where,
    )


def parted(output: str, embedding: str, *, is_equal: bool, where: str = "") -> Finding | None:
    """Two weights that the configuration ties, and that are no longer one."""
    if not is_equal:
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"tied weights were parted: {output} and {embedding} have the same values and are "
        "trained apart, though the configuration ties them (tie_word_embeddings)",
        advice="Call model.tie_weights() after what replaced one of them, and before the optimizer "
        "is made",
        step=1,
        parameter=output,
        where=where,
    )
