"""Data sets and loaders that begin: weights, subsets, orders and draws, each with right ones."""

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
from safe_launch.guards.checks.data_sets import DataSets
from safe_launch.guards.checks.epochs import Seeds
from safe_launch.guards.checks.evaluations import Phase
from safe_launch.guards.checks.samplers import Unshuffled, is_by_rank, is_divided, samplers_of
from support.lazy import Lazy

torch = Lazy("torch")
Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed so far by the first of two ranks."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


class Staged:
    """A data set with an epoch, and a counter that no sample is made with."""

    def __init__(self) -> None:
        self.epoch = self.seen = 0
        self.transform: Any = str

    def __len__(self) -> int:
        return 32

    def __getitem__(self, place: int) -> int:
        return self._drawn(place)

    def _drawn(self, place: int) -> int:
        return place + self.epoch


def test_weights_for_classes(told: Told) -> None:
    """Right with one for each sample; by accelerate's batch sampler as well."""
    data = torch.utils.data
    samples, watched = data.TensorDataset(torch.zeros(32)), DataSets()
    for count in (32, 4):
        sampler = data.WeightedRandomSampler(torch.ones(count), 16)
        loader = data.DataLoader(samples, 4, sampler=sampler)
        watched.begin(loader, Phase.EVALUATION)
        watched.begin(loader, Phase.TRAINING)
        watched.begin(loader, Phase.TRAINING)
    (said,) = told()
    assert "has 4 weights for 32 samples" in said
    assert "may be meant" not in said


@pytest.mark.parametrize(
    ("name", "kind", "is_found"),
    [
        ("epoch", "persistent", True),
        ("epoch", "new", False),
        ("epoch", "restarted", False),
        ("epoch", "shared", False),
        ("seen", "persistent", False),
    ],
)
def test_attributes_that_workers_keep(told: Told, name: str, kind: str, *, is_found: bool) -> None:
    """Only those that samples are made with, of persistent workers, and none is shared."""
    watched, samples = DataSets(), Staged()
    persists = kind != "new"
    loader = torch.utils.data.DataLoader(samples, num_workers=1, persistent_workers=persists)
    if kind == "shared":
        samples.transform = torch.zeros(1).share_memory_()
    iterator, other = Staged(), Staged()
    watched.begun(loader, iterator, Phase.TRAINING)
    watched.begun(loader, iterator, Phase.TRAINING)
    assert not told()
    setattr(samples, name, 1)
    watched.begun(loader, other if kind == "restarted" else iterator, Phase.TRAINING)
    assert len(told()) == is_found


def split(watched: DataSets, samples: Any) -> tuple[Any, Any]:
    """Two subsets of a data set."""
    subset = torch.utils.data.Subset
    trained, held = subset(samples, range(24)), subset(samples, range(24, 32))
    watched.split(trained)
    watched.split(held)
    return trained, held


def begin(watched: DataSets, *samples: Any) -> None:
    """A training with the first data set, and an evaluation with the second."""
    for each, phase in zip(samples, (Phase.TRAINING, Phase.EVALUATION), strict=True):
        watched.begin(torch.utils.data.DataLoader(each), phase)


def test_a_transform_set_for_both(told: Told) -> None:
    """Silent if it is set before the split, was none, or is set for each phase."""
    watched = DataSets()
    trained, held = split(watched, Staged())
    begin(watched, trained, held)
    without = Staged()
    without.transform = None
    parts = split(watched, without)
    without.transform = int
    begin(watched, *parts)
    watched.begin(torch.utils.data.DataLoader(trained), Phase.TRAINING)
    held.dataset.transform = int
    watched.begin(torch.utils.data.DataLoader(held), Phase.EVALUATION)
    assert not told()
    begin(watched, trained, held)
    (said,) = told()
    assert "whose transform was set after they were made" in said


def test_samples_in_training_and_evaluation(told: Told) -> None:
    """Silent for a part of the training's samples, other data, and parts that are apart."""
    watched, subset, samples = DataSets(), torch.utils.data.Subset, Staged()
    trained = subset(samples, torch.arange(24))
    for held in (subset(samples, [1, 2]), subset(Staged(), range(20, 30)), subset(samples, [30])):
        begin(watched, trained, held)
    assert not told()
    begin(watched, trained, subset(samples, range(20, 30)))
    (said,) = told()
    assert "4 of the evaluation's 10 samples" in said


class OfRank:
    """A sampler of one rank's part."""

    def __init__(self, rank: int = 1, world_size: int = 2) -> None:
        self.rank, self.world_size = rank, world_size


class Asking:
    """A stream that asks for its part."""

    def __iter__(self) -> Any:
        yield from (place for place in range(get_rank(), 32, get_world_size()))


class Seeded:
    """A stream that each rank draws otherwise."""

    def __iter__(self) -> Any:
        yield from (get_rank() + place for place in range(32))


def get_rank() -> int:
    """Of a script."""
    return 0


get_world_size = get_rank


@pytest.mark.parametrize(
    ("maker", "is_so"),
    [
        (OfRank(), True),
        (OfRank(0, 1), False),
        (OfRank(0), False),
        (Asking(), True),
        (Seeded(), False),
        (None, False),
        ([1], False),
    ],
)
@pytest.mark.usefixtures("told")
def test_makers_of_a_ranks_part(maker: Any, *, is_so: bool) -> None:
    """By their attributes, or by the names in their code."""
    assert is_by_rank(maker, 2) == is_so


@pytest.mark.usefixtures("told")
def test_samplers() -> None:
    """A loader's sampler is unused if a script gives it a batch sampler."""
    data = torch.utils.data
    sampler = data.DistributedSampler(range(8), num_replicas=2, rank=0)
    assert is_divided(data.DataLoader(range(8), sampler=sampler))
    alone = data.DistributedSampler(range(8), num_replicas=1, rank=0)
    assert not is_divided(data.DataLoader(range(8), sampler=alone))
    own = [[0, 1], [2, 3]]
    assert list(samplers_of(data.DataLoader(range(8), batch_sampler=own))) == [own, None]


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
