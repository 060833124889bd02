"""Orders, seeds and workers' draws of the first epochs, each with right ones."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import worker_draws
from safe_launch.guards.checks.epochs import Seeds
from safe_launch.guards.checks.evaluations import Phase
from safe_launch.guards.checks.samplers import Unshuffled
from support.lazy import Lazy

torch = Lazy("torch")
Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed so far by the first of two ranks."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


@pytest.mark.parametrize(
    ("order", "more", "is_found"),
    [
        ("sorted", {}, True),
        ("sorted", {"shuffle": True}, False),
        ("mixed", {}, False),
        ("one", {}, False),
        ("numbers", {}, False),
    ],
)
def test_the_order_of_labels(
    told: Told, order: str, more: Any, monkeypatch: pytest.MonkeyPatch, *, is_found: bool
) -> None:
    """Class by class, without shuffling; not if there is one class, or one for each sample."""
    steps = 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)
    labels = torch.arange(96)
    labels = {"sorted": labels // 24, "mixed": labels % 4, "one": labels * 0}.get(order, labels)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(labels), 8, **more)
    noted = Unshuffled()
    noted.begin(loader, Phase.EVALUATION)
    assert not noted.rows
    noted.begin(loader, Phase.TRAINING)
    head = torch.nn.Embedding(96, 96)
    for (batch,) in loader:
        if noted.rows:
            noted.look(torch.nn.functional.cross_entropy(head(batch), batch))
        steps += 1
    noted.begin(loader, Phase.TRAINING)
    assert len(told()) == is_found


@pytest.mark.parametrize("kind", ["again", "once", "by epoch", "unused", "another"])
def test_seeds(told: Told, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set anew in each epoch; silent if nothing is drawn, or for another optimizer."""
    steps = 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)
    noted, optimizer = Seeds(), SimpleSet()
    waiting: list[Any] = []
    torch.manual_seed(7)
    for epoch in range(3):
        waiting.clear()
        if kind != "once":
            torch.manual_seed(epoch if kind == "by epoch" else 0)
        optimizer = SimpleSet() if kind == "another" else optimizer
        noted.begin(Phase.TRAINING)
        torch.rand(1)
        noted.begun(lambda *asked: waiting.append(asked), Phase.TRAINING)
        ((batches, look),) = waiting or [(0, None)]
        for batch in range(1, 5):
            if kind != "unused":
                torch.rand(1)
            if batch == batches:
                look()
            steps += 1
            if noted.is_waiting:
                noted.step(optimizer)
    assert len(told()) == (kind == "again")


class SimpleSet(SimpleNamespace):
    """An object that can be referred to."""

    __hash__ = object.__hash__


class Noise:
    """Samples by a generator that the data set holds."""

    def __init__(self, kind: str) -> None:
        self.kind, self.chance = kind, random.Random(0)

    def __getitem__(self, place: int) -> float:
        if self.kind == "by place":
            self.chance.seed(place)
        return float(place) if self.kind == "unused" else self.chance.random()


@pytest.mark.parametrize("kind", ["again", "by place", "unused", "seeded", "same"])
def test_draws_of_workers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal states in two epochs, moved alike by other samples."""
    worker = SimpleNamespace(id=1)
    monkeypatch.setattr("torch.utils.data.get_worker_info", lambda: worker)
    boards: list[mmap.mmap] = []
    for epoch in range(2):
        samples = Noise(kind)
        if kind == "seeded":
            samples.chance.seed(epoch)
        fetcher = SimpleNamespace(
            dataset=samples, fetch=lambda places, of=samples: [of[place] for place in places]
        )
        board = mmap.mmap(-1, worker_draws.RECORD * worker_draws.WORKERS)
        worker_draws._watch(fetcher, board)
        assert len(fetcher.fetch([0, 5 + (kind != "same") * epoch])) == 2
        boards.append(board)
    found = worker_draws._repeated(*boards)
    assert found == ("the data set's chance" if kind == "again" else "")
