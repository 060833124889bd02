"""Observing gradients on their way to an optimizer, in one process."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.between_ranks import Compared
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.checks.seen_gradients import PARTS, Seen, Way, decoded
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Message, Skipped
from safe_launch.guards.checks import gradient_places, sampled_gradients
from safe_launch.guards.checks.gradient_places import Line
from safe_launch.guards.checks.gradients import Gradients
from support.lazy import Lazy

torch = Lazy("torch")

Told = Callable[[], list[Message]]


@pytest.fixture(name="messages")
def sent_messages(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Rank 0 of two, and its messages."""
    messages: list[Message] = []
    observations.report_to(messages.append)
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sampled_gradients, "_has_group", lambda: True)
    return messages


def net() -> Any:
    """A small model with an embedding."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(30, 16), torch.nn.Linear(16, 20), torch.nn.Linear(20, 4)
    )


def train(
    model: Any,
    *,
    steps: int = 4,
    passes: int = 1,
    between: Callable[[Any, int], object] = lambda _model, _number: None,
) -> Any:
    """A loop with an optimizer watched as in a worker."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = Gradients("train.py:3")
    names = {id(each): name for name, each in model.named_parameters()}
    sampled_gradients.begin_with(seen, optimizer, names)
    for step in range(steps):
        for number in range(passes):
            model(torch.arange(30)).square().sum().backward()
            between(model, number)
        seen.take(optimizer)
        optimizer.step()
        seen.over(step + 1)
        optimizer.zero_grad()
    return seen


def sent(messages: list[Message]) -> Seen:
    """The values for comparison are sent once."""
    (message,) = (each for each in messages if isinstance(each, Compared))
    found = decoded(message.value, len(message.names))
    assert found is not None
    return found


def test_what_is_sent(messages: list[Message]) -> None:
    """Two steps after the first: each addition and the final sum; embeddings aren't sampled."""
    model = net()
    observations.see_model(model)
    train(model, passes=2)
    (message,) = (each for each in messages if isinstance(each, Compared))
    assert (message.names, message.step) == (("1.weight", "2.weight"), 3)
    found = sent(messages)
    assert (found.way, found.roundoff) == (Way.SCRIPT, 2.0**-24)
    for window in found.windows:
        for passed in window:
            one, other = passed.parts
            total = [a + b for a, b in zip(one, other, strict=True)]
            assert passed.reached == pytest.approx(total)
            assert any(passed.reached)
    assert not any(each._backward_hooks for each in model.parameters())


def test_many_additions(messages: list[Message]) -> None:
    """The first, the last, and the sum of all in between."""
    train(net(), passes=7)
    for passed in (passed for window in sent(messages).windows for passed in window):
        first, *_, between, last = passed.parts
        assert len(passed.parts) == PARTS
        assert last == pytest.approx(first)
        assert between == pytest.approx([4 * value for value in first])


def test_gradients_that_are_cleared(messages: list[Message]) -> None:
    """A critic's clears them between passes; only later additions count."""

    def clear(model: Any, number: int) -> None:
        if not number:
            model.zero_grad()

    train(net(), passes=2, between=clear)
    for passed in (passed for window in sent(messages).windows for passed in window):
        (only,) = passed.parts
        assert passed.reached == pytest.approx(only)


def test_gradients_that_are_asked_for(messages: list[Message]) -> None:
    """`autograd.grad` adds nothing to `.grad` and leaves no trace."""

    def ask(model: Any, _number: int) -> None:
        loss = model(torch.arange(30)).square().sum()
        torch.autograd.grad(loss, list(model.parameters()))

    train(net(), between=ask)
    assert all(len(passed.parts) == 1 for window in sent(messages).windows for passed in window)


def test_what_an_earlier_step_has_left(messages: list[Message]) -> None:
    """Uncleared gradients count as a separate addition."""
    model = net()
    model.zero_grad = lambda: None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = Gradients("train.py:3")
    names = {id(each): name for name, each in model.named_parameters()}
    sampled_gradients.begin_with(seen, optimizer, names)
    for step in range(4):
        model(torch.arange(30)).square().sum().backward()
        seen.take(optimizer)
        seen.over(step + 1)
    for passed in (passed for window in sent(messages).windows for passed in window):
        left, added = passed.parts
        assert passed.reached == pytest.approx([a + b for a, b in zip(left, added, strict=True)])


def test_what_is_not_judged(messages: list[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled models, FSDP1, other parallelism, one rank, a loop's own constants."""
    model = net()
    constant = net()
    for parameter in constant.parameters():
        torch.nn.init.ones_(parameter)
    train(constant)
    assert messages == []
    observations.see_model(model)
    model[1]._compiled_call_impl = model[1]._call_impl  # as compile() sets it
    messages.clear()
    train(model)
    assert messages == [Skipped(Check.GRADIENTS, "the model is compiled")]
    for seen in ({"fsdp_version": 1}, {"model_parallel": 2}):
        observations.observed = dict(seen)
        train(net())
    observations.observed = {}
    monkeypatch.setenv("WORLD_SIZE", "1")
    messages.clear()
    train(net())
    assert messages == []


def test_lines_of_shards() -> None:
    """A line selects the same elements in any layout and in shards."""
    values = torch.arange(5 * 40.0).view(5, 40)
    line = Line((5, 40))
    expected = values.flatten()[line.begin : line.begin + line.count]
    assert line.of(values).equal(expected)
    assert line.of(values.t().contiguous().t()).equal(expected)
    flat = values.flatten()
    found = [line.of_shard(begin, flat[begin : begin + 95]) for begin in (0, 95, 190)]
    parts = [each for each in found if each is not None]
    assert torch.cat([each for _, each in parts]).equal(expected)
    assert [first for first, _ in parts] == [0, 3]


def test_parts_of_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's optimizers hold flat tensors with a part of each parameter."""
    monkeypatch.setattr(gradient_places, "_fragments", {})
    monkeypatch.setenv(VARIABLE, Check.GRADIENTS)
    parameter, flat = torch.nn.Parameter(torch.zeros(4, 10)), torch.zeros(30)
    flat.grad = torch.arange(30.0)
    mapping = SimpleNamespace(
        lp_fragment_address=SimpleNamespace(start=12, numel=28),
        hp_fragment_address=SimpleNamespace(start=2, numel=28),
    )
    module = SimpleNamespace(
        __name__=gradient_places.HOOKED[0], get_hp_fragment_mapping=lambda *_args: mapping
    )
    gradient_places.install(module)  # type: ignore[arg-type]
    module.get_hp_fragment_mapping(parameter, 0, flat)
    optimizer = SimpleNamespace(param_groups=[{"params": [flat]}])
    found = gradient_places.reached_by(optimizer, parameter, Line((4, 10)))
    assert found is not None
    assert (found[0], found[1].tolist()) == (0, [10.0 + value for value in range(10)])
    assert gradient_places.is_known(optimizer, parameter)
    other = SimpleNamespace(param_groups=[{"params": []}])
    assert gradient_places.reached_by(other, parameter, Line((4, 10))) is None
