"""Fields that a Trainer drops and its loss asks for; other inputs and Trainers train as before."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks.trainer_losses import install
from support import new_worker
from support.tables import table


def weighted(_trainer: Any, inputs: Any) -> Any:
    """A loss that asks for a field."""
    return inputs.get("weight", 1) * inputs["x"]


class Trainer:
    """Drops all fields but `x`."""

    compute_loss: Any = weighted

    def __init__(self, **asked: Any) -> None:
        self.args = SimpleNamespace(**asked)
        self.train_dataset = [{"x": 2, "weight": 3}]

    def training_step(self, _model: Any, inputs: Any) -> Any:
        """A step on a copy of the inputs, as of a device."""
        return self.compute_loss(
            type(inputs)(inputs) if type(inputs) is not defaultdict else inputs
        )


class Unusual(Trainer):
    """A loss without a module."""

    compute_loss: Any = partial(weighted, None)


@table(
    ("kind", "asked", "inputs", "is_told"),
    [
        (Trainer, {"remove_unused_columns": True}, {"x": 2}, True),
        (Trainer, {"remove_unused_columns": True}, {"x": 2, "weight": 1}, False),
        (Trainer, {"remove_unused_columns": False}, {"x": 2}, False),
        (Trainer, {"remove_unused_columns": True}, OrderedDict(x=2), False),
        (Trainer, {"remove_unused_columns": True}, defaultdict(int, x=2), False),
        (Trainer, {}, {"x": 2}, False),
        (Unusual, {"remove_unused_columns": True}, {"x": 2}, False),
    ],
)
def test_fields_that_a_loss_asks_for(
    kind: type[Trainer],
    asked: dict[str, Any],
    inputs: Any,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Told once, if a sample has the field; the loss is the same."""
    messages: list[Message] = []
    new_worker.begin().report_to(messages.append)
    monkeypatch.setenv(VARIABLE, Check.DATA)
    monkeypatch.setattr(Trainer, "training_step", Trainer.training_step)  # set back afterwards
    install(SimpleNamespace(Trainer=Trainer, __name__="transformers.trainer"))  # type: ignore[arg-type]
    trainer = kind(**asked)
    for _ in range(2):
        assert trainer.training_step(None, inputs) == 2
    found = [each.finding.sentence for each in messages if isinstance(each, Found)]
    assert len(found) == is_told
    assert all("weighted asks for weight" in sentence for sentence in found)
