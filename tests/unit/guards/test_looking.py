"""How loaders, calls and steps are shown to checks, and that none of it reaches the user's code."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.guards.checks import (
    calls,
    early_steps,
    loaded_parts,
    loader_passes,
    passes,
    replicas,
    user_source,
)
from safe_launch.guards.checks.copies import Copy
from support.lazy import Lazy
from support.new_worker import begin

torch = Lazy("torch")


class Arriving:
    """The event of a copy that arrives when the test sets it."""

    def __init__(self) -> None:
        self.has_come = False

    def query(self) -> bool:
        """Whether it has."""
        return self.has_come


def copy_of(event: Arriving) -> Copy:
    """A copy of two values on a device."""
    return Copy(torch.zeros(2), event, (2,), SimpleNamespace(is_current_stream_capturing=bool))


def test_copies_that_arrive_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is judged once, at the first step after it came."""
    monkeypatch.setenv(VARIABLE, "trained")
    begin()
    events, judged = [Arriving() for _ in range(3)], list[int]()
    for number, event in enumerate(events):
        early_steps.later(
            Check.TRAINED, [copy_of(event)], lambda number=number: judged.append(number)
        )
    for number in (1, 0, 2):
        events[number].has_come = True
        early_steps.before(None, 2)
        early_steps.before(None, 3)
    assert judged == [1, 0, 2]


class Watches(SimpleNamespace):
    """Stand-ins for those that look at loaders."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.seen.append(self.name)


@pytest.fixture
def loaders(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[str]]]:
    """A loader's class whose beginnings are shown, and the names of those that have looked."""
    begin()
    seen: list[str] = []
    for name in ("evaluations", "mixing", "passes", "first_losses", "epochs", "data_sets"):
        watch = Watches(name=name, seen=seen, left=1, is_open=True)
        monkeypatch.setattr(loader_passes, name, watch)
    module = ModuleType("loaders")
    module.DataLoader = type("DataLoader", (), {"__iter__": lambda _: iter(range(2))})  # type: ignore[attr-defined]
    module._BaseDataLoaderIter = type("Iter", (), {"__next__": lambda _: 0})  # type: ignore[attr-defined]
    loader_passes.install(module)
    yield module.DataLoader, seen
    begin()


@pytest.mark.parametrize(
    ("check", "who"),
    [
        ("trained", {"evaluations", "mixing", "passes"}),
        ("data", {"passes", "first_losses", "epochs", "data_sets"}),
        ("resumed", set()),
    ],
)
def test_who_sees_a_loader(
    loaders: tuple[Any, list[str]], monkeypatch: pytest.MonkeyPatch, check: str, who: set[str]
) -> None:
    """Those whose checks are on; findings of passes are of two checks."""
    kind, seen = loaders
    monkeypatch.setenv(VARIABLE, check)
    assert list(kind()) == [0, 1]
    assert set(seen) == who


def test_a_loader_that_refuses_its_length(
    loaders: tuple[Any, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins as ever, and is asked after its iterator is made, or torch would warn."""
    kind, _ = loaders
    asked: list[str] = []

    class Loader(kind):  # type: ignore[misc, valid-type]
        """A loader."""

        def __len__(self) -> int:
            asked.append("length")
            raise RuntimeError

    beginning = loader_passes.mixing
    monkeypatch.setattr(beginning, "begin", lambda _: asked.append("iterator"), raising=False)
    monkeypatch.setenv(VARIABLE, "trained")
    assert list(iter(Loader())) == [0, 1]
    assert asked == ["iterator", "length"]


def test_first_passes_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deep copy keeps the hook, which looks no more often."""
    monkeypatch.setenv(VARIABLE, "trained")
    seen: list[Any] = []
    model = torch.nn.Linear(2, 2)
    calls.first_passes(model, Check.TRAINED, lambda *about: seen.append(about), 2)
    other = copy.deepcopy(model)
    for _ in range(4):
        other(torch.ones(1, 2))
    assert len(seen) == 2


def test_a_copy_of_a_watched_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its passes go on after the original is gone."""
    monkeypatch.setenv(VARIABLE, "data")
    model = torch.nn.Linear(2, 2)
    passes.watch(model)
    other = copy.deepcopy(model)
    del model
    assert other(torch.ones(1, 2)).shape == (1, 2)


def test_units_that_wait_for_their_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later steps of another optimizer don't drop what its first step is to compare."""
    unit: Any = SimpleNamespace(module=lambda: None)
    monkeypatch.setattr(replicas, "_units", [unit])
    replicas.look_at_begin(None, 2)
    assert replicas._units == [unit]
    replicas.look_at_begin(None, 1)
    assert replicas._units == []


def set_state(state: int) -> None:
    """Stands for a function that sets a random state."""


def test_functions_that_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object may keep them, and be copied itself."""
    module = ModuleType("random")
    module.setstate = set_state  # type: ignore[attr-defined]
    loaded_parts.install(module)
    assert module.setstate is not set_state
    assert copy.deepcopy(module.setstate) is module.setstate

    class Optimizer:
        """An optimizer."""

        def load_state_dict(self, states: Any) -> Any:
            return states

    monkeypatch.setattr(
        Optimizer, "load_state_dict", loaded_parts._loading(Optimizer.load_state_dict)
    )
    held = copy.deepcopy({"load": Optimizer().load_state_dict})
    assert held["load"](3) == 3


class Samples:
    """A data set with an epoch of its own, and rows with another."""

    def __init__(self) -> None:
        self.epoch, self.size, self.rows = 0, 2, [SimpleNamespace(epoch=1)]

    def __getitem__(self, place: int) -> Any:
        return self.rows[place].epoch, self.crop()

    def crop(self) -> int:
        """Reads another attribute."""
        return self.size


def test_attributes_that_methods_read() -> None:
    """Those of the instance, also in methods that it calls; not another object's of that name."""
    assert user_source.attributes_read(Samples, ["__getitem__"]) == {"rows", "crop", "size"}
    assert "epoch" in user_source.names_used(Samples, ["__getitem__"])
