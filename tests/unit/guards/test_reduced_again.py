"""Losses divided by the ranks, and gradients that are summed again, each with right ones."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks import divided
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards import data_parallel
from safe_launch.guards.checks import collectives, discarded
from safe_launch.guards.checks.losses import RANKS
from safe_launch.guards.checks.user_source import is_written_division
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")
Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed so far by the first of two ranks."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    return lambda: [each.finding.line for each in sent if isinstance(each, Found)]


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
    monkeypatch.setattr(collectives, "reduced", collectives.Reduced())
    model = torch.nn.Linear(4, 4)
    data_parallel.wrapped.add(model)
    module: Any = ModuleType("torch.distributed.distributed_c10d")
    added = {"sum": lambda each: each, "other": torch.rand_like}.get(kind, torch.zeros_like)

    def all_reduce(tensor: Any) -> None:
        tensor += added(tensor) if kind != "divided" else tensor

    module.all_reduce = all_reduce
    collectives.install(module)
    for step in range(1, 4):
        model(torch.ones(2, 4)).sum().backward()
        module.all_reduce(torch.ones(1))
        for parameter in model.parameters():
            module.all_reduce(parameter.grad)
            if kind == "divided":
                parameter.grad.div_(2)
        collectives.reduced.step(None, step)
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


def test_norms_that_are_not_converted(told: Told) -> None:
    """Only a norm layer itself isn't replaced in place."""
    nn: Any = torch.nn
    kind = type("SyncBatchNorm", (nn.SyncBatchNorm,), {})
    method = classmethod(nn.SyncBatchNorm.convert_sync_batchnorm.__func__)
    kind.convert_sync_batchnorm = method  # type: ignore[attr-defined]
    module: Any = ModuleType("torch.nn.modules.batchnorm")
    module.SyncBatchNorm = kind
    discarded.install(module)
    kind.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(4)))  # type: ignore[attr-defined]
    assert not told()
    kind.convert_sync_batchnorm(nn.BatchNorm1d(4))  # type: ignore[attr-defined]
    (said,) = told()
    assert "convert_sync_batchnorm is dropped" in said
