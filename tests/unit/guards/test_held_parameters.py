"""Finding an optimizer whose parameters were replaced by `fully_shard`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import held_parameters
from support.lazy import Lazy

torch = Lazy("torch")

Step = Callable[[Any], list[str]]
Shard = Callable[[Any], Any]


def fully_shard(module: Any) -> Any:
    """A stand-in for torch's, which replaces the parameters."""
    for each in module if isinstance(module, list) else [module]:
        for part in each.modules():
            for name, old in list(part.named_parameters(recurse=False)):
                if not hasattr(old, "sharded"):
                    new = torch.nn.Parameter(old.detach().clone(), old.requires_grad)
                    new.sharded = True  # type: ignore[attr-defined]
                    setattr(part, name, new)
    return module


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> tuple[Shard, Step]:
    """Functions that shard, step, and return the lines found so far."""
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    told: list[Message] = []
    public = ModuleType(held_parameters.TORCHS)
    observations.report_to(told.append)
    public.fully_shard = fully_shard  # type: ignore[attr-defined]
    held_parameters.install(public)

    def step(optimizer: Any) -> list[str]:
        held_parameters.look(optimizer, 1)
        optimizer.step()
        return [message.finding.line for message in told if isinstance(message, Found)]

    return public.fully_shard, step


World = tuple[Shard, Step]


def trained(model: Any, optimizer: Any) -> Any:
    """The optimizer before its step, with gradients."""
    model(torch.ones(1, 2)).sum().backward()
    return optimizer


def test_all_of_it_is_replaced(world: World) -> None:
    """Reported once with the call's line; frozen parameters don't count."""
    shard, step = world
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[0].requires_grad_(False)
    early = torch.optim.SGD(model.parameters())
    shard([model[0], model[1]])
    shard(model)
    (said,) = step(trained(model, early))
    assert said.startswith("check trained: SGD trains nothing: fully_shard has replaced all of ")
    assert "test_held_parameters.py:" in said
    assert step(trained(model, early)) == [said]


def made_after(shard: Shard) -> Any:
    """An optimizer made after sharding."""
    model = shard(torch.nn.Linear(2, 2))
    return trained(model, torch.optim.SGD(model.parameters()))


def of_another_model(shard: Shard) -> Any:
    """The optimizer of an unsharded discriminator."""
    shard(torch.nn.Linear(2, 2))
    return torch.optim.SGD(torch.nn.Linear(2, 2).parameters())


def of_parts(shard: Shard) -> Any:
    """The optimizer also holds an unsharded head."""
    body, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    both = torch.optim.SGD([*body.parameters(), *head.parameters()])
    shard(body)
    return both


def given_the_new_ones(shard: Shard) -> Any:
    """The optimizer gets the new parameters, as from accelerate."""
    model = torch.nn.Linear(2, 2)
    early = torch.optim.SGD(model.parameters())
    early.param_groups[0]["params"] = list(shard(model).parameters())
    return early


def with_gradients(shard: Shard) -> Any:
    """The old parameters are used elsewhere and have gradients."""
    model = torch.nn.Linear(2, 2)
    early = trained(model, torch.optim.SGD(model.parameters()))
    shard(model)
    return early


def without_any(_shard: Shard) -> Any:
    """A script without sharding."""
    return torch.optim.SGD(torch.nn.Linear(2, 2).parameters())


@pytest.mark.parametrize(
    "case",
    [made_after, of_another_model, of_parts, given_the_new_ones, with_gradients, without_any],
)
def test_whoever_trains_is_left_alone(case: Callable[[Shard], Any], world: World) -> None:
    """Other sharded modules don't matter."""
    shard, step = world
    assert step(case(shard)) == []


def test_a_torch_without_the_second_version() -> None:
    """Without FSDP2 nothing is wrapped."""
    module = ModuleType(held_parameters.TORCHS)
    held_parameters.install(module)
    assert not hasattr(module, "fully_shard")


def test_what_is_no_module_is_torchs_to_refuse(world: World) -> None:
    """The guard raises no errors for a wrong or missing module."""
    shard, _ = world
    with pytest.raises(AttributeError, match="'str' object has no attribute 'modules'"):
        shard("model")
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        shard()  # type: ignore[call-arg]
