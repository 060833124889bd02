"""Decisions by an evaluation of one rank's share, with right ones among them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from safe_launch.checks import sampling
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import local_evaluations as evaluations
from safe_launch.guards.checks import schedule_calls
from safe_launch.guards.checks.collectives import collectives
from safe_launch.guards.checks.evaluations import Phase
from support.lazy import Lazy

torch = Lazy("torch")
Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed so far by the first of two ranks, after eight steps."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    monkeypatch.setattr(observations, "steps_of_all", lambda: 8)
    sent: list[Message] = []
    observations.report_to(sent.append)
    vars(evaluations.local_evaluations).update(vars(evaluations.LocalEvaluations()))
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


@pytest.fixture
def save() -> Callable[[], None]:
    """A function that saves, as the script calls it."""
    module = ModuleType("torch.serialization")
    module.save = lambda: None  # type: ignore[attr-defined]
    evaluations.install(module)
    made: Callable[[], None] = module.save
    return made


def evaluated(*, is_whole: bool = True, is_divided: bool = True, exchanges: bool = False) -> None:
    """An evaluation."""
    data = torch.utils.data
    sampler = data.DistributedSampler(range(8), num_replicas=2, rank=0) if is_divided else None
    loader = data.DataLoader(range(8), sampler=sampler)
    waiting: list[Any] = []
    noted = evaluations.local_evaluations
    noted.begun(lambda *asked: waiting.append(asked), loader, Phase.EVALUATION)
    for batches, look in waiting if is_whole else ():
        assert batches == len(loader)
        look()
    collectives.count += exchanges


class Stopping:
    """Holds the best value."""

    def __init__(self) -> None:
        self.best_score, self.best_epoch = 0.5, 3


def saves(save: Callable[[], None], kind: str, value: float = 0.6) -> None:
    """Saves under a condition."""
    best, stopping, epoch, is_best = 0.5, Stopping(), 4, True
    match kind:
        case "best":
            if value > best:
                save()
        case "held":
            if value < stopping.best_score:
                pass
            else:
                save()
        case "flag":
            if is_best:
                save()
        case "epoch":
            if epoch > stopping.best_epoch:
                save()
        case "time":
            deadline = 0.5
            if value > deadline:
                save()
        case _:
            save()


@pytest.mark.parametrize(
    ("kind", "more", "is_found"),
    [
        ("best", {}, True),
        ("held", {}, True),
        ("flag", {}, True),
        ("epoch", {}, False),
        ("time", {}, False),
        ("always", {}, False),
        ("best", {"exchanges": True}, False),
        ("best", {"is_whole": False}, False),
        ("best", {"is_divided": False}, False),
    ],
)
def test_what_is_saved(
    told: Told, save: Callable[[], None], kind: str, more: Any, *, is_found: bool
) -> None:
    """Only if it depends on the best value, of a whole evaluation without any exchange."""
    evaluated(**more)
    saves(save, kind)
    saves(save, kind)
    assert len(told()) == is_found


def test_a_schedule(told: Told, save: Callable[[], None]) -> None:
    """It lowers the rate by a value of this rank; a training ends the evaluation."""
    kind = type("ReduceLROnPlateau", (), {"step": lambda _self, value: value})
    module = ModuleType("torch.optim.lr_scheduler")
    module.ReduceLROnPlateau = kind  # type: ignore[attr-defined]
    schedule_calls.install(module)
    scheduler = kind()
    scheduler.optimizer = kind()
    evaluated()
    evaluations.local_evaluations.begun(print, None, Phase.TRAINING)
    assert scheduler.step(0.5) == 0.5
    saves(save, "best")
    assert not told()
    evaluated()
    scheduler.step(0.5)
    (said,) = told()
    assert f"check data: {sampling.LOWERS} by an evaluation of this rank's share" in said
