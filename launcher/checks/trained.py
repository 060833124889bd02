"""Checks that exactly the right parameters are trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..core.quantities import count_of
from .finding import Check, Finding, first_of

WITHOUT = 3
"""Steps without any gradient after which an optimizer trains nothing."""
LONG = 10
"""Steps after which most parameters must have had a gradient."""
ROWS_STEPS, LEAST_ROWS = 3, 4
"""Steps in which to look at the rows of an embedding, and minimum without a gradient in each."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """An optimizer's parameters with and without gradients so far.

    Attributes:
        optimizer: its class.
        steps: its steps so far.
        sizes: number of elements of its trainable parameters, by name.
        without: names of parameters without any gradient so far.
        foreign: names of parameters outside of all models; None if no model is known.
        left: number of elements, by name, of the models' parameters that have gradients but no
            optimizer.
        frozen: number of the models' parameters if all are frozen; otherwise 0.
        thawed: names of those left that were frozen when the optimizer was made.
    """

    optimizer: str
    steps: int
    sizes: dict[str, int]
    without: frozenset[str]
    foreign: frozenset[str] | None = None
    left: dict[str, int] | None = None
    frozen: int = 0
    thawed: frozenset[str] = frozenset()


def unregistered(names: Collection[str]) -> Finding | None:
    """Reports layers with gradients that their model doesn't register."""
    if not names:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{first_of(names, 'has', 'have')} gradients, but the "
        "model doesn't register what a list, a dict or a plain tensor holds: no optimizer has it, "
        "and it isn't saved",
        advice="Hold layers in an nn.ModuleList or nn.ModuleDict, tensors as an nn.Parameter",
        parameter=next(iter(names)),
    )


def without_gradients(seen: Gradients) -> Finding | None:
    """Reports an optimizer that trains nothing, or other parameters than it should."""
    if not seen.sizes:
        return _holds_nothing(seen) if seen.steps >= WITHOUT else None
    dead = (seen.foreign or frozenset()) & seen.without
    if seen.steps >= WITHOUT and len(seen.without) == len(seen.sizes):
        return _nothing(seen, dead)
    if seen.steps >= WITHOUT and dead and seen.left:
        return _replaced(seen, dead)
    if seen.steps >= LONG:
        return _most_without(seen)
    return None


def _holds_nothing(seen: Gradients) -> Finding | None:
    """Reports an optimizer without trainable parameters, though the model may have some."""
    if not seen.left and not seen.frozen:
        return None
    why = (
        f"and {first_of(seen.left)}, which has gradients, is in no optimizer"
        if seen.left
        else f"as are all {count_of(seen.frozen, 'parameter')} of the model"
    )
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{seen.optimizer} trains nothing: what it holds is frozen (requires_grad False), "
        f"{why}",
        advice="Make the optimizer after adapters are added; load adapters that are to be trained "
        "with is_trainable=True",
        step=seen.steps,
        parameter=next(iter(seen.left or ()), ""),
    )


def only_zeros(optimizer: str, parameters: int) -> Finding:
    """Reports gradients of zero of all of an optimizer's parameters."""
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{optimizer} trains nothing: the gradients of all its "
        f"{count_of(parameters, 'parameter')} are zero, step after step",
        advice="They are cleared between backward() and step(), or the loss is constant",
    )


def _nothing(seen: Gradients, dead: frozenset[str]) -> Finding:
    first = next(iter(seen.sizes))
    is_replaced = len(dead) == len(seen.sizes)
    why = ": none of them is the model's any more" if is_replaced else ""
    advice = (
        "Make the optimizer after replacing parameters (adapters, new embeddings, wrappers)"
        if is_replaced
        else "The loss doesn't depend on them, its graph is cut (detach, no_grad, reentrant "
        "checkpointing of inputs without gradients), or the gradients are cleared before the step"
    )
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{seen.optimizer} trains nothing: in {count_of(seen.steps, 'step')} none of its "
        f"{count_of(len(seen.sizes), 'parameter')} has had a gradient{why}",
        advice=advice,
        step=seen.steps,
        parameter=first,
    )


