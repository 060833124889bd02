"""A rank's verdict on a cell: equal to the truth, wrong by how much, or failing to run."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import torch
from torch import Tensor

from .cells import Cell
from .engines import train
from .truth import Expected, Step, truth_of

MOST = 200
"""Characters of an error's message that are kept."""
FOLDERS = re.compile(r"[^\s('\"]*/(?=site-packages/)")
"""The folders of an environment, which differ between machines."""


def judge(cell: Cell, rank: int) -> dict[str, Any]:
    """Trains a cell and compares it: its outcome, and the numbers behind it."""
    truth = truth_of(cell)
    steps = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step, expected in zip(train(cell, truth, rank), truth.steps, strict=True):
                steps.append(compared(step, expected))
    except Exception as error:  # any exception of a library is the result
        text = FOLDERS.sub("", f"{type(error).__name__}: {error}").splitlines()
        return {"outcome": "raises", "why": " ".join(text[0].split())[:MOST], "off": 0}
    off = max(step["off"] for step in steps)
    if off <= 1:
        return {"outcome": "equal", "off": off}
    numbers = {name: [step[name] for step in steps] for name in ("gradient", "weights")}
    return {"outcome": "wrong", "off": off, **numbers}


def compared(step: Step, expected: Expected) -> dict[str, float]:
    """A step against its expected values.

    `gradient` is the norm of the gradient in units of the right one, `weights` the largest relative
    error of a weight, `off` the largest error of either in units of its bound.
    """
    right = expected.step
    errors = [
        abs(step.norm / right.norm - 1) / expected.gradient,
        abs(step.total / right.total - 1) / expected.gradient,
    ]
    names = right.weights.keys()
    assert step.weights.keys() == names, sorted(step.weights)
    errors += [
        _worst(step.weights[name], right.weights[name], expected.bounds[name]) for name in names
    ]
    off = max(error if math.isfinite(error) else 1e9 for error in errors)
    weights = max(
        float(((step.weights[name] - right.weights[name]) / right.weights[name]).abs().max())
        for name in names
    )
    return {
        "gradient": _digits(step.norm / right.norm),
        "weights": _digits(weights),
        "off": _digits(off),
    }


def _worst(value: Tensor, right: Tensor, bound: Tensor) -> float:
    return float(torch.nan_to_num((value - right).abs() / bound, nan=math.inf).max())


def _digits(value: float) -> float:
    return float(f"{value:.4g}") if math.isfinite(value) else 1e9
