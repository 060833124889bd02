"""A schedule stepped by accelerate once per rank is reported when it ends too early."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import rank_schedules, schedule_lengths
from support.lazy import Lazy

torch = Lazy("torch")
HERE = "tests/unit/guards/test_rank_schedules.py"
STEPS = 40
Made = Callable[[Any], Any]


class AcceleratedScheduler:
    """A partial stand-in for accelerate's."""

    def __init__(
        self,
        scheduler: Any,
        optimizers: Any,
        step_with_optimizer: bool = True,
        split_batches: bool = False,
    ) -> None:
        self.scheduler, self.optimizers = scheduler, [optimizers]
        self.step_with_optimizer, self.split_batches = step_with_optimizer, split_batches
        self.gradient_state = SimpleNamespace(sync_gradients=True)

    def step(self) -> None:
        """Steps once for each rank."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The findings on a training with a schedule."""
    monkeypatch.setenv(VARIABLE, "schedule")
    monkeypatch.setenv("WORLD_SIZE", "4")
    sent: list[Message] = []
    observations.report_to(sent.append)
    module = ModuleType("accelerate.scheduler")
    held: Any = module
    held.AcceleratedScheduler = AcceleratedScheduler
    for name in ("__init__", "step"):
        monkeypatch.setattr(AcceleratedScheduler, name, vars(AcceleratedScheduler)[name])
    rank_schedules.install(module)

    def trained(make: Made, *, skipped: bool = False, **options: Any) -> list[str]:
        sent.clear()
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        schedule = make(optimizer)
        prepared = AcceleratedScheduler(
            schedule, SimpleNamespace(step_was_skipped=skipped), **options
        )
        for _ in range(STEPS):
            optimizer.step()
            prepared.step()
        return [message.finding.line for message in sent if isinstance(message, Found)]

    return trained


def linear(step: int, *, num_training_steps: int) -> float:
    """The linear schedule of transformers."""
    return max(0.0, 1 - step / num_training_steps)


def of_transformers(length: int) -> Made:
    """A schedule of transformers with a number of steps."""
    rate = partial(linear, num_training_steps=length)
    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def warmed_cosine(optimizer: Any) -> Any:
    """A warmup and a cosine behind it."""
    kinds = torch.optim.lr_scheduler
    warmup = kinds.LinearLR(optimizer, 0.1, total_iters=10)
    cosine = kinds.CosineAnnealingLR(optimizer, STEPS - 10)
    return kinds.SequentialLR(optimizer, [warmup, cosine], [10])


def of_torch(kind: str, *args: Any) -> Made:
    """A schedule of torch."""
    return lambda optimizer: getattr(torch.optim.lr_scheduler, kind)(optimizer, *args)


@pytest.mark.parametrize(
    "make",
    [
        *(of_transformers(STEPS), of_torch("PolynomialLR", STEPS)),
        *(of_torch("OneCycleLR", 0.1, STEPS), of_torch("LinearLR", 1.0, 0.1, STEPS)),
        of_torch("CosineAnnealingLR", STEPS),  # rises again, and may be intended
        warmed_cosine,
    ],
    ids=["transformers", "polynomial", "one cycle", "linear", "cosine", "warmed cosine"],
)
def test_a_schedule_that_is_over(told: Callable[..., list[str]], make: Made) -> None:
    """Both lines are reported, once."""
    (said,) = told(make)
    assert f"check schedule: a schedule of {STEPS} steps was over after 10 optimizer steps" in said
    assert said.count(f"{HERE}:") == 2
    assert "4 times as long" in said


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (of_transformers(4 * STEPS), {}),
        (of_transformers(4 * STEPS - 30), {}),
        (of_transformers(STEPS), {"split_batches": True}),
        (of_transformers(STEPS), {"step_with_optimizer": False}),
        (of_transformers(STEPS), {"skipped": True}),
        (of_torch("LambdaLR", lambda _: 1.0), {}),
        (of_torch("ConstantLR"), {}),
        (of_torch("LinearLR", 0.1, 1.0, 5), {}),
        (of_torch("CosineAnnealingWarmRestarts", 5), {}),
    ],
)
def test_a_schedule_that_is_meant(
    told: Callable[..., list[str]], make: Made, options: dict[str, bool]
) -> None:
    """Right length for all ranks, a little shorter, stepped once, or endless."""
    assert told(make, **options) == []


