"""Notes on the first steps for a comparison with another attempt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from safe_launch.checks.between_ranks import Compared
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Message
from safe_launch.guards.checks import backward, first_steps
from safe_launch.guards.checks.first_steps import FirstSteps
from support.lazy import Lazy

torch = Lazy("torch")


def noted(
    monkeypatch: pytest.MonkeyPatch, steps: Sequence[Sequence[float]]
) -> tuple[FirstSteps, list[Message]]:
    """A process that calls backward on these losses, with two samples for each."""
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    messages: list[Message] = []
    done = 0
    observations.report_to(messages.append)
    observations.count_steps(lambda: done)
    first = FirstSteps()
    monkeypatch.setattr(backward, "first_steps", first)

    def within(loss: object, *, is_within: bool = False) -> None:
        if not is_within:
            passing(loss, is_within=True)  # a reentrant block's

    passing = backward._counted(within)
    for step, losses in enumerate(steps):
        done = step
        for place, loss in enumerate(losses):
            samples = torch.tensor([[step, place], [place, step + 7]])
            first.draw({"input_ids": samples, "labels": samples[:, 0]})
            passing(torch.tensor(loss, requires_grad=True))
    return first, messages


def told(messages: Sequence[Message]) -> list[tuple[int | None, float, list[str]]]:
    """The sent steps with their losses and samples."""
    sent = [each for each in messages if isinstance(each, Compared)]
    words = [each.value.split() for each in sent]
    return [(one.step, float(w[0]), w[2:]) for one, w in zip(sent, words, strict=True)]


def test_first_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of all passes are added; nothing is noted after the third step."""
    first, messages = noted(monkeypatch, [(1.0, 2.0), (0.5, 0.25), (0.5, 0.5), (9.0, 9.0)])
    steps = told(messages)
    assert [(step, loss) for step, loss, _ in steps] == [(1, 3.0), (2, 0.75), (3, 1.0)]
    drawn = [[word.partition(":")[0] for word in words] for *_, words in steps]
    assert drawn[0] == ["2", "4", "6"]
    assert not first.is_open


def test_samples_are_the_same_however_they_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests are summed, so the order doesn't matter."""
    monkeypatch.setenv(VARIABLE, "ours")
    rows = torch.arange(24).reshape(4, 6)
    whole, halves = FirstSteps(), FirstSteps()
    whole.draw([rows, rows[:, 0]])
    for part in (rows[2:], rows[:2]):
        halves.draw([part, part[:, 0]])
    assert whole._drawn
    assert halves._drawn
    assert whole._drawn[-1] == halves._drawn[-1]
    halves.draw([rows, rows[:2]])  # has no samples
    assert len(halves._drawn) == 2


@pytest.mark.parametrize("limit", ["DRAWN", "PASSES"])
def test_bounds(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """With too many passes nothing is sent; with too many batches their samples are omitted."""
    monkeypatch.setattr(first_steps, limit, 2)
    first, messages = noted(monkeypatch, [(1.0, 1.0, 1.0), (1.0,), (1.0,)])
    assert first.is_open == (limit == "DRAWN")
    assert told(messages) == ([(1, 3.0, []), (2, 1.0, [])] if limit == "DRAWN" else [])
