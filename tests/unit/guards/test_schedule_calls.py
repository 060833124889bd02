"""The calls of schedules and the rates that they leave, and numbers that a load replaces."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks import between_ranks, schedule_calls
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import VARIABLE
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards import data_parallel
from safe_launch.guards.checks import early_steps, loaded_parts
from safe_launch.guards.checks import schedule_calls as guard
from safe_launch.guards.checks.optimizers import Watch
from safe_launch.guards.checks.schedules import schedules
from support.lazy import Lazy
from support.new_worker import begin
from support.tables import table

torch = Lazy("torch")
Loop = Callable[[Any], None]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[[Loop], list[str]]:
    """The findings, and the rates sent, of a loop with an optimizer."""
    monkeypatch.setenv(VARIABLE, "schedule,replicas,resumed")
    monkeypatch.setenv("WORLD_SIZE", "2")
    module = torch.optim.lr_scheduler
    for name in (*guard.STEPPING, guard.PLATEAU):
        kind = getattr(module, name)
        if "step" in vars(kind):
            monkeypatch.setattr(kind, "step", vars(kind)["step"])
    kind = torch.optim.Optimizer
    monkeypatch.setattr(kind, "load_state_dict", kind.load_state_dict)
    guard.install(module)
    held: Any = SimpleNamespace(__name__=loaded_parts.OPTIMIZER, Optimizer=kind)
    loaded_parts.install(held)

    def ran(loop: Loop) -> list[str]:
        sent: list[Message] = []
        begin().report_to(sent.append)
        guard.calls.__init__()  # type: ignore[misc]
        weight = torch.nn.Parameter(torch.zeros(4))
        monkeypatch.setattr(data_parallel, "replicated", lambda: {id(weight)})
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.01)
        Watch(optimizer)
        loop(optimizer)
        return [
            message.finding.line if isinstance(message, Found) else message.value
            for message in sent
            if isinstance(message, Found)
            or (isinstance(message, Compared) and message.what is Shared.RATES)
        ]

    return ran


def stepping(*make: Callable[[Any], Any], by: int = 1, given: Any = ()) -> Loop:
    """A loop whose schedules step after several steps of the optimizer."""

    def loop(optimizer: Any) -> None:
        made = [one(optimizer) for one in make]
        for one in made:
            schedules.places[one] = "train.py:3"
            schedules.made(one)
        for step in range(12):
            optimizer.param_groups[0]["params"][0].grad = torch.ones(4)
            optimizer.step()
            if step % by == by - 1:
                for one in made:
                    one.step(*(() if given == () else (given[step // by],)))

    return loop


def warmup(optimizer: Any) -> Any:
    """A warmup that computes the rate from the first."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 3))


def linear(optimizer: Any) -> Any:
    """A warmup that multiplies the rate."""
    return torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=3)


def cosine(optimizer: Any) -> Any:
    """A decay of 60 steps."""
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)


def joined(optimizer: Any) -> Any:
    """A warmup, and then a decay."""
    kinds = [warmup(optimizer), cosine(optimizer)]
    return torch.optim.lr_scheduler.SequentialLR(optimizer, kinds, [3])


def decayed(optimizer: Any) -> Any:
    """A decay in steps."""
    return torch.optim.lr_scheduler.StepLR(optimizer, 2)


FALLING, RISING = [0.9, 0.7, 0.6, 0.5], [0.1, 0.35, 0.6, 0.85]


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@table(
    ("loop", "words"),
    [
        (stepping(cosine, warmup), "overwrite each other"),
        (stepping(warmup, cosine), "overwrite each other"),
        (stepping(cosine, warmup, by=3), "overwrite each other"),
        (stepping(cosine, linear), ""),
        (stepping(joined), ""),
        (stepping(warmup), ""),
        (stepping(decayed, by=3, given=FALLING), "metric as its epoch"),
        (stepping(decayed, by=3, given=RISING), ""),  # parts of an epoch
        (stepping(decayed, by=3, given=[1, 2, 3, 4]), ""),
    ],
)
def test_schedules(said: Callable[[Loop], list[str]], loop: Loop, words: str) -> None:
    """Two that set the same rates, and one that gets a metric."""
    found = said(loop)
    assert len(found) == bool(words), found
    assert all(words in line for line in found)


