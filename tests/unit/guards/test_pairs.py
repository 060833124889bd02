"""Contrastive batches that have samples twice."""

from __future__ import annotations

from typing import Any

import pytest
from safe_launch.checks import given
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.checks.given import Pairs
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import functional, pairs
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")


@table(
    ("batches", "is_told"),
    [
        ([Pairs(8, True, 3)] * 3, True),
        ([Pairs(8, True, 3), Pairs(8, True, 0), Pairs(8, True, 1)], True),
        ([Pairs(8, True, 3), Pairs(8, True, 0), Pairs(8, True, 0)], False),
        ([Pairs(8, False, 3)] * 3, False),  # classes
        ([Pairs(8, True, 7)] * 3, False),  # one text for all
        ([Pairs(64, True, 2)] * 3, False),
        ([Pairs(8, True, 3)] * 2, False),
    ],
)
def test_samples_that_are_drawn_twice(batches: list[Pairs], is_told: bool) -> None:
    """A tenth of them in two of three batches."""
    assert (given.false_negatives(batches) is not None) == is_told


@pytest.mark.parametrize("case", ["twice", "once", "masks", "classes"])
def test_batches_that_a_model_is_given(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rows of its inputs, of which masks are often equal."""
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    steps = 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)
    function = torch.nn.functional.cross_entropy
    mark = torch.jit.script_if_tracing
    looks = pairs.ContrastiveBatches()
    loss = functional.shown(getattr(function, "__wrapped__", function), (looks,), mark)

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(64, 4)

        def forward(self, query: Any, text: Any, mask: Any) -> Any:
            left, right = (self.embedding(each).mean(1) for each in (query, text))
            labels = torch.arange(8) if case != "classes" else torch.tensor([0, 1] * 4)
            return loss(left @ right.T + mask.sum(), labels)

    model = Model()
    for steps in range(5):  # noqa: B007 - read by steps_of_all
        text = torch.arange(32).reshape(8, 4)
        if case in ("twice", "classes"):
            text = text[torch.tensor([0, 1, 2, 3, 4, 5, 0, 1])]
        mask = torch.ones(8, 4, dtype=torch.int64)
        if case == "masks":
            mask[0] = 0
        model(torch.arange(32).reshape(8, 4), text, mask).backward()
    found = [each.finding.line for each in sent if isinstance(each, Found)]
    assert ["2 of 8 have the text of another" in line for line in found] == [True] * (
        case == "twice"
    )
