"""Batch norm layers that are frozen, and those that are frozen for a step."""

from __future__ import annotations

from typing import Any

from safe_launch.guards.checks import evaluations
from support.lazy import Lazy

torch = Lazy("torch")


def body(**more: Any) -> Any:
    """A frozen part of a model."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, **more))
    return model.requires_grad_(False)


def test_statistics_that_move() -> None:
    """Those of frozen layers in training mode."""
    (one,) = evaluations.frozen([body()], ())
    assert one is not None
    assert one.sentence.startswith("frozen layers change: 1 is batch norm in training mode")


def test_statistics_that_stay() -> None:
    """In evaluation mode, without statistics, or with weights that are trained."""
    still = [body().eval(), body(track_running_stats=False), body(momentum=0.0)]
    found = evaluations.frozen([*still, body().requires_grad_(True)], ())
    assert not any(found)


def test_a_critic_that_is_frozen_for_a_step() -> None:
    """Another optimizer trains it in turn."""
    critic = body()
    found = evaluations.frozen([critic], {id(each) for each in critic.parameters()})
    assert not any(found)
