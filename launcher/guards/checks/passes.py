"""Looks at the losses of a plain loop: whether each is a mean that nothing divides, and of what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from ...checks import built, divided
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
AROUND = ("MulBackward0", "DivBackward0", PLAIN, *PASSED_ON)
"""What a script does with a loss, and what carries it."""
TWICE = {
    "LogSoftmaxBackward0": ("SoftmaxBackward0", "cross_entropy takes the softmax of a softmax"),
    "BinaryCrossEntropyWithLogitsBackward0": (
        "SigmoidBackward0",
        "binary_cross_entropy_with_logits takes the sigmoid of a sigmoid",
    ),
}
"""By what a loss does first to the output: what the model mustn't have done, and the fault."""
SHAPES = (
    *("ViewBackward0", "UnsafeViewBackward0", "TransposeBackward0", "PermuteBackward0"),
    *("SqueezeBackward1", "SelectBackward0", "SliceBackward0", "ToCopyBackward0", "CloneBackward0"),
    *("ReshapeAliasBackward0", "TBackward0", "_DDPSinkBackward"),
)
"""What leaves an output's values as they are."""
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
        self._is_first = True

    def look(self, tensors: Any, gradients: Any = None) -> None:
        """Looks at what is about to go backward."""
        steps = self._observations.steps_of_all() or 0
        self.is_open = steps <= divided.STEPS and not is_called_by(*MAKERS)
        if self._is_first:
            self._is_first = False
            tell(self._observations, built.normalized_twice(_done_twice(tensors), user_place()))
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


def _done_twice(loss: Any) -> str:
    """What a loss does to an output to which the model has done it already; empty for nothing."""
    made = _before(getattr(loss, "grad_fn", None), AROUND)
    if made is not None and made.name().startswith("NllLoss"):
        made = made.next_functions[0][0]
    before, fault = TWICE.get("" if made is None else made.name(), ("", ""))
    output = _before(made.next_functions[0][0], SHAPES) if fault else None
    return fault if output is not None and output.name() == before else ""


def _before(made: Any, names: Collection[str]) -> Any:
    """The first step back from here that isn't one of these."""
    while made is not None and made.name() in names:
        made = made.next_functions[0][0]
    return made


def _is_mean(loss: Any) -> bool:
    """Whether a loss is one of torch's means, as it is."""
    made = getattr(loss, "grad_fn", None)
    if made is not None and made.name() == "MulBackward0" and scalers.scaling:
        made = made.next_functions[0][0]
    made = _before(made, PASSED_ON)
    name = "" if made is None else made.name()
    return name == PLAIN or (name in MEANS and REDUCTION.of(made) == MEAN)
