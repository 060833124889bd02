"""How far roundings take a result off: what the sweep judges engines by, and checks our changes."""

from __future__ import annotations

UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""The unit roundoff of each type."""


def gamma(roundings: int, unit: float) -> float:
    """The relative error after so many roundings (Higham, Accuracy and Stability, chapter 3)."""
    return (1 + unit) ** roundings - 1
