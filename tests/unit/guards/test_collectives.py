"""What ranks exchange: summed gradients, divided losses, and decisions without any."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks import divided, sampling
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards import data_parallel
from safe_launch.guards.checks import collectives as guard
from safe_launch.guards.checks import schedule_calls
from safe_launch.guards.checks.evaluations import Phase
from safe_launch.guards.checks.losses import RANKS
from safe_launch.guards.checks.user_source import is_written_division
from support.lazy import Lazy
from support.tables import table

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
    vars(guard.local_evaluations).update(vars(guard.LocalEvaluations()))
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


@pytest.fixture
def save() -> Callable[[], None]:
    """A function that saves, as the script calls it."""
    module = ModuleType("torch.serialization")
    module.save = lambda: None  # type: ignore[attr-defined]
    guard.install(module)
    made: Callable[[], None] = module.save
    return made


def evaluated(*, is_whole: bool = True, is_divided: bool = True, exchanges: bool = False) -> None:
    """An evaluation."""
    data = torch.utils.data
    sampler = data.DistributedSampler(range(8), num_replicas=2, rank=0) if is_divided else None
    loader = data.DataLoader(range(8), sampler=sampler)
    waiting: list[Any] = []
    noted = guard.local_evaluations
    noted.begun(lambda *asked: waiting.append(asked), loader, Phase.EVALUATION)
    for batches, look in waiting if is_whole else ():
        assert batches == len(loader)
        look()
    noted.has_exchanged |= exchanges


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
    guard.local_evaluations.begun(print, None, Phase.TRAINING)
    assert scheduler.step(0.5) == 0.5
    saves(save, "best")
    assert not told()
    evaluated()
    scheduler.step(0.5)
    (said,) = told()
    assert f"check data: {sampling.LOWERS} by an evaluation of this rank's share" in said


@table(
    ("before", "after", "used", "is_found"),
    [
        ([1.0, 2.0], [2.0, 4.0], [2.0, 4.0], True),
        ([1.0, 2.0], [2.0, 4.0], [1.0, 2.0], False),  # divided behind it
        ([1.0, 2.0], [3.0, 1.0], [3.0, 1.0], False),  # of each rank
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], False),  # a mean
        ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], False),
    ],
)
def test_sums_of_means(
    before: list[float], after: list[float], used: list[float], *, is_found: bool
) -> None:
    """They are as many times as large as there are ranks, and used so."""
    assert (divided.summed_again(before, after, used, 2) is not None) == is_found


@pytest.mark.parametrize(
    ("kind", "is_found"), [("sum", True), ("mean", False), ("other", False), ("divided", False)]
)
def test_gradients_that_are_summed(
    told: Told, kind: str, monkeypatch: pytest.MonkeyPatch, *, is_found: bool
) -> None:
    """A loss may be summed first; sums of unlike gradients are right, also divided ones."""
    monkeypatch.setattr(observations, "steps_of_all", lambda: 1)
    monkeypatch.setattr(guard, "reduced", guard.Reduced())
    model = torch.nn.Linear(4, 4)
    data_parallel.wrapped.add(model)
    module: Any = ModuleType("torch.distributed.distributed_c10d")
    added = {"sum": lambda each: each, "other": torch.rand_like}.get(kind, torch.zeros_like)

    def all_reduce(tensor: Any) -> None:
        tensor += added(tensor) if kind != "divided" else tensor

    module.all_reduce = all_reduce
    guard.install(module)
    for step in range(1, 4):
        model(torch.ones(2, 4)).sum().backward()
        module.all_reduce(torch.ones(1))
        for parameter in model.parameters():
            module.all_reduce(parameter.grad)
            if kind == "divided":
                parameter.grad.div_(2)
        guard.reduced.step(None, step)
        model.zero_grad()
    data_parallel.wrapped.discard(model)
    assert len(told()) == is_found


@pytest.mark.parametrize(
    ("lines", "is_so"),
    [
        ("loss = loss / world_size", True),
        ("loss /= dist.get_world_size()", True),
        ("loss = loss / accumulation", False),
        ("loss = loss / accumulation\nshown = loss.item() / world_size", False),
        ("loss = mean / 2\nshown_loss = loss.item() / world_size", False),
        ("loss = loss * 0.5\nshown_loss = loss.item() / world_size", False),
        ("loss = loss", False),
    ],
)
def test_losses_that_a_script_divides(lines: str, tmp_path: Path, *, is_so: bool) -> None:
    """By the number of ranks, and by nothing else that may be equal."""
    path = tmp_path / "train.py"
    path.write_text(f"loss = mean\n{lines}\nfound = look(loss)\n")
    mean = torch.ones(3, requires_grad=True).mean()
    given = {
        "mean": mean,
        "world_size": 2,
        "accumulation": 2,
        "dist": SimpleNamespace(get_world_size=lambda: 2),
        "look": lambda loss: is_written_division(loss, RANKS, 2),
    }
    assert runpy.run_path(str(path), given)["found"] == is_so
