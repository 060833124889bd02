"""Checks that dropout acts in the passes that are trained, and in no others."""

from __future__ import annotations

from ..core.quantities import count_of
from .finding import Check, Finding

STEPS = 3
"""Steps with a pass of another model."""


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
        certain=False,
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
        certain=False,
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
        certain=False,
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