def test_a_schedule_of_all_steps(said: Callable[[Loop], list[str]]) -> None:
    """It is stepped after each epoch of four, of which the script plans 15."""
    epochs = 15
    assert "stepped once an epoch" in said(stepping(cosine, by=4))[0]
    epochs = 60  # as many as the schedule has steps
    assert said(stepping(cosine, by=4)) == []
    assert epochs


def test_rates_that_are_sent(said: Callable[[Loop], list[str]]) -> None:
    """After each step of a plateau, and of no other schedule."""

    def loop(optimizer: Any) -> None:
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        for value in (1.0, 2.0):
            optimizer.step()
            plateau.step(value)

    assert said(loop) == ["0.1", "0.01"]


@table(
    ("values", "is_told"),
    [
        ({0: "0.1 0.2", 1: "0.1 0.02"}, True),
        ({0: "0.1", 1: "0.1"}, False),
        ({0: "0.1"}, False),
    ],
)
def test_rates_of_ranks(values: dict[int, str], is_told: bool) -> None:
    """They must be equal."""
    compared = Compared(Shared.RATES, "", "train.py:7#1", 40)
    found = between_ranks.judged(compared, values, range(2))
    assert (found is not None) == is_told
    assert found is None or "0.2 on rank 0 and 0.02 on rank 1" in found.sentence


@table(
    ("mode", "values", "line", "is_told"),
    [
        ("min", [0.3, 0.4, 0.5], "sch.step(val_acc)", True),
        ("min", [0.3, 0.4, 0.5], "plateau.step(metrics=self.best.f1.item())", True),
        ("max", [0.9, 0.8, 0.5], "sch.step(val_loss)", True),
        ("max", [0.3, 0.4, 0.5], "sch.step(val_acc)", False),
        ("min", [0.3, 0.4, 0.5], "sch.step(-val_acc)", False),
        ("min", [0.3, 0.4, 0.5], "sch.step(1 - acc)", False),
        ("min", [0.3, 0.4, 0.5], "sch.step(neg_acc)", False),
        ("min", [0.5, 0.4, 0.3], "sch.step(val_acc)", False),
        ("min", [0.3, 0.4], "sch.step(val_acc)", False),
        ("min", [0.9, 0.8, 0.7], "sch.step(val_loss)", False),
        ("min", [0.3, 0.4, 0.5], "sch.step(value)", False),
    ],
)
def test_modes_of_a_plateau(mode: str, values: list[float], line: str, is_told: bool) -> None:
    """By the metric's name and course."""
    assert (schedule_calls.turned(mode, values, line) is not None) == is_told


@table(
    ("rate", "decay", "is_set_again", "has_schedule", "words"),
    [
        (0.001, 0.01, False, False, "learning rate that the script gives SGD"),
        (0.001, 0.01, True, False, ""),
        (0.001, 0.01, False, True, ""),
        (0.5, 0.01, False, False, ""),  # it has fallen since
        (0.1, 0.01, False, False, ""),
        (0.1, 0.05, False, True, "weight decay that the script gives SGD"),
    ],
)
def test_numbers_that_a_load_replaces(
    said: Callable[[Loop], list[str]],
    rate: float,
    decay: float,
    is_set_again: bool,
    has_schedule: bool,
    words: str,
) -> None:
    """A rate that is lower than the loaded one, and any other weight decay."""

    def loop(optimizer: Any) -> None:
        params = optimizer.param_groups[0]["params"]
        params[0].grad = torch.ones(4)
        optimizer.step()
        kept = deepcopy(optimizer.state_dict())
        optimizer = torch.optim.SGD(params, lr=rate, momentum=0.9, weight_decay=decay)
        schedules.optimizers[optimizer] = next(iter(schedules.optimizers.values()))
        made = linear(optimizer) if has_schedule else None
        if made is not None:
            schedules.places[made] = "train.py:3"
        optimizer.load_state_dict(kept)
        if is_set_again:
            optimizer.param_groups[0]["lr"] = rate
        early_steps.before(optimizer, 1)

    found = said(loop)
    assert len(found) == bool(words), found
    assert all(words in line for line in found)
