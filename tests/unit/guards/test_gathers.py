"""Features that are gathered without gradients, in one process that stands for two."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check, Finding
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message, Skipped
from safe_launch.guards.checks.gathers import Gathers, gathers, install
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")

ROWS, WIDTH = 4, 16

Told = Callable[[], list[Finding]]
World = tuple[Any, Gathers, Told]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Wrapped collectives of rank 0, its gathers, and the findings."""
    messages: list[Message] = []
    observations.report_to(messages.append)
    monkeypatch.setenv(VARIABLE, Check.GRADIENTS)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda _group: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda _group: 0)
    torch.manual_seed(0)
    others = torch.randn(ROWS, WIDTH)

    def all_gather(collected: list[Any], given: Any, group: Any = None) -> None:
        assert group is None
        with torch.no_grad():
            collected[0].copy_(given)
            collected[1].copy_(others)

    def all_gather_into_tensor(collected: Any, given: Any) -> None:
        all_gather(list(collected.chunk(2)), given)

    module = SimpleNamespace(all_gather=all_gather, all_gather_into_tensor=all_gather_into_tensor)
    install(module)  # type: ignore[arg-type]

    def told() -> list[Finding]:
        assert not [each for each in messages if isinstance(each, Skipped)]
        return [each.finding for each in messages if isinstance(each, Found)]

    return module, gathers, told


def features() -> Any:
    """A rank's features, with a gradient."""
    return torch.randn(ROWS, WIDTH, requires_grad=True) * 1.0


def test_constants_in_a_loss(world: World) -> None:
    """A finding at the next backward pass, and nothing is looked at afterwards."""
    module, gathers, told = world
    own, collected = features(), [torch.zeros(ROWS, WIDTH) for _ in range(2)]
    module.all_gather(collected, own)
    gathers.look((own @ torch.cat(collected).T).sum())
    (found,) = told()
    assert (found.check, found.certain, found.step) == (Check.GRADIENTS, False, 1)
    assert "all_gather" in found.sentence
    assert found.where.partition(":")[0].endswith("test_gathers.py")
    assert gathers.is_open is False
    module.all_gather(collected, own)
    assert gathers.noted == []


@table(
    ("kind", "is_told"),
    [
        *(("plain", True), ("normalized", True), ("in bfloat16", True), ("the left side", True)),
        *(("own put back", False), ("unused", False), ("without grad", False)),
        *(("own joined", True), ("own of two views joined", True), ("joined to others", False)),
        *(("own joined, times ranks", False), ("own joined, times half", True)),
        *(("detached", False), ("narrow", False), ("a mean", False)),
    ],
)
def test_kinds_of_losses(kind: str, is_told: bool, world: World) -> None:
    """Only constants in a product that has gradients are reported."""
    module, gathers, told = world
    gathers.is_open = True
    own, collected = features(), torch.zeros(2 * ROWS, WIDTH)
    given = own.detach() if kind == "detached" else own
    if kind == "narrow":  # its logits
        given, collected = own[:, :2], torch.zeros(2 * ROWS, 2)
        module.all_gather_into_tensor = lambda *_given: None
    is_joined = "joined" in kind
    with torch.no_grad() if kind == "without grad" or is_joined else nullcontext():
        module.all_gather_into_tensor(collected, given)
    if kind == "own put back":
        collected[:ROWS] = own
    if kind == "normalized":
        collected = torch.nn.functional.normalize(collected)
    loss = (own @ collected.T).sum() if kind != "narrow" else own.sum()
    match kind:
        case "in bfloat16":
            loss = (own.bfloat16() @ collected.bfloat16().T).sum()
        case "the left side":
            loss = (collected @ own.T).sum()
        case "own joined" | "own joined, times ranks" | "own joined, times half":
            joined = torch.cat([own, collected[ROWS:]])
            loss = (joined @ joined.T).sum()
            loss = loss * 2 if "ranks" in kind else loss * 0.5 if "half" in kind else loss
        case "own of two views joined":
            joined = torch.cat([own, collected[ROWS:]]).view(ROWS, 2, WIDTH)
            loss = (joined[:, 0] @ joined[:, 1].T).sum()
        case "joined to others":  # a queue of earlier features
            loss = (torch.cat([own, torch.randn(ROWS, WIDTH)]) @ own.T).sum()
        case "unused":
            loss = (own @ torch.randn(WIDTH, 2 * ROWS)).sum()
        case "a mean":
            loss = own.pow(2).mean()
    gathers.look(loss)
    assert gathers.is_open is not is_told
    assert {each.check for each in told()} <= {Check.GRADIENTS}


def test_only_in_the_first_steps(world: World) -> None:
    """Later gathers are passed on."""
    module, gathers, told = world
    observations.count_steps(lambda: 3)
    module.all_gather([torch.zeros(ROWS, WIDTH) for _ in range(2)], features())
    assert (gathers.is_open, gathers.noted, told()) == (False, [], [])
