"""Buffers of positions: uninitialized, or cast with the weights."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks import layers
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import dtypes, early_steps
from safe_launch.guards.checks import emptied as guard
from safe_launch.guards.checks.schedules import schedules
from support.lazy import Lazy
from support.new_worker import begin
from support.tables import table

torch = Lazy("torch")


def rotary(*, is_persistent: bool = False) -> Any:
    """A model with frequencies, whose module gets the texts."""

    class Rotary(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            values = 1.0 / 10 ** torch.arange(4.0)
            self.register_buffer("inv_freq", values, persistent=is_persistent)

        def forward(self, texts: Any) -> Any:
            return texts

    return torch.nn.Sequential(torch.nn.Linear(8, 8), Rotary())


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The findings at the first steps of a model that a function makes."""
    monkeypatch.setenv(VARIABLE, "trained,precision")
    kind = torch.nn.Module
    monkeypatch.setattr(kind, "to_empty", kind.to_empty)
    guard.install(torch.nn.modules.module)
    early_steps.looking(Check.PRECISION, dtypes.look_at_frequencies)

    def trained(make: Callable[[], Any], shape: tuple[int, ...] = (2, 300, 8)) -> list[str]:
        sent: list[Message] = []
        observations = begin()
        observations.report_to(sent.append)
        model = make()
        observations.see_model(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedules.optimizers[optimizer] = SimpleNamespace(steps=0, where="train.py:1")
        for step in (1, 2):
            early_steps.before(optimizer, step)
            model[1](torch.zeros(shape))
        return [message.finding.line for message in sent if isinstance(message, Found)]

    return trained


def emptied(fill: Callable[[Any], Any] | None = None, **options: Any) -> Callable[[], Any]:
    """A model that is made on the meta device, and filled otherwise afterwards."""

    def make() -> Any:
        with torch.device("meta"):
            model = rotary(**options)
        model.to_empty(device="cpu")
        if fill is not None:
            fill(model[1])
        return model

    return make


def fill_data(module: Any) -> None:
    """Writes without a count."""
    module.inv_freq.data = module.inv_freq.data * 0 + 3


def replace(module: Any) -> None:
    """Computes a new buffer."""
    module.inv_freq = torch.ones(4)


@table(
    ("make", "is_told"),
    [
        (emptied(), True),
        (emptied(lambda module: module.inv_freq.copy_(torch.ones(4))), False),
        (emptied(fill_data), False),
        (emptied(replace), False),
        (emptied(is_persistent=True), False),  # a checkpoint has it
        (rotary, False),
    ],
)
def test_buffers_that_nothing_writes(
    said: Callable[..., list[str]], make: Callable[[], Any], is_told: bool
) -> None:
    """They are as to_empty() has made them."""
    found = said(make)
    assert ["uninitialized: 1.inv_freq" in line for line in found] == [True] * is_told


@table(
    ("make", "shape", "is_told"),
    [
        (lambda: rotary().bfloat16(), (2, 300, 8), True),
        (lambda: rotary().bfloat16(), (300, 200, 512), False),
        (lambda: rotary().half(), (2, 300, 8), False),
        (rotary, (2, 300, 8), False),
    ],
)
def test_frequencies_in_half_precision(
    said: Callable[..., list[str]], make: Callable[[], Any], shape: tuple[int, ...], is_told: bool
) -> None:
    """With more positions than the dtype has whole numbers in a row."""
    found = said(make, shape)
    assert ["1.inv_freq, are in bfloat16" in line for line in found] == [True] * is_told


def test_frequencies_on_plain_values() -> None:
    """float16 counts further, and float32 far enough."""
    assert layers.coarse("inv_freq", "float16", 4096) is not None
    assert layers.coarse("inv_freq", "float32", 1 << 20) is None
    assert layers.uninitialized([]) is None
