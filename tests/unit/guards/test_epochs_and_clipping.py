"""Epochs in the same order and clipping without gradients, each with a clean twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import Observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards import data_parallel, fsdp
from safe_launch.guards.checks import clipping, epochs, scalers, schedules
from safe_launch.guards.checks.optimizers import Watch
from support.lazy import Lazy

torch = Lazy("torch")
Told = Callable[[], list[str]]


@pytest.fixture
def observations(monkeypatch: pytest.MonkeyPatch) -> Observations:
    """The observations of the first of two ranks."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    return Observations()


@pytest.fixture
def told(observations: Observations) -> Told:
    """The lines printed so far."""
    sent: list[Message] = []
    observations.report_to(sent.append)
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


@pytest.fixture
def model() -> Iterator[Any]:
    """A model on sharded samples."""
    found = torch.nn.Linear(1, 1)
    data_parallel.others.add(found)
    yield found
    data_parallel.others.discard(found)


def test_each_epoch_in_the_first_ones_order(
    observations: Observations, told: Told, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent if the epoch is set, without shuffling or training, or in evaluation."""
    data, steps = torch.utils.data, 0
    monkeypatch.setattr(data.DataLoader, "__iter__", data.DataLoader.__iter__)
    module = ModuleType("torch.utils.data.dataloader")
    module.DataLoader = data.DataLoader  # type: ignore[attr-defined]
    epochs.install(module, observations)
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)

    def two_epochs(*, shuffles: bool = True, sets: bool = False) -> None:
        nonlocal steps
        sampler = data.DistributedSampler(range(8), num_replicas=2, rank=0, shuffle=shuffles)
        for epoch in range(2):
            if sets:
                sampler.set_epoch(epoch)
            list(data.DataLoader(range(8), sampler=sampler))
            steps += 4

    two_epochs(sets=True)
    two_epochs(shuffles=False)
    with torch.no_grad():
        two_epochs()
    model.eval()
    two_epochs()
    model.train()
    assert not told()
    two_epochs()
    (said,) = told()
    assert "its epoch is still 0 (it may be meant)" in said


def test_nothing_to_clip(observations: Observations, told: Told, model: Any) -> None:
    """An engine holds the gradients itself."""
    clip = clipping._looking(torch.nn.utils.clip_grad_norm_, observations)
    model(torch.ones(1, 1)).sum().backward()
    norm = clip(model.parameters(), 0.1)
    assert norm > 1
    assert model.weight.grad.abs() < 0.1
    assert not told()
    model.zero_grad()
    clip(model.parameters(), 0.1)
    model.gradient_clipping = float
    clip(list(model.parameters()), 0.1)
    (said, by_engine) = told()
    assert "none of 2 parameters has a gradient there (it may be meant)" in said
    assert "as DeepSpeed holds them [" in by_engine
    assert "gradient_clipping" in by_engine


def test_scaled_gradients(
    observations: Observations, told: Told, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unscaled gradients and disabled scalers are no finding."""
    kind = torch.amp.GradScaler
    for name in ("scale", "unscale_", "step", "update"):
        monkeypatch.setattr(kind, name, getattr(kind, name))
    module = ModuleType(*scalers.HOOKED)
    module.GradScaler = kind  # type: ignore[attr-defined]
    scalers.install(module, observations)
    clip = clipping._looking(torch.nn.utils.clip_grad_norm_, observations)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for unscales, is_on in ((True, True), (False, False), (False, True)):
        assert not told()
        scaler = kind("cpu", enabled=is_on)
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        if unscales:
            scaler.unscale_(optimizer)
        clip(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    (said,) = told()
    assert "still multiplied by the loss scale" in said


def test_clipping_before_another_pass(observations: Observations, told: Told, model: Any) -> None:
    """Silent if gradients were used or cleared, if the pass adds nothing, or without a limit."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = Watch(optimizer, observations)
    seen = schedules.schedules_of(observations)
    backward = schedules._counted(torch.autograd.backward, seen, observations)
    frozen = torch.nn.Linear(1, 1)

    def two_passes(between: Callable[[], object], limit: float = 0.1, other: Any = model) -> None:
        clip = clipping._looking(torch.nn.utils.clip_grad_norm_, observations)
        backward(model(torch.ones(1, 1)).sum())
        clip(model.parameters(), limit)
        between()
        backward(other(torch.ones(1, 1)).sum())
        optimizer.zero_grad()

    def stepped() -> None:
        watch.before(optimizer, (), {})

    two_passes(stepped)
    two_passes(optimizer.zero_grad)
    two_passes(lambda: optimizer.zero_grad(set_to_none=False))
    two_passes(object, other=frozen)
    two_passes(object, limit=float("inf"))
    assert not told()
    two_passes(object)
    (said,) = told()
    assert "gradients are clipped before the step's last backward pass" in said


def test_shards_that_are_clipped_alone(observations: Observations, told: Told) -> None:
    """Silent if FSDP 1 leaves the parameters whole, or nothing is limited."""
    model = torch.nn.Linear(1, 1)
    clip = clipping._looking(torch.nn.utils.clip_grad_norm_, observations)
    model(torch.ones(1, 1)).sum().backward()
    fsdp.flat.add(model)
    model.sharding_strategy = SimpleNamespace(name="NO_SHARD")
    clip(model.parameters(), 0.1)
    model.sharding_strategy = SimpleNamespace(name="HYBRID_SHARD")
    clip(model.parameters(), float("inf"))
    assert not told()
    clip(model.parameters(), 0.1)
    (said,) = told()
    assert "clips each rank's shards by their own norm: " in said
