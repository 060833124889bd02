"""The first batches of trainers that reward groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import rewards
from support import new_worker
from support.lazy import Lazy

torch = Lazy("torch")


def trainer_class() -> Any:
    """A trainer as TRL has it."""

    class GRPOTrainer:
        num_generations = 2
        max_completion_length = 3

        def __init__(self, **options: float) -> None:
            self.args = SimpleNamespace(**options)
            self.model = SimpleNamespace(training=True)

        def training_step(self, model: Any, inputs: Any) -> Any:
            return model, inputs

        def compute_loss(self, model: Any, inputs: Any) -> Any:
            return model, inputs

        def _generate(self) -> None: ...

    GRPOTrainer.__module__ = "trl.trainer.grpo_trainer"
    module = SimpleNamespace(GRPOTrainer=GRPOTrainer, __name__="trl.trainer.grpo_trainer")
    rewards.install(module)  # type: ignore[arg-type]
    return GRPOTrainer


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """What the worker sends."""
    messages: list[Message] = []
    new_worker.begin().report_to(messages.append)
    monkeypatch.setenv(VARIABLE, f"{Check.TRAINED},{Check.DATA}")
    return messages


def sentences(sent: list[Message]) -> list[str]:
    """The sentences of the findings."""
    assert all(isinstance(each, Found) for each in sent)
    return [each.finding.sentence for each in sent if isinstance(each, Found)]


@pytest.mark.parametrize(
    ("prompts", "is_own", "is_found"),
    [("aabb", False, False), ("abab", False, True), ("abab", True, False)],
)
def test_groups(prompts: str, is_own: bool, is_found: bool, sent: list[Message]) -> None:
    """Mixed groups are found, unless the script makes them itself."""
    kind = trainer_class()
    if is_own:
        kind = type("Own", (kind,), {"_generate": lambda _: None})
    trainer = kind(top_p=1.0)
    rows = [{"prompt": prompt} for prompt in prompts]
    for _ in range(4):
        assert trainer.training_step(1, rows) == (1, rows)
    assert ["several prompts" in each for each in sentences(sent)] == [True] * is_found


@pytest.mark.parametrize(
    ("advantages", "length", "words"),
    [
        ([0.0, 0.0], 3, "every completion is cut"),
        ([0.0, 0.0], 2, "the rewards teach nothing"),
        ([0.5, -0.5], 3, ""),
    ],
)
def test_advantages(advantages: list[float], length: int, words: str, sent: list[Message]) -> None:
    """They are zero in ten batches of a training."""
    trainer = trainer_class()()
    mask = torch.ones(2, length)
    inputs = {"advantages": torch.tensor(advantages), "completion_mask": mask}
    for _ in range(11):
        assert trainer.compute_loss(1, inputs)[1] is inputs
    assert [words in each for each in sentences(sent)] == [True] * bool(words)


def test_sampling(sent: list[Message]) -> None:
    """The trainer's options are looked at once."""
    trainer = trainer_class()(top_p=0.5, top_k=0)
    for _ in range(3):
        trainer.training_step(1, [{"prompt": "a"}] * 2)
    (sentence,) = sentences(sent)
    assert "top_p=0.5 cut" in sentence
