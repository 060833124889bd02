"""Copies of trained models and parts of checkpoints, in small trainings."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import (
    averages,
    dtypes,
    early_steps,
    loaded_parts,
    pretrained,
    resumed_averages,
)
from safe_launch.guards.checks.schedules import schedules
from support.lazy import Lazy
from support.new_worker import begin
from support.tables import table

torch = Lazy("torch")


class Training:
    """A training whose steps are announced as the optimizers' guard does.

    Attributes:
        sent: the messages.
    """

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.step = 0

    def begin(self, model: Any, optimizer: Any | None = None) -> Any:
        """A known model's optimizer, at the beginning of a training."""
        self.sent.clear()
        self.step = 0
        begin().report_to(self.sent.append)
        observations.see_model(model)
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedules.optimizers[optimizer] = SimpleNamespace(steps=0, where="train.py:1")
        return optimizer

    def steps(self, model: Any, optimizer: Any, after: Callable[[], object]) -> None:
        """Steps on random inputs."""
        for _ in range(12):
            self.step += 1
            model(torch.randn(8, 4)).square().mean().backward()
            early_steps.before(optimizer, self.step)
            optimizer.step()
            optimizer.zero_grad()
            after()

    @property
    def said(self) -> list[str]:
        """The findings."""
        return [message.finding.line for message in self.sent if isinstance(message, Found)]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Training:
    """A training with guards of its own."""
    monkeypatch.setenv(VARIABLE, "trained,resumed,precision,saved")
    kind = torch.nn.Module
    for name in ("__setstate__", "load_state_dict"):
        monkeypatch.setattr(kind, name, vars(kind)[name])
    monkeypatch.setattr(
        torch.optim.Optimizer, "load_state_dict", torch.optim.Optimizer.load_state_dict
    )
    for owner, name in (
        (torch.serialization, "load"),
        (torch.random, "set_rng_state"),
        (random, "setstate"),
        (torch.amp.grad_scaler.GradScaler, "load_state_dict"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    averages._copied.clear()
    resumed_averages._made_before.clear()
    dtypes.scalers.clear()
    loaded_parts.loaded.__init__()  # type: ignore[misc]
    module = torch.nn.modules.module
    optimizers = sys.modules["torch.optim.optimizer"]
    for guard, owner in (
        (averages, module),
        (resumed_averages, module),
        (pretrained, module),
        *((loaded_parts, owner) for owner in (torch.serialization, optimizers)),
        *((loaded_parts, owner) for owner in (torch.random, random, torch.amp.grad_scaler)),
    ):
        guard.install(owner)  # type: ignore[attr-defined]
    return Training()


def net() -> Any:
    """A model with batch norm."""
    return torch.nn.Sequential(
        torch.nn.Linear(4, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
    )


def follow(average: Any, model: Any, rate: float, *, with_buffers: bool = False) -> None:
    """An average's update."""
    with torch.no_grad():
        for kept, weight in zip(average.parameters(), model.parameters(), strict=True):
            kept.mul_(1 - rate).add_(weight.to(kept.dtype), alpha=rate)
        if with_buffers:
            for kept, weight in zip(average.buffers(), model.buffers(), strict=True):
                kept.copy_(weight)


@table(
    ("rate", "with_buffers", "is_training", "is_told"),
    [
        (0.1, False, False, True),
        (0.1, True, False, False),
        (0.0, False, False, False),  # a frozen teacher
        (0.1, False, True, False),  # a mean teacher
    ],
)
def test_statistics_of_an_average(
    training: Training, rate: float, with_buffers: bool, is_training: bool, is_told: bool
) -> None:
    """Those of an average that is evaluated, and whose weights have moved."""
    model = net()
    average = deepcopy(model).train(is_training)
    optimizer = training.begin(model)

    def after() -> None:
        follow(average, model, rate, with_buffers=with_buffers)
        with torch.no_grad():
            average(torch.randn(8, 4))

    training.steps(model, optimizer, after)
    assert any("batch norm as it was made" in line for line in training.said) == is_told


@table(
    ("rate", "dtype", "is_told"),
    [(0.001, "bfloat16", True), (0.001, "float32", False), (0.0, "bfloat16", False)],
)
def test_averages_in_half(training: Training, rate: float, dtype: str, is_told: bool) -> None:
    """One that rounds its updates away; not one in float32, nor a frozen reference."""
    model = net()
    average = deepcopy(model).to(getattr(torch, dtype))
    optimizer = training.begin(model)
    training.steps(model, optimizer, lambda: rate and follow(average, model, rate))
    assert any("loses its updates" in line for line in training.said) == is_told


@table(
    ("is_made_first", "rate", "is_told"),
    [(True, 0.01, True), (False, 0.01, False), (True, 0.0, False), (True, 1.0, False)],
)
def test_averages_made_before_a_load(
    training: Training, is_made_first: bool, rate: float, is_told: bool
) -> None:
    """One that follows slowly; not a frozen copy, nor one that is synchronized."""
    model = net()
    average = deepcopy(model)
    model.load_state_dict(net().state_dict())
    if not is_made_first:
        average = deepcopy(model)
    optimizer = training.begin(model)
    training.steps(model, optimizer, lambda: rate and follow(average, model, rate))
    assert any("begins at other weights" in line for line in training.said) == is_told


def saved(path: Path) -> None:
    """A checkpoint with everything."""
    model = net()
    average = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu")
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    drawn = {"python": random.getstate(), "torch": torch.get_rng_state()}
    torch.save({**kept, "ema": average.state_dict(), "scaler": scaler.state_dict(), **drawn}, path)


def test_parts_of_a_checkpoint(training: Training, tmp_path: Path) -> None:
    """Each that isn't used is named, and those that are used aren't."""
    saved(tmp_path / "last.pt")
    for is_used in (False, True):
        kept = torch.serialization.load(tmp_path / "last.pt", weights_only=False)
        model, scaler = net(), torch.amp.GradScaler("cpu")
        dtypes.scalers.add(scaler)
        model.load_state_dict(kept["model"])
        average = deepcopy(model)
        optimizer = training.begin(model)
        optimizer.load_state_dict(kept["optimizer"])
        if is_used:
            average.load_state_dict(kept["ema"])
            scaler.load_state_dict(kept["scaler"])
            torch.random.set_rng_state(kept["torch"])
        training.steps(model, optimizer, partial(follow, average, model, 0.01))
        about = ("loss scale begins anew", "random numbers begin anew", "average begins anew")
        said = " ".join(training.said)
        assert [part in said for part in about] == [not is_used] * 3
        assert "begins at other weights" not in said


def test_a_checkpoint_of_another_training(training: Training, tmp_path: Path) -> None:
    """Its optimizer's state isn't loaded, as for fine-tuning."""
    saved(tmp_path / "last.pt")
    kept = torch.serialization.load(tmp_path / "last.pt", weights_only=False)
    model = net()
    model.load_state_dict(kept["model"])
    average = deepcopy(model)
    dtypes.scalers.add(scaler := torch.amp.GradScaler("cpu"))
    training.steps(model, training.begin(model), lambda: follow(average, model, 0.01))
    assert (training.said, scaler.is_enabled()) == ([], True)
