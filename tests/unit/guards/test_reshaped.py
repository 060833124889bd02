"""Outputs that are reshaped for a loss, with right ones among them."""

from __future__ import annotations

from typing import Any

import pytest
from safe_launch.checks import built
from safe_launch.guards.checks.reshaped import reshaped
from support.lazy import Lazy

torch = Lazy("torch")
ROWS, PLACES, CLASSES = 4, 6, 10


def turned(hidden: Any) -> Any:
    """The output for states that aren't contiguous, as a GRU has them."""
    states = hidden.transpose(0, 1).contiguous().transpose(0, 1)
    return torch.nn.Linear(8, CLASSES)(states)


@pytest.mark.parametrize(
    ("made", "is_found"),
    [
        (lambda z, _: z.reshape(ROWS, CLASSES, PLACES), True),
        (lambda z, _: z.view(-1, CLASSES).view(ROWS, CLASSES, PLACES), True),
        (lambda z, _: z[:, :-1].reshape(ROWS, CLASSES, PLACES - 1), True),
        (lambda z, _: z.bfloat16().reshape(ROWS, CLASSES, PLACES).float(), True),
        (lambda _, h: turned(h).reshape(ROWS, CLASSES, PLACES), True),
        (lambda _, h: turned(h).transpose(1, 2), False),
        (lambda z, _: z.transpose(1, 2), False),
        (lambda z, _: z.transpose(1, 2).contiguous().view(ROWS, CLASSES, 2, 3), False),
        (lambda z, _: z[:, :1].reshape(ROWS, CLASSES, 1), False),
        (lambda z, _: z.reshape(-1, CLASSES), False),
        (lambda _, h: torch.nn.Linear(8, CLASSES * PLACES)(h[:, 0]).view(ROWS, CLASSES, -1), False),
        (lambda _, h: torch.nn.Conv1d(8, CLASSES, 1)(h.mT).view(ROWS, CLASSES, 2, 3), False),
        (lambda _, h: torch.nn.Linear(8, CLASSES)(h.reshape(-1, 8)).view(24, CLASSES), False),
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_classes_that_are_mixed_with_places(made: Any, reduction: str, *, is_found: bool) -> None:
    """Only a view of a linear layer's output without a transposition."""
    hidden = torch.randn(ROWS, PLACES, 8, requires_grad=True)
    output = made(torch.nn.Linear(8, CLASSES)(hidden), hidden)
    labels = torch.zeros(output.shape[:1] + output.shape[2:], dtype=torch.int64)
    loss = torch.nn.functional.cross_entropy(output, labels, reduction=reduction).mean()
    found = built.mixed_classes(reshaped(loss))
    assert (found is not None) == is_found
