"""What losses are given and how they weigh tokens, seen by wrapped functions of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import functional, loss_functions, reporting
from safe_launch.guards.checks.loss_functions import LossInputs, TokenLosses
from safe_launch.guards.checks.schedules import schedules
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")
Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed so far."""
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


def shown(name: str, *watches: Any) -> Any:
    """A function of torch's whose calls are watched."""
    function = getattr(torch.nn.functional, name)
    return functional.shown(
        getattr(function, "__wrapped__", function), watches, torch.jit.script_if_tracing
    )


def logits(*shape: int) -> Any:
    """Outputs that are trained."""
    return torch.randn(*shape, requires_grad=True)


def shares(*shape: int) -> Any:
    """Probabilities."""
    return torch.softmax(torch.randn(*shape), -1)


def labels(*shape: int) -> Any:
    """Labels."""
    return torch.randint(5, shape)


@table(
    ("name", "given", "said"),
    [
        ("kl_div", lambda: (logits(4, 5).softmax(-1), shares(4, 5)), "has probabilities"),
        ("kl_div", lambda: (logits(4, 5).log_softmax(-1), shares(4, 5)), ""),
        ("kl_div", lambda: (logits(4, 5) + 3, shares(4, 5)), "values up to"),
        ("kl_div", lambda: (logits(2, 5, 3).log_softmax(1), shares(2, 5, 3)), ""),
        ("kl_div", lambda: (logits(4, 5).log_softmax(-1), shares(4, 5).log()), "less than 0"),
        ("kl_div", lambda: (logits(4, 2000).log_softmax(-1), shares(4, 2000)), "2,000: its value"),
        ("nll_loss", lambda: (logits(4, 5) + 3, labels(4)), "values up to"),
        ("nll_loss", lambda: (logits(4, 5).log_softmax(-1), labels(4)), ""),
        ("nll_loss", lambda: (logits(2, 5, 3).log_softmax(1), labels(2, 3)), ""),
        ("nll_loss", lambda: (logits(8, 5).log_softmax(0) / 4, labels(8)), "for one label"),
        ("binary_cross_entropy_with_logits", lambda: (logits(9), torch.arange(9.0)), "to 8"),
        ("binary_cross_entropy_with_logits", lambda: (logits(9), torch.rand(9)), ""),
        (
            "binary_cross_entropy_with_logits",  # some may be masked by their weight
            lambda: (logits(9), torch.arange(9.0), torch.zeros(9)),
            "",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:reduction")
def test_what_losses_are_given(name: str, given: Any, said: str, told: Told) -> None:
    """A line's first three calls are judged at its fourth."""
    before = len(told())
    reporting._sent.clear()
    loss = shown(name, LossInputs())
    for _ in range(5):
        loss(*given())
    found = told()[before:]
    assert [said in line for line in found] == [True] * bool(said), found


@pytest.mark.filterwarnings("ignore:reduction")
def test_calls_that_are_not_looked_at(told: Told) -> None:
    """Without gradients, masked later, or on a device that has no values."""
    looks = LossInputs()
    loss = shown("kl_div", looks)
    for _ in range(5):
        with torch.no_grad():
            loss(shares(4, 5), shares(4, 5))
        loss(logits(4, 5).to("meta"), shares(4, 5).to("meta"))
    binary = shown("binary_cross_entropy_with_logits", looks)
    for _ in range(5):
        binary(logits(9), torch.arange(9.0), reduction="none")
    assert told() == []


def test_samples_of_large_tensors() -> None:
    """They have few elements, and rows as a whole."""
    some = loss_functions._some_of(torch.zeros(64, 512, 1000), 2)
    assert some.shape[2] == 1000
    assert some.numel() <= 2 * loss_functions.ELEMENTS
    assert loss_functions._some_of(torch.zeros(3, 4), -1).shape == (3, 4)
    assert loss_functions._some_of(torch.zeros(1 << 20)).numel() <= loss_functions.ELEMENTS


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:reduction")
def test_marks_of_a_wrapped_function() -> None:
    """TorchScript compiles the original, and the result is unchanged."""
    loss = shown("kl_div", LossInputs())

    def scripted(given: Any, target: Any) -> Any:
        return loss(given, target)

    assert loss.__wrapped__ is not loss
    assert loss.__name__ == "kl_div"
    compiled = torch.jit.script(loss)
    first, second = torch.rand(3), torch.rand(3)
    assert torch.equal(compiled(first, second), scripted(first, second))
    with pytest.raises(RuntimeError):
        loss(torch.rand(3), torch.rand(4))


def trained(
    monkeypatch: pytest.MonkeyPatch, told: Told, loss_of: Any, *, micro: int = 2
) -> list[str]:
    """The findings of five steps of micro batches."""
    steps = 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)
    looks = TokenLosses()
    function = shown("cross_entropy", looks)
    for steps in range(5):
        for place in range(micro):
            loss_of(function, steps, place).backward()
            schedules.passes += 1
    return told()


def text(count: int, tokens: int = 40) -> tuple[Any, Any]:
    """Outputs and labels, of which as many count."""
    return logits(tokens, 5), torch.where(torch.arange(tokens) < count, labels(tokens), -100)


@pytest.mark.parametrize(
    ("loss_of", "is_told"),
    [
        (lambda f, _, place: f(*text(10 + 20 * place)) / 2, True),
        (lambda f, *_: f(*text(30)) / 2, False),
        (lambda f, _, place: f(*text(10 + 20 * place)) * (10 + 20 * place) / 40, False),
        (lambda f, _, place: f(*text(10 + 20 * place), reduction="sum") / 40, False),
        (lambda f, _, place: f(*text(10 + 20 * place, 10 + 20 * place)) / 2, False),
    ],
    ids=["means", "equal", "weighed", "sums", "unmasked"],
)
def test_micro_batches(
    loss_of: Any, is_told: bool, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the gradient of each mean."""
    found = trained(monkeypatch, told, loss_of)
    assert [Check.DIVIDED in line for line in found] == [True] * is_told


def masked_mean(function: Any, steps: int, *, by_mask: bool) -> Any:
    """A mean over padded texts, of as many tokens as count or of all."""
    tokens = 40 + 4 * steps
    mask = (torch.arange(tokens) < 30 - 5 * steps).float()
    losses = function(logits(tokens, 5), labels(tokens), reduction="none") * mask
    return losses.sum() / mask.sum() if by_mask else losses.mean()


@pytest.mark.parametrize(
    ("loss_of", "is_told"),
    [
        (lambda f, steps, _: masked_mean(f, steps, by_mask=False), True),
        (lambda f, steps, _: masked_mean(f, steps, by_mask=True), False),
        (lambda f, steps, _: f(*text(30 - 5 * steps), reduction="none").mean(), True),
        (
            lambda f, steps, _: f(*text(30 - 5 * steps), reduction="none").sum() / (30 - 5 * steps),
            False,
        ),
        (lambda f, *_: f(logits(40, 5), labels(40), reduction="none").mean(), False),
        (lambda f, *_: f(logits(40, 5), labels(40), reduction="none").topk(8)[0].mean(), False),
    ],
    ids=["mean", "by the mask", "ignored", "by the labels", "whole", "hardest"],
)
def test_masked_losses(
    loss_of: Any, is_told: bool, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the gradient of each token's loss."""
    found = trained(monkeypatch, told, loss_of, micro=1)
    assert ["counts those that are left out" in line for line in found] == [True] * is_told
