"""Weights that a script loads before its first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import early_steps, pretrained
from safe_launch.guards.checks.schedules import schedules
from support.lazy import Lazy
from support.new_worker import begin
from support.tables import table

torch = Lazy("torch")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[Any], Any]], list[str]]]:
    """The findings at the first steps of a model that is made ready by a function."""
    monkeypatch.setenv(VARIABLE, "saved")
    kind = torch.nn.Module
    monkeypatch.setattr(kind, "load_state_dict", kind.load_state_dict)
    pretrained.install(torch.nn.modules.module)

    def trained(ready: Callable[[Any], Any]) -> list[str]:
        pretrained._loads.clear()
        sent: list[Message] = []
        observations = begin()
        observations.report_to(sent.append)
        model = net()
        ready(model)
        observations.see_model(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in (1, 2):
            early_steps.before(optimizer, step)
        return [message.finding.line for message in sent if isinstance(message, Found)]

    yield trained
    early_steps._looks.pop(pretrained.look)


def net() -> Any:
    """A model."""
    return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))


def renamed() -> dict[str, Any]:
    """The weights of such a model, of which one layer has its name."""
    states = net().state_dict().items()
    return {name if name[0] == "3" else f"layers.{name}": weight for name, weight in states}


def drawn(model: Any, layers: int = 4) -> None:
    """Draws the weights of some layers anew."""
    for layer in model[:layers]:
        layer.reset_parameters()


def in_turn(*calls: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Several calls."""

    def every(model: Any) -> None:
        for call in calls:
            call(model)

    return every


def load(model: Any) -> None:
    """Loads pretrained weights."""
    model.load_state_dict(net().state_dict())


def load_renamed(model: Any) -> None:
    """Loads those of which most have other names."""
    model.load_state_dict(renamed(), strict=False)


def noise(model: Any) -> None:
    """Shrinks the weights, and adds noise to them."""
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(0.4).add_(torch.randn_like(param) * 0.02)


@table(
    ("ready", "words"),
    [
        (load_renamed, "other names"),
        (in_turn(load_renamed, load), ""),  # it was a try
        (load, ""),
        (drawn, ""),
        (in_turn(load, drawn), "are overwritten"),
        (in_turn(drawn, load), ""),
        (in_turn(load, drawn, load), ""),
        (in_turn(load, lambda model: drawn(model, 1)), ""),  # a head
        (in_turn(load, noise), ""),
        (in_turn(load, lambda model: model.to(torch.bfloat16)), ""),
    ],
)
def test_loads(said: Callable[..., list[str]], ready: Callable[[Any], Any], words: str) -> None:
    """Names that don't match, and weights drawn after the load."""
    found = said(ready)
    assert len(found) == bool(words)
    assert all(words in line for line in found)


@pytest.mark.parametrize("is_copied", [True, False])
def test_an_optimizer_that_takes_a_load_back(
    said: Callable[..., list[str]], is_copied: bool
) -> None:
    """It has made a copy of the weights before the load, as for bfloat16."""
    kept: list[Any] = []

    def ready(model: Any) -> None:
        kept.append(torch.optim.SGD(model.parameters(), lr=0.1))
        schedules.optimizers[kept[0]] = kept[0]
        copies = [param.detach().clone() for param in model.parameters()]
        load(model)

        def step(_optimizer: Any, number: int) -> None:
            if number == 1 and is_copied:
                for param, values in zip(model.parameters(), copies, strict=True):
                    param.data.copy_(values)

        kept.append(step)
        early_steps.looking(Check.SAVED, step)

    found = said(ready)
    early_steps._looks.pop(kept[1])
    assert ["taken back the loaded weights" in line for line in found] == [True] * is_copied
