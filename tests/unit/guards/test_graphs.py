"""Casts of weights that autocast keeps over steps, and outputs that are reshaped for a loss."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from safe_launch.checks import built
from safe_launch.checks.finding import VARIABLE, Check, Finding
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks.graphs import StaleCasts, reshaped
from support import new_worker
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")
ROWS, PLACES, CLASSES = 4, 6, 10


@table(
    ("outer", "inner", "dtype", "is_stepping", "is_told"),
    [
        ({}, None, "float32", True, True),
        ({}, {}, "float32", True, True),
        (None, {}, "float32", True, False),  # a region for each iteration, with its step
        (None, None, "float32", True, False),
        ({"cache_enabled": False}, None, "float32", True, False),
        ({}, None, "bfloat16", True, False),  # nothing is cast
        ({}, None, "float32", False, False),  # the weights stay as they are
    ],
)
def test_regions_around_steps(
    outer: dict[str, bool] | None,
    inner: dict[str, bool] | None,
    dtype: str,
    is_stepping: bool,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only casts that outlast two updates of their weights are reported, once."""
    monkeypatch.setenv(VARIABLE, Check.PRECISION)
    found, done = _trained(outer, inner, getattr(torch, dtype), is_stepping=is_stepping)
    assert [(each.check, each.step) for each in found] == [(Check.PRECISION, 3)] * is_told
    assert done.is_open is False


def _trained(
    outer: dict[str, bool] | None, inner: dict[str, bool] | None, dtype: Any, *, is_stepping: bool
) -> tuple[list[Finding], StaleCasts]:
    """The findings in six steps of a small model."""
    messages: list[Message] = []
    new_worker.begin().report_to(messages.append)
    steps = 0
    observations.count_steps(lambda: steps)
    casts = StaleCasts()
    model = torch.nn.Linear(4, 4, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with _within(outer):
        for _ in range(6):
            with _within(inner):
                loss = model(torch.ones(2, 4, dtype=dtype)).float().sum()
                if casts.is_open:
                    casts.look(loss)
                loss.backward()
                if is_stepping:
                    optimizer.step()
            steps += 1
    return [each.finding for each in messages if isinstance(each, Found)], casts


def _within(given: dict[str, bool] | None) -> Any:
    """An autocast region with these arguments, or none."""
    return nullcontext() if given is None else torch.autocast("cpu", torch.bfloat16, **given)


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
