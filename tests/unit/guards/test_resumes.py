"""Rank 0's notes when saving, and after loading."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE
from safe_launch.checks.resumed import Noted
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards import data_parallel
from safe_launch.guards.checks import resumes
from safe_launch.guards.checks.resumes import Resumes
from support.lazy import Lazy

torch = Lazy("torch")


class Optimizer:
    """An optimizer that halves its rate."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{"lr": 0.8}]
        self.state: dict[str, Any] = {}

    def step(self) -> None:
        """Does one step."""
        self.state["kept"] = True
        self.param_groups[0]["lr"] /= 2


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> tuple[Resumes, list[Message]]:
    """Rank 0's notes and messages."""
    monkeypatch.setenv(VARIABLE, "resumed")
    monkeypatch.setenv("RANK", "0")
    messages: list[Message] = []
    observations.report_to(messages.append)
    return resumes.resumes, messages


def train(noted: Resumes, optimizer: Any, *batches: int) -> None:
    """Does steps, each on a batch of two samples."""
    for batch in batches:
        noted.batch({"x": torch.tensor([[batch], [batch + 1]])})
        noted.step(optimizer)
        optimizer.step()


def test_a_save(notes: tuple[Resumes, list[Message]], tmp_path: Path) -> None:
    """It is reported at once, and again with the continuation."""
    noted, messages = notes
    optimizer, path = Optimizer(), str(tmp_path / "last.pt")
    noted.saved(path)  # nothing is known yet
    train(noted, optimizer, 1, 2)
    assert not noted.open
    noted.step(Optimizer())  # another one
    noted.saved(path)
    train(noted, optimizer, 3, 4, 5)
    first, again = (each for each in messages if isinstance(each, Noted))
    assert (first.path, first.rate, first.has_state, first.then) == (path, 0.2, True, None)
    assert (first.first.rates, first.first.has_state) == ((0.8, 0.4), False)
    assert again.then is not None
    assert (again.then.rates, again.then.has_state) == ((0.2, 0.1), True)
    assert "" != again.then.batch != again.first.batch != ""


def test_a_resume(notes: tuple[Resumes, list[Message]], tmp_path: Path) -> None:
    """Loads before the first step count; later ones don't."""
    noted, messages = notes
    optimizer = Optimizer()
    noted.loads(str(tmp_path / "last.pt"))
    train(noted, optimizer, 1, 2)
    noted.loads(str(tmp_path / "best.pt"))
    train(noted, optimizer, 3)
    (told,) = messages
    assert isinstance(told, Noted)
    assert (told.path, told.rate) == (str(tmp_path / "last.pt"), None)


def test_a_rate_on_a_device(notes: tuple[Resumes, list[Message]]) -> None:
    """It would need a synchronization, so it isn't noted."""
    noted, _ = notes
    optimizer = Optimizer()
    optimizer.param_groups[0]["lr"] = SimpleNamespace()
    with pytest.raises(TypeError, match="tensor"):
        noted.step(optimizer)
    assert not noted.open


def test_which_files(notes: tuple[Resumes, list[Message]], tmp_path: Path) -> None:
    """A dict with an optimizer's state counts; weights alone don't."""
    noted, messages = notes
    optimizer = Optimizer()
    train(noted, optimizer, 1, 2)
    resumes._object_saved(None, ({"model": {}}, str(tmp_path / "a")), {})
    state = {"model": {}, "optimizer": {"state": {}, "param_groups": []}}
    resumes._object_saved(None, (state, str(tmp_path / "b")), {})
    (told,) = messages
    assert isinstance(told, Noted)
    assert told.path == str(tmp_path / "b")


def test_checkpoints_in_parts(notes: tuple[Resumes, list[Message]], tmp_path: Path) -> None:
    """With an optimizer's state, by itself or in an object; loaded by another training."""
    noted, messages = notes
    optimizer = Optimizer()
    train(noted, optimizer, 1, 2)
    path = str(tmp_path / "step-2")
    state = {"state": {}, "param_groups": []}
    resumes._parts_saved(None, ({"model": {}},), {"checkpoint_id": path})
    assert messages == []
    app = SimpleNamespace(model=None, optimizer=optimizer)
    for content in ({"model": {}, "optim": state}, {"app": app}):
        resumes._parts_saved(None, (content,), {"checkpoint_id": path})
    storage = SimpleNamespace(path=tmp_path / "step-2")
    resumes._parts_saved(None, ({"optim": state},), {"storage_writer": storage})
    assert [told.path for told in messages if isinstance(told, Noted)] == [path] * 3
    resumes._parts_load(None, ({"model": {}},), {"storage_reader": storage})
    noted.step(Optimizer())
    assert [type(told) for told in messages].count(Found) == 1


def test_batches_of_divided_models(
    notes: tuple[Resumes, list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that begins shows that there is a model."""
    noted, _ = notes
    model = torch.nn.Linear(2, 2)
    monkeypatch.setattr(data_parallel, "outermost", lambda: [model])
    noted.begin()
    noted.begin()
    model(torch.ones(1, 2))
    assert noted.open[0].batch is not None
    assert not model._forward_pre_hooks
