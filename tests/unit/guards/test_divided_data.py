"""Each rank's report of its training samples."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import VARIABLE
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Message
from safe_launch.guards import data_parallel, divided_data
from support.lazy import Lazy

torch = Lazy("torch")


Sent = Callable[[], list[Compared]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The reports from one of two ranks."""
    messages: list[Message] = []
    observations.report_to(messages.append)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(VARIABLE, "data")
    data = torch.utils.data
    for name, kind, method in (
        ("torch.utils.data.dataloader", data.DataLoader, "__iter__"),
        ("torch.utils.data.distributed", data.DistributedSampler, "__init__"),
    ):
        monkeypatch.setattr(kind, method, getattr(kind, method))
        module = ModuleType(name)
        setattr(module, kind.__name__, kind)
        divided_data.install(module)
    return lambda: [each for each in messages if isinstance(each, Compared)]


def loader(**options: Any) -> Any:
    """Eight samples in batches of two."""
    numbers = torch.utils.data.TensorDataset(torch.arange(16.0).reshape(8, 2))
    return torch.utils.data.DataLoader(numbers, batch_size=2, **options)


def trained(whole: Any, *, ranks: int = 2, is_trained: bool = True, **part: int) -> list[float]:
    """The first numbers of a DDP model's input, whole or from an index on."""
    model = torch.nn.Identity().train(is_trained)
    model.process_group = SimpleNamespace(size=lambda: ranks)
    data_parallel.wrapped.add(model)
    try:
        found = [model(batch[0][part.get("start", 0) :]) for batch in whole]
    finally:
        data_parallel.wrapped.discard(model)
    return [each.flatten()[0].item() for each in found]


def test_the_first_batch_of_a_loader_that_nobody_divides(sent: Sent) -> None:
    """Reported once a line; every batch arrives, and the loop's own split differs."""
    for _ in range(2):
        assert trained(loader()) == [0, 4, 8, 12]
    (first,) = sent()
    assert first.what is Shared.BATCH
    assert "test_divided_data.py:" in first.place
    begun = loader()
    next(iter(begun))  # another line
    assert len(sent()) == 1


def test_a_loop_takes_the_ranks_part_itself(sent: Sent) -> None:
    """The model's inputs are compared."""
    trained(loader(), start=1)
    (part,) = sent()
    batch = torch.arange(4.0).reshape(2, 2)
    assert part.value == divided_data.digest_of(batch[1:])
    assert part.value != divided_data.digest_of(batch)


def test_loaders_that_say_nothing(sent: Sent) -> None:
    """Sharded loaders, evaluations, small data, subgroups, constant batches."""
    data = torch.utils.data
    half = data.DistributedSampler(range(8), num_replicas=2, rank=0, shuffle=False)
    trained(loader(sampler=half))
    with torch.no_grad():
        trained(loader())
    trained(loader(), is_trained=False)
    trained(loader(), ranks=4)
    trained(data.DataLoader(data.TensorDataset(torch.zeros(8, 2)), batch_size=2))
    trained(data.DataLoader(data.TensorDataset(torch.rand(8, 2)), batch_size=8))
    list(loader())
    assert not sent()


def test_an_evaluation_comes_first(sent: Sent) -> None:
    """Its loader isn't sharded; the training's is."""
    model = torch.nn.Identity()
    model.process_group = SimpleNamespace(size=lambda: 2)
    data_parallel.wrapped.add(model)
    with torch.no_grad():
        for (batch,) in loader():
            model.eval()(batch)
    half = torch.utils.data.DistributedSampler(range(8), num_replicas=2, rank=0, shuffle=False)
    for (batch,) in loader(sampler=half):
        model.train()(batch)
    data_parallel.wrapped.discard(model)
    assert not sent()


def test_seeds_of_samplers(sent: Sent) -> None:
    """Seeds of samplers that shuffle and shard among all ranks."""
    kind = torch.utils.data.DistributedSampler
    kind(range(8), num_replicas=2, rank=1, seed=5, shuffle=False)
    kind(range(8), num_replicas=1, rank=0, seed=5)
    assert not sent()
    kind(range(8), num_replicas=2, rank=1, seed=5)
    (seed,) = sent()
    assert (seed.what, seed.value) == (Shared.SEED, "5")


def test_seeds_of_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed of each rank's own sampler, with several processes."""
    monkeypatch.setenv(VARIABLE, "data")
    messages: list[Message] = []
    observations.report_to(messages.append)
    seedable = type("SeedableRandomSampler", (), {"initial_seed": 7})
    shard = type("DataLoaderShard", (), {"sampler": seedable()})
    other = type("DataLoaderShard", (), {})
    parts = {
        "get_sampler": lambda loader: loader.sampler,
        "SeedableRandomSampler": seedable,
        "DataLoaderShard": shard,
    }
    monkeypatch.setitem(sys.modules, "accelerate.data_loader", SimpleNamespace(**parts))

    class Accelerator:
        num_processes = 2

        def prepare_data_loader(self, loader: Any) -> Any:
            return loader

    module = ModuleType("accelerate.accelerator")
    module.Accelerator = Accelerator  # type: ignore[attr-defined]
    divided_data.install(module)
    Accelerator().prepare_data_loader(other())
    alone = Accelerator()
    alone.num_processes = 1
    alone.prepare_data_loader(shard())
    assert not messages
    Accelerator().prepare_data_loader(shard())
    (told,) = messages
    assert isinstance(told, Compared)
    assert (told.what, told.value) == (Shared.SEED, "7")


def test_a_stream_that_nobody_divides(sent: Sent) -> None:
    """Also under an engine; not if the ranks or accelerate split it."""

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Any:
            return iter(torch.arange(16.0).reshape(8, 2))

    engine = torch.nn.Identity()
    data_parallel.others.add(engine)
    given = torch.utils.data.DataLoader(Stream(), batch_size=2)
    prepared = type("Shard", (torch.utils.data.DataLoader,), {"__module__": "accelerate.data"})
    for batch in prepared(Stream(), batch_size=2):
        engine(batch)
    assert not sent()
    for batch in given:
        engine(batch)
    (first,) = sent()
    assert first.what is Shared.STREAM


def test_subsets_that_are_divided(sent: Sent) -> None:
    """Their samples are reported; a rank's own subset isn't."""
    subset = torch.utils.data.Subset(range(8), [5, 1, 3, 2])
    kind = torch.utils.data.DistributedSampler
    list(kind(subset, num_replicas=1, rank=0, shuffle=False))
    assert not sent()
    values = set()
    for indices in ([5, 1, 3, 2], [5, 1, 3, 4]):
        subset.indices = indices
        list(kind(subset, num_replicas=2, rank=0, shuffle=False))  # on one line
        values |= {each.value for each in sent() if each.what is Shared.SUBSET}
    assert len(values) == 1
