r"""How far a right result may be off: a bound, from the types' unit roundoff and the additions.

Weights, inputs and gradients are all positive, so no sum cancels, and the usual analysis (Higham,
Accuracy and Stability of Numerical Algorithms, chapter 3) holds for each element: after n roundings
of unit roundoff u its relative error is at most gamma(n, u) = (1 + u)^n - 1.

The roundings on the longest path from a sample to an element of the gradient, in the type of the
computation (products of matrices add up in fp32 and are rounded once, when they are stored):

- a block: the weight is cast, the product stored, the bias added: 3. With an adapter the way
  through it is longer: two casts, two products, the addition of bias and of the two ways: 6.
- the head: a cast and a product: 2. The path goes forward to the loss and back: twice all that.
- the loss: square, mean, half, and a division by the accumulation, each with its derivative: 8.
- the gradient: one addition for each further micro batch and rank, and the division by the ranks;
  the loss scale is a power of two, and exact. A block that runs twice, or a weight that is tied,
  has one addition more.

The sums inside of products have at most `WIDTH` terms in fp32, and are counted with its roundoff.

A step's gradient is a polynomial of the weights with positive coefficients. If these are off by a
share d, it is off by (1 + d)^k - 1, where k is its degree. So weights that an earlier step has left
within their bound add to the bound of the next step. Clipping divides by a norm that is off by no
more than the gradient: (1 + e) / (1 - e) - 1. A weight is off by the rate times the errors of its
gradients so far, and by the casts to the types that it is kept in.
"""

from __future__ import annotations

from dataclasses import dataclass

from safe_launch.checks.between_attempts import gamma

from .cells import Cell
from .models import WIDTH, WORLD

UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Unit roundoff of each dtype."""


@dataclass(frozen=True, slots=True)
class Path:
    """The longest path of a model's forward pass.

    Attributes:
        roundings: in the type of the computation.
        products: products of matrices, and the weights among its factors.
    """

    roundings: int
    products: int


PLAIN, ADAPTED, HEAD = Path(3, 1), Path(7, 2), Path(2, 1)
PARTS = {
    "once": (PLAIN, PLAIN, HEAD),
    "twice": (PLAIN, PLAIN, PLAIN, HEAD),
    "lora": (ADAPTED, ADAPTED, HEAD),
    "lora_twice": (ADAPTED, ADAPTED, PLAIN, HEAD),
    "frozen": (PLAIN, PLAIN, HEAD),
    "tied": (PLAIN, PLAIN, HEAD),
}
"""The parts of each model's path."""


def of_gradient(cell: Cell, weights: float) -> float:
    """The bound of a gradient's relative error.

    Args:
        cell: the trained cell.
        weights: the bound of the weights' relative error, before the step.
    """
    parts = PARTS[cell.model]
    length = 2 * sum(part.roundings for part in parts) + 8
    additions = (cell.accumulation - 1) + (WORLD - 1) + 1 + 1
    inside = 2 * WIDTH * sum(part.products for part in parts)
    degree = 2 * sum(part.products for part in parts)
    low = gamma(length + additions, UNIT[cell.precision])
    single = gamma(inside + additions, UNIT["fp32"])
    error = (1 + low) * (1 + single) * (1 + weights) ** degree - 1
    if cell.clipping == "clipped":
        error = (1 + error) / (1 - error) - 1 if error < 1 else float("inf")
    return error