def test_a_muted_check(told: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--mute schedule` disables it."""
    monkeypatch.setenv(VARIABLE, "data")
    assert told(of_transformers(STEPS)) == []


def test_a_single_rank(told: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one rank the schedule steps once."""
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert told(of_transformers(5)) == []


@pytest.mark.parametrize(
    ("made", "is_reported"),
    [
        ((4, 8), [False, True]),  # once an epoch
        ((1, 2, 3), [False, False, False]),  # once a step
        ((0, 0, 1, 1, 2), [False] * 5),  # once a micro batch
        ((4, 5, 9, 10), [False] * 4),  # once more after an evaluation
    ],
)
def test_steps_once_an_epoch(made: tuple[int, ...], is_reported: list[bool]) -> None:
    """Twice in a row after several steps of the optimizer."""
    schedule = rank_schedules._Schedule(None, "train.py:3", repeats=False)
    findings = [rank_schedules._seldom(schedule, count, 2) for count in made]
    assert [found is not None for found in findings] == is_reported
    for found in filter(None, findings):
        assert "moves 2 steps at once" in found.sentence
        assert "once in 4 optimizer steps" in found.sentence


@pytest.mark.parametrize(
    ("length", "args", "is_reported"),
    [
        (40, SimpleNamespace(num_train_epochs=4), True),
        (40, {"trainer": SimpleNamespace(epochs=4)}, True),
        (80, SimpleNamespace(num_train_epochs=4), False),  # for all ranks
        (40, SimpleNamespace(num_train_epochs=2), False),
        (40, SimpleNamespace(max_epochs=4, epochs=2), False),
        (41, SimpleNamespace(num_train_epochs=4), False),
        (40, SimpleNamespace(num_layers=4), False),
        (40, SimpleNamespace(last_epoch=4, warmup_epochs=4), False),
        (40, SimpleNamespace(max_train_steps=40), True),
        (80, SimpleNamespace(max_train_steps=40, num_training_steps=80), False),
        (40, SimpleNamespace(max_steps=40, num_epochs=2), False),  # of all ranks' steps
        (40, SimpleNamespace(total_steps=40), False),  # the schedule's own number
        (40, SimpleNamespace(max_steps=40, steps=20), False),
        (40, SimpleNamespace(warmup_steps=40, global_steps=40), False),
    ],
)
def test_a_schedule_that_will_be_over(length: int, args: object, is_reported: bool) -> None:
    """Four epochs of ten optimizer steps, by the names of the script's numbers."""
    state = SimpleNamespace(active_dataloader=range(20), num_steps=2)
    schedule = rank_schedules._Schedule(length, "train.py:3", repeats=False)
    finding = rank_schedules._foreseen(schedule, state, 2)
    assert (finding is not None) == is_reported, args
    if finding is not None:
        assert "40 steps will be over after 20 optimizer steps" in finding.sentence


@pytest.mark.parametrize(
    ("kind", "args", "after"),
    [
        ("StepLR", (10,), 5),
        ("StepLR", (20,), 0),  # an epoch of all ranks' steps
        ("StepLR", (7,), 0),
        ("MultiStepLR", ([20, 30],), 15),
        ("MultiStepLR", ([20, 35],), 0),
        ("ExponentialLR", (0.9,), 0),
    ],
)
def test_rates_that_will_change_too_early(kind: str, args: tuple[Any, ...], after: int) -> None:
    """Epochs of ten optimizer steps, of which accelerate makes twenty."""
    state = SimpleNamespace(active_dataloader=range(20), num_steps=2)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    turns = schedule_lengths.turns_of(of_torch(kind, *args)(optimizer))
    schedule = rank_schedules._Schedule(None, "train.py:3", repeats=False, turns=turns)
    finding = rank_schedules._turning(schedule, state, 2)
    assert (finding is not None) == bool(after)
    assert finding is None or f"after {after} optimizer steps" in finding.sentence
