"""Dropout in evaluation, in another model's passes, in passes that are compared, and recomputed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import dropouts, functional
from safe_launch.guards.checks.schedules import schedules
from support.lazy import Lazy

torch = Lazy("torch")
Told = Callable[[], list[str]]
KEPT: list[Any] = []
"""Optimizers of the current test."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the number of steps so far."""
    done = [0]
    monkeypatch.setattr(observations, "steps_of_all", lambda: done[0])

    def make(count: int) -> None:
        done[0] = count

    yield make
    schedules.optimizers.clear()
    KEPT.clear()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed so far, with torch's functions watched anew."""
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    looks = dropouts.Dropouts()
    functions = torch.nn.functional
    original = getattr(functions.dropout, "__wrapped__", functions.dropout)
    mark = torch.jit.script_if_tracing
    monkeypatch.setattr(functions, "dropout", functional.shown(original, (looks,), mark))
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


def network(dropout: float = 0.5) -> Any:
    """A model of tokens."""
    nn = torch.nn
    return nn.Sequential(nn.Embedding(9, 4), nn.Dropout(dropout), nn.Linear(4, 3))


def optimized(model: Any) -> None:
    """Gives a model an optimizer that the checks know."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedules.optimizers[optimizer] = object()  # type: ignore[assignment]
    KEPT.append(optimizer)


def calling(function: Callable[[Any, Any], Any]) -> Any:
    """A model whose forward is a function."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, values: Any) -> Any:
            return function(self, self.layer(values))

    return Model()


def always(_model: Any, values: Any) -> Any:
    """Drops in any mode, by default."""
    return torch.nn.functional.dropout(values, 0.5)


def asked_for(_model: Any, values: Any) -> Any:
    """Says that it drops in any mode."""
    return torch.nn.functional.dropout(values, 0.5, training=True)


def by_mode(model: Any, values: Any) -> Any:
    """Drops in training."""
    return torch.nn.functional.dropout(values, 0.5, training=model.training)


def made(_model: Any, values: Any) -> Any:
    """Makes the layer."""
    return torch.nn.Dropout(0.5)(values)


def by_layer(model: Any, values: Any) -> Any:
    """Has put its layer into training mode."""
    model.drop.train()  # Monte Carlo dropout
    return model.drop(values)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (always, "Pass training=self.training"),
        (made, "Make the layer in __init__"),
        (asked_for, ""),
        (by_mode, ""),
        (by_layer, ""),
    ],
)
def test_dropout_in_evaluation(function: Any, said: str, told: Told, steps: Any) -> None:
    """By its call, or by a layer that the model doesn't have."""
    steps(3)
    model = calling(function)
    model(torch.ones(2, 4)).sum().backward()
    assert told() == []
    with torch.no_grad():
        model.eval()(torch.ones(2, 4))
    assert [said in line for line in told()] == [True] * bool(said)


@pytest.mark.parametrize("case", ["teacher", "evaluated", "without", "average", "trained", "left"])
def test_a_model_that_is_not_trained(case: str, told: Told, steps: Any) -> None:
    """In training mode, unlike an average that follows, or a model of another optimizer."""
    student, teacher = network(), network(0.0 if case == "without" else 0.5)
    optimized(student)
    if case == "trained":
        optimized(teacher)
    if case not in ("trained", "left"):
        teacher.requires_grad_(requires_grad=False)
    teacher.train(case != "evaluated")
    for step in range(6):
        steps(step)
        with torch.no_grad():
            teacher(torch.randint(9, (2, 8)))
            if case == "average":
                teacher[0].weight.mul_(0.9)
        student(torch.randint(9, (2, 8))).sum().backward()
    is_told = case in ("teacher", "left")
    assert ["a model that isn't trained, Sequential" in line for line in told()] == [True] * is_told


@pytest.mark.parametrize("name", ["teacher", "encoder"])
def test_a_part_that_is_not_trained(name: str, told: Told, steps: Any) -> None:
    """A frozen part that feeds the others may have dropout; a teacher's outputs are targets."""

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, 3)
            self.add_module(name, network().requires_grad_(requires_grad=False))

        def forward(self, ids: Any) -> Any:
            with torch.no_grad():
                found = getattr(self, name)(ids)
            return self.head(found)

    model = Whole()
    optimized(model)
    for step in range(6):
        steps(step)
        model(torch.randint(9, (2, 8))).sum().backward()
    assert ["runs in training mode" in line for line in told()] == [True] * (name == "teacher")


@pytest.mark.parametrize("case", ["same", "others", "restored", "evaluated", "checkpointed"])
def test_passes_that_are_compared(case: str, told: Told, steps: Any) -> None:
    """With dropout, the same tokens without gradients and then to be trained."""
    from torch.utils.checkpoint import checkpoint

    model = network()
    optimized(model)
    for step in range(6):
        steps(step)
        ids = torch.randint(9, (2, 8))
        state = torch.get_rng_state()
        if case == "checkpointed":
            values = model[0](ids)
            checkpoint(model[1:], values, use_reentrant=True).sum().backward()
            continue
        with torch.no_grad():
            model.train(case != "evaluated")(ids)
        if case == "restored":
            torch.set_rng_state(state)  # as GradCache does
        other = torch.randint(9, (2, 8)) if case == "others" else ids
        model.train()(other).sum().backward()
    assert ["sees the same tokens" in line for line in told()] == [True] * (case == "same")


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("is_reentrant", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
def test_recomputed_blocks(keeps: bool, is_reentrant: bool, told: Told) -> None:
    """They have to drop the same elements again."""
    from torch.utils.checkpoint import checkpoint

    block = network()[1:]
    values = torch.ones(2, 4, requires_grad=True)
    options = {"use_reentrant": is_reentrant, "preserve_rng_state": keeps}
    checkpoint(block, values, **options).sum().backward()
    with torch.no_grad():
        checkpoint(block, values.detach(), **options)
    assert ["is recomputed with other elements" in line for line in told()] == [True] * (not keeps)


def test_attention_in_evaluation(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's function is replaced between an evaluation's beginning and the next step."""
    monkeypatch.setattr(functional, "dropouts", looks := dropouts.Dropouts())
    functions, window = torch.nn.functional, functional.Window()
    original = functions.scaled_dot_product_attention
    model = network()
    window.open(model)
    assert functions.scaled_dot_product_attention is original  # nothing is trained yet
    steps(1)
    window.open(network().requires_grad_(requires_grad=False))
    assert functions.scaled_dot_product_attention is original
    window.open(model)
    assert functions.scaled_dot_product_attention is not original
    values = torch.ones(1, 2, 4)
    found = functions.scaled_dot_product_attention(values, values, values)
    assert torch.equal(found, original(values, values, values))
    window.open(model)
    window.close()
    assert functions.scaled_dot_product_attention is original
    assert looks.is_open
    compiled = torch.nn.Sequential(type("OptimizedModule", (torch.nn.Linear,), {})(2, 2))
    window.open(compiled)
    assert functions.scaled_dot_product_attention is original