def _replaced(seen: Gradients, dead: frozenset[str]) -> Finding:
    assert seen.left, "asked only then"
    first = next(iter(seen.left))
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{seen.optimizer} holds {count_of(len(dead), 'parameter')} that the model has no "
        f"more, and doesn't have {first_of(seen.left)}"
        ", which has gradients and is in no optimizer: it isn't trained",
        advice="Make the optimizer after replacing parameters (adapters, new embeddings)",
        step=seen.steps,
        parameter=first,
    )


def left_out(seen: Gradients) -> Finding | None:
    """Reports parameters with gradients but no optimizer, if few enough to be an oversight."""
    if not seen.left or seen.steps < WITHOUT or seen.foreign is None:
        return None
    if not seen.thawed and sum(seen.left.values()) >= sum(seen.sizes.values()):
        return None  # a head is trained on a body that nobody has frozen
    names = [name for name in seen.left if name in seen.thawed] or [*seen.left]
    frozen = ", as they were frozen when it was made" if seen.thawed else ""
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{first_of(names, 'has', 'have')} gradients and "
        f"{'are' if len(names) > 1 else 'is'} in no optimizer"
        f"{frozen}: nothing updates them",
        advice="Make the optimizer while they require gradients, or call add_param_group"
        if seen.thawed
        else "Give them to an optimizer, or set requires_grad to False",
        step=seen.steps,
        parameter=names[0],
    )


def _most_without(seen: Gradients) -> Finding | None:
    """Reports missing gradients of most parameters; idle experts are excused by active ones."""
    trained = [name for name in seen.sizes if name not in seen.without]
    kinds = {_kind(name) for name in trained}
    alone = [name for name in seen.sizes if name in seen.without and _kind(name) not in kinds]
    share = sum(seen.sizes[name] for name in alone) / max(1, sum(seen.sizes.values()))
    if share <= 0.5:
        return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"{first_of(alone)} of "
        f"{seen.optimizer}'s {count_of(len(seen.sizes), 'parameter')} ({share:.0%} of the "
        f"elements) have had no gradient in {count_of(seen.steps, 'step')}",
        advice="If they are to be trained, the graph is cut behind them (detach, no_grad); else "
        "set requires_grad to False",
        step=seen.steps,
        parameter=alone[0],
    )


def _kind(name: str) -> str:
    """A parameter's name without numbers, shared with other layers and experts."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def gathered(optimizer: str, names: Sequence[str], held: int, steps: int) -> Finding | None:
    """Reports whole parameters in an optimizer whose model trains their shards.

    Args:
        optimizer: its class.
        names: the whole parameters, none of which has had a gradient or is the model's.
        held: the number of its trained parameters.
        steps: its steps.
    """
    if not names:
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{optimizer} holds {count_of(len(names), 'parameter')} of {held:,} as FSDP2 "
        f"gathered them for a forward pass, and never trains their shards: {first_of(names)}",
        advice="Make the optimizer before the first forward pass, right after fully_shard, or call "
        "model.reshard() before it is made",
        step=steps,
        parameter=names[0],
    )


def zeroed_rows(name: str, steps: Sequence[Mapping[int, tuple[bool, bool]]]) -> Finding | None:
    """Reports rows in use that never have a gradient, and that each step moves all the same.

    Args:
        name: the embedding's weight.
        steps: by row in use, whether its gradient is all zero, and whether the step moved it.
    """
    if len(steps) < ROWS_STEPS:
        return None
    zero = {row for step in steps for row, (is_zero, _) in step.items() if is_zero}
    others = {row for step in steps for row, (is_zero, _) in step.items() if not is_zero}
    if not zero or not others or zero & others or len(zero) < len(others):
        return None
    for step in steps:
        held = [is_moved for row, (_, is_moved) in step.items() if row in zero]
        if len(held) < LEAST_ROWS or not all(held):
            return None
    return Finding(
        Check.TRAINED,
        certain=False,
        sentence=f"rows that are to stay are trained: {count_of(len(zero), 'row')} of {name} that "
        "the batches use have no gradient, as the script sets it to zero, but each step moves "
        "them: weight decay and momentum do so without a gradient",
        advice="Put these rows back after each step, or give the optimizer a parameter of the "
        "other rows alone, without weight decay",
        parameter=name,
    )
