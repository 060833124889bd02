"""Looks at the backward passes of a plain loop: whether each is of a mean that nothing divides."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...checks import divided
from ...core.private_names import REDUCTION
from ...evidence.observations import Observations
from ..callers import is_called_by, user_place
from . import scalers
from .told import tell

MAKERS = (
    *("transformers", "accelerate", "deepspeed", "lightning", "lightning_fabric"),
    "pytorch_lightning",
)
"""Packages that go backward for the user's loop."""
PASSED_ON = ("_DDPSinkBackward", "ToCopyBackward0", "ViewBackward0")
"""What stands between a loss and what made it."""
PLAIN = "MeanBackward0"
MEANS = tuple(
    f"{name}Backward0"
    for name in (
        *("NllLoss", "NllLoss2D", "MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss"),
        *("BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
    )
)
"""What autograd calls losses of torch's that are a mean by default."""
MEAN = 1
"""torch's number of that reduction (torch/nn/_reduction.py)."""


class Passes:
    """The backward passes of the first steps.

    Attributes:
        is_open: whether further ones are looked at.
    """

    def __init__(self, observations: Observations) -> None:
        self.is_open = True
        self._observations = observations
        self._seen: Counter[tuple[int, str]] = Counter()  # by steps done, and the user's line

    def look(self, tensors: Any, gradients: Any = None) -> None:
        """Looks at what is about to go backward."""
        steps = self._observations.steps_of_all() or 0
        self.is_open = steps <= divided.STEPS and not is_called_by(*MAKERS)
        is_mean = False
        with self._observations.going_on():
            is_mean = self.is_open and gradients is None and _is_mean(tensors)
        self.is_open = is_mean
        if not is_mean:
            return
        where = user_place()
        self._seen[steps, where] += 1
        if steps == divided.STEPS:
            self.is_open = False
            made = {(step, line): n for (step, line), n in self._seen.items() if step < steps}
            lines = {line for _, line in made}
            counts = [n for _, n in sorted(made.items())]
            if lines == {where}:
                tell(self._observations, divided.summed(counts, where))


def _is_mean(loss: Any) -> bool:
    """Whether a loss is one of torch's means, as it is."""
    made = getattr(loss, "grad_fn", None)
    if made is not None and made.name() == "MulBackward0" and scalers.scaling:
        made = made.next_functions[0][0]
    while made is not None and made.name() in PASSED_ON:
        made = made.next_functions[0][0]
    name = "" if made is None else made.name()
    return name == PLAIN or (name in MEANS and REDUCTION.of(made) == MEAN)
