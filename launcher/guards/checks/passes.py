"""Checks whether losses of a plain loop are undivided means, and of what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from ...checks import built, divided
from ...core.private_names import REDUCTION
from ...evidence.observations import observations
from ..callers import FRAMEWORKS, is_called_by, user_place
from . import scalers
from .reporting import report, report_here

PASSED_ON = ("_DDPSinkBackward", "ToCopyBackward0", "ViewBackward0")
"""Autograd nodes to skip between a loss and the function that computed it."""
PLAIN = "MeanBackward0"
MEANS = tuple(
    f"{name}Backward0"
    for name in (
        *("NllLoss", "NllLoss2D", "MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss"),
        *("BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
    )
)
"""Autograd nodes of torch losses that are means by default."""
AROUND = ("MulBackward0", "DivBackward0", PLAIN, *PASSED_ON)
"""Autograd nodes of a script's arithmetic on a loss."""
TWICE = {
    "LogSoftmaxBackward0": ("SoftmaxBackward0", "cross_entropy takes the softmax of a softmax"),
    "BinaryCrossEntropyWithLogitsBackward0": (
        "SigmoidBackward0",
        "binary_cross_entropy_with_logits takes the sigmoid of a sigmoid",
    ),
}
"""By a loss's first node on the output: the model's redundant node, and the fault."""
SHAPES = (
    *("ViewBackward0", "UnsafeViewBackward0", "TransposeBackward0", "PermuteBackward0"),
    *("SqueezeBackward1", "SelectBackward0", "SliceBackward0", "ToCopyBackward0", "CloneBackward0"),
    *("ReshapeAliasBackward0", "TBackward0", "_DDPSinkBackward"),
)
"""Autograd nodes that keep an output's values."""
MEAN = 1
"""torch's number of that reduction (torch/nn/_reduction.py)."""


class Passes:
    """The backward passes of the first steps.

    Attributes:
        is_open: whether to inspect further passes.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._seen: Counter[tuple[int, str]] = Counter()  # by steps done, and the user's line
        self._is_first = True

    def look(self, tensors: Any, gradients: Any = None) -> None:
        """Inspects a backward pass's tensors before it begins."""
        steps = observations.steps_of_all() or 0
        self.is_open = steps <= divided.STEPS and not is_called_by(*FRAMEWORKS)
        if self._is_first:
            self._is_first = False
            report_here(built.normalized_twice(_done_twice(tensors)))
        is_mean = False
        with observations.going_on():
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
                report(divided.summed(counts, where))


def _done_twice(loss: Any) -> str:
    """The normalization that both loss and model apply to an output; empty if none."""
    made = before(getattr(loss, "grad_fn", None), AROUND)
    if made is not None and made.name().startswith("NllLoss"):
        made = made.next_functions[0][0]
    redundant, fault = TWICE.get("" if made is None else made.name(), ("", ""))
    output = before(made.next_functions[0][0], SHAPES) if fault else None
    return fault if output is not None and output.name() == redundant else ""


def before(made: Any, names: Collection[str]) -> Any:
    """The first node with another name, from this one on."""
    while made is not None and made.name() in names:
        made = made.next_functions[0][0]
    return made


def _is_mean(loss: Any) -> bool:
    """Whether a loss is an unscaled mean from torch."""
    made = getattr(loss, "grad_fn", None)
    if made is not None and made.name() == "MulBackward0" and scalers.scaling:
        made = made.next_functions[0][0]
    made = before(made, PASSED_ON)
    name = "" if made is None else made.name()
    return name == PLAIN or (name in MEANS and REDUCTION.of(made) == MEAN)
