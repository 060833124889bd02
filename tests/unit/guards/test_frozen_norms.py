"""Batch norm layers that are frozen, and those that are frozen for a step."""

from __future__ import annotations

from typing import Any

import pytest
from safe_launch.checks.finding import Finding
from safe_launch.guards.checks import modes
from support.lazy import Lazy

torch = Lazy("torch")


@pytest.fixture(name="found")
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What is reported."""
    found: list[Finding] = []
    monkeypatch.setattr(modes, "report", lambda each: found.append(each) if each else None)
    return found


def body(**more: Any) -> Any:
    """A frozen part of a model."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, **more))
    return model.requires_grad_(False)


def test_statistics_that_move(found: list[Finding]) -> None:
    """Those of frozen layers in training mode."""
    modes.look_at_frozen([body()], (), 10, "train.py:3")
    (one,) = found
    assert one.sentence.startswith("frozen layers change: 1 is batch norm in training mode")


def test_statistics_that_stay(found: list[Finding]) -> None:
    """In evaluation mode, without statistics, or with weights that are trained."""
    still = [body().eval(), body(track_running_stats=False), body(momentum=0.0)]
    modes.look_at_frozen([*still, body().requires_grad_(True)], (), 10, "")
    assert found == []


def test_a_critic_that_is_frozen_for_a_step(found: list[Finding]) -> None:
    """Another optimizer trains it in turn."""
    critic = body()
    modes.look_at_frozen([critic], {id(each) for each in critic.parameters()}, 10, "")
    assert found == []
