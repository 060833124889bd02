"""Checks of layers: what they mix, when their dropout acts, and the positions that they keep."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.quantities import count_of
from .finding import BATCHES, Check, Fault, Finding, first_of

STEPS = 3
"""Steps with a pass of another model."""
EXACT = {"bfloat16": 256, "float16": 2048}
"""The last whole number up to which a dtype has all of them."""

SEEN_AHEAD = Fault(
    "the model sees the words that it learns to predict: the labels are the next words of its "
    "input, and none of its attention has a mask of those",
    "Pass a causal mask, nn.Transformer.generate_square_subsequent_mask(length), or "
    "is_causal=True with it",
    check=Check.TRAINED,
)
INVERTED_MASK = Fault(
    "attention sees nothing but padding: key_padding_mask is True for each word and False for "
    "padding, and what is True is left out",
    "Invert the mask: ~mask, or ids == padding_idx",
    certain=True,
    check=Check.TRAINED,
)


def is_over_batch(batch: int, given: tuple[int, ...], inputs: Sequence[tuple[int, ...]]) -> bool:
    """Whether a layer's sequence is the batch, as the model's input has it.

    Args:
        batch: the samples of a batch, as the loader has them.
        given: the first two sizes of the layer's input, of which the first is its sequence.
        inputs: those of the model's inputs.
    """
    is_batch = len(given) == 2 and given[0] == batch > 1
    return is_batch and 1 < given[1] != batch and given in inputs


def over_batch(kind: str, calls: Sequence[tuple[int, ...]]) -> Finding | None:
    """Reports a layer whose sequence is the batch.

    Args:
        kind: the layer's class.
        calls: in each first step, the sizes of such a sequence; empty for others.
    """
    if len(calls) < BATCHES or not all(calls):
        return None
    samples, length = calls[0]
    return Finding(
        Check.TRAINED,
        sentence=f"a layer runs over the batch: {kind} is given {count_of(samples, 'sample')} by "
        f"{length}, and with batch_first=False it takes the first size for the sequence, so that "
        "samples are mixed and places of one aren't",
        advice="Make it, or the layer that it is a part of, with batch_first=True",
        step=1,
    )


def normalized_over_batch(sizes: Sequence[tuple[int, ...]]) -> Finding | None:
    """Reports a softmax over the samples of a batch.

    Args:
        sizes: those of its input in each first step.
    """
    if len(sizes) < BATCHES:
        return None
    shape = " by ".join(map(str, sizes[0]))
    return Finding(
        Check.TRAINED,
        sentence=f"a softmax runs over the batch: it is taken over the first dimension of {shape}, "
        "the samples, so that a sample's output depends on the others",
        advice="Give it the dimension to normalize, such as dim=1 for places or dim=-1 for classes",
        step=1,
    )


def kept_on(function: str, model: str, *, is_made: bool) -> Finding:
    """Reports dropout that acts in evaluation mode.

    Args:
        function: what drops elements.
        model: the class of the model in evaluation mode.
        is_made: whether it is a layer that the forward pass makes, and the model doesn't have.
    """
    if function == "scaled_dot_product_attention":
        advice = "Pass dropout_p=p if self.training else 0.0"
    elif is_made:
        advice = "Make the layer in __init__, so that eval() reaches it"
    else:
        advice = "Pass training=self.training"
    why = "forward makes a layer of it, which eval() doesn't reach" if is_made else "by its call"
    return Finding(
        Check.TRAINED,
        sentence=f"dropout stays on in evaluation: {model} is in evaluation mode, and {function} "
        f"drops elements all the same, {why}",
        advice=advice,
    )


def of_another(model: str, steps: int, share: float) -> Finding:
    """Reports a model that isn't trained and runs with dropout beside the one that is.

    Args:
        model: its class.
        steps: how many steps it has been seen in.
        share: the share of elements that are dropped.
    """
    return Finding(
        Check.TRAINED,
        sentence=f"a model that isn't trained, {model}, runs in training mode in each of "
        f"{count_of(steps, 'step')}: its dropout ({share:g}) makes other outputs of the same "
        "inputs at each pass",
        advice="Call its eval(), again after each train() of a module that contains it",
    )


def unlike_trained(model: str, share: float) -> Finding:
    """Reports a pass without gradients, with dropout, of tokens that are trained next.

    Args:
        model: the trained model's class.
        share: the share of elements that are dropped.
    """
    return Finding(
        Check.TRAINED,
        sentence=f"{model} sees the same tokens without gradients and then to be trained, both "
        f"times with dropout ({share:g}): the outputs differ though the weights don't, and so do "
        "probabilities that are compared (a ratio of policies, a divergence)",
        advice="Set the model's dropout to 0, as libraries for reinforcement learning do",
    )


def drawn_anew(share: float) -> Finding:
    """Reports a checkpointed block that draws its dropout again.

    Args:
        share: the share of elements that are dropped.
    """
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"a checkpointed block has dropout ({share:g}) and preserve_rng_state=False: it "
        "is recomputed with other elements dropped, so that the gradients aren't those of the loss",
        advice="Leave out preserve_rng_state=False",
        step=1,
    )


def uninitialized(names: Sequence[str]) -> Finding | None:
    """Reports buffers that are still what the memory held when `to_empty` made them.

    Args:
        names: buffers that no checkpoint has, unchanged since.
    """
    if not names:
        return None
    return Finding(
        Check.TRAINED,
        certain=True,
        sentence=f"{count_of(len(names), 'buffer')} {'is' if len(names) == 1 else 'are'} "
        f"uninitialized: {first_of(names)}, which to_empty() has made from the meta device, and "
        "nothing has written since (persistent=False: no checkpoint has it)",
        advice="Compute them again after to_empty(), e.g. in reset_parameters() of their module",
        step=1,
        parameter=names[0],
    )


def coarse(name: str, dtype: str, positions: int) -> Finding | None:
    """Reports frequencies of positions in half precision, with more positions than it counts.

    Args:
        name: the buffer.
        dtype: its dtype.
        positions: the longest input of its module.
    """
    if positions <= EXACT.get(dtype, positions):
        return None
    return Finding(
        Check.PRECISION,
        sentence=f"the frequencies of the positions, {name}, are in {dtype}, which has not all "
        f"whole numbers beyond {EXACT[dtype]}, and texts have {positions:,} positions: distant "
        "ones are rotated wrongly",
        advice="Keep it in float32, and cast the parameters alone: compute it again after the cast",
        parameter=name,
    )
