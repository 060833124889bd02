"""Bounds of rounding errors, for the sweep's engines and the checks of changes."""

from __future__ import annotations

UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Unit roundoff of each dtype."""


def gamma(roundings: int, unit: float) -> float:
    """Bound of the relative error (Higham, Accuracy and Stability, chapter 3)."""
    return (1 + unit) ** roundings - 1
