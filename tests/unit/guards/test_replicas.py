"""Weights that FSDP2 divides, with stand-ins for its shards."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks import between_ranks
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import VARIABLE
from safe_launch.evidence.worker_messages import Message
from safe_launch.guards import data_parallel
from safe_launch.guards.checks import early_steps, replicas
from support.lazy import Lazy
from support.new_worker import begin
from support.tables import table

torch = Lazy("torch")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Compared]]:
    """What a rank sends of a model that is divided, and then changed by a function."""
    monkeypatch.setenv(VARIABLE, "replicas")
    monkeypatch.setattr(data_parallel, "world", lambda: 2)
    monkeypatch.setattr(replicas, "unjudged", [])
    fsdp: Any = SimpleNamespace(__name__=replicas.TORCHS)
    fsdp.fully_shard = lambda module, **_: module
    replicas.install(fsdp)

    def ran(change: Callable[[Any], object], size: int = 2) -> list[Compared]:
        messages: list[Message] = []
        begin().report_to(messages.append)
        model = torch.nn.Linear(8, 8)
        mesh = SimpleNamespace(size=lambda: size)
        fsdp.fully_shard(model, mesh=mesh)
        with torch.no_grad():
            change(model)
        early_steps.before(SimpleNamespace(), 1)
        return [message for message in messages if isinstance(message, Compared)]

    return ran


@pytest.mark.parametrize(
    ("change", "size", "is_sent"),
    [
        (lambda _: None, 2, True),
        (lambda model: model.weight.zero_(), 2, False),  # a load after it
        (lambda _: None, 1, False),  # a mesh of some ranks
    ],
)
def test_what_is_sent(
    sent: Callable[..., list[Compared]],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Any], object],
    size: int,
    is_sent: bool,
) -> None:
    """Digests of the whole weights, if they are trained as they were divided."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    found = sent(change, size)
    assert [one.what for one in found] == [Shared.DIVIDED] * is_sent
    assert all(one.names == ("weight", "bias") for one in found)


@table(("values", "is_told"), [({0: "a b", 1: "a c"}, True), ({0: "a b", 1: "a b"}, False)])
def test_weights_of_ranks(values: dict[int, str], is_told: bool) -> None:
    """They must be equal."""
    compared = Compared(Shared.DIVIDED, "", "train.py:7#1", 0, ("v", "w"))
    found = between_ranks.judged(compared, values, range(2))
    assert (found is not None) == is_told
    assert found is None or (found.parameter, found.certain) == ("w", False)
