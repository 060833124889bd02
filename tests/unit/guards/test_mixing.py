"""Attention, recurrence and softmax in the first steps: what they mix, each with right twins."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks import layers
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import mixing
from safe_launch.guards.checks.functional import shown
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")
Fit = Callable[..., list[str]]
BATCH, LENGTH = 4, 7


@table(
    ("batch", "given", "inputs", "is_told"),
    [
        (16, (16, 12), ((16, 12),), True),
        (16, (12, 16), ((16, 12),), False),
        (16, (16, 12), ((12, 16),), False),  # the script's batches have the sequence first
        (16, (16, 16), ((16, 16),), False),
        (16, (16, 1), ((16, 1),), False),  # attention between samples, as BatchFormer's
        (16, (16, 32), ((32, 16),), False),
        (8, (16, 12), ((16, 12),), False),
        (16, (), ((16, 12),), False),
    ],
)
def test_layers_over_the_batch(
    batch: int, given: tuple[int, ...], inputs: tuple[tuple[int, ...], ...], is_told: bool
) -> None:
    """The sizes say so in each of three steps."""
    assert layers.is_over_batch(batch, given, inputs) == is_told
    assert (layers.over_batch("LSTM", [given if is_told else ()] * 3) is not None) == is_told
    assert layers.over_batch("LSTM", [given] * 2) is None


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Makes five steps of a model, and returns the findings' lines."""
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    sent: list[Message] = []
    observations.report_to(sent.append)
    steps = 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: steps)

    def fitted(model: Any, batch_of: Callable[[], Any], loss_of: Callable[..., Any]) -> list[str]:
        nonlocal steps
        looks = mixing.Mixing()
        functional, mark = torch.nn.functional, torch.jit.script_if_tracing
        for name in (mixing.ATTENTION, "cross_entropy"):
            function = getattr(functional, name)
            original = getattr(function, "__wrapped__", function)
            monkeypatch.setattr(functional, name, shown(original, (looks,), mark))
        monkeypatch.setattr(mixing, "known_models", lambda: [model])
        looks.begin(SimpleNamespace(batch_size=BATCH))
        for steps in range(5):  # noqa: B007 - read by steps_of_all
            batch = batch_of()
            loss_of(model, batch).backward()
        return [each.finding.line for each in sent if isinstance(each, Found)]

    return fitted


def words() -> Any:
    """A batch of texts, with padding behind."""
    made = torch.randint(1, 9, (BATCH, LENGTH))
    made[0, 4:] = 0
    return made


def model_of(kind: str, **options: Any) -> Any:
    """A model of words with a layer of a kind."""
    nn = torch.nn

    class Words(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 8, padding_idx=0)
            is_first = options.get("batch_first", True)
            self.layer = (
                nn.GRU(8, 8, batch_first=is_first)
                if kind == "recurrent"
                else nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=is_first)
            )
            self.score, self.head = nn.Linear(8, 1), nn.Linear(8, 9)

        def forward(self, ids: Any) -> Any:
            values = self.embedding(ids)
            if kind == "recurrent":
                return self.head(self.layer(values)[0])
            if kind == "pooled":
                weights = torch.softmax(self.score(values), dim=options["dim"])
                return self.head((weights * values).sum(1))
            mask = padding = None
            if options.get("is_causal"):
                mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            if "is_padding" in options:
                padding = (ids == 0) == options["is_padding"]
            return self.head(self.layer(values, mask, src_key_padding_mask=padding))

    return Words()


def first_loss(model: Any, ids: Any) -> Any:
    """A class for each text."""
    made = model(ids)
    made = made[:, 0] if made.ndim == 3 else made
    return torch.nn.functional.cross_entropy(made, ids[:, 0])


def next_loss(model: Any, ids: Any) -> Any:
    """The next words."""
    made = model(ids[:, :-1])
    return torch.nn.functional.cross_entropy(made.flatten(0, 1), ids[:, 1:].flatten())


def same_loss(model: Any, ids: Any) -> Any:
    """The words themselves, as of a masked model."""
    made = model(torch.where(ids == 3, 8, ids))
    return torch.nn.functional.cross_entropy(made.flatten(0, 1), ids.flatten())


@pytest.mark.parametrize(
    ("kind", "options", "loss_of", "said"),
    [
        ("recurrent", {"batch_first": False}, first_loss, "a layer runs over the batch: GRU"),
        ("recurrent", {}, first_loss, ""),
        (
            "attention",
            {"batch_first": False},
            first_loss,
            "a layer runs over the batch: MultiheadAttention",
        ),
        ("attention", {}, first_loss, ""),
        ("attention", {"is_padding": True}, first_loss, ""),
        ("attention", {"is_padding": False}, first_loss, "sees nothing but padding"),
        ("attention", {}, next_loss, "sees the words that it learns to predict"),
        ("attention", {"is_causal": True}, next_loss, ""),
        ("attention", {}, same_loss, ""),
        ("recurrent", {}, next_loss, ""),
        ("pooled", {"dim": 0}, first_loss, "a softmax runs over the batch"),
        ("pooled", {"dim": 1}, first_loss, ""),
        ("pooled", {"dim": -1}, first_loss, ""),
    ],
)
def test_what_layers_mix(
    kind: str, options: dict[str, Any], loss_of: Callable[..., Any], said: str, fit: Fit
) -> None:
    """One finding by the third or fourth step, or none."""
    found = fit(model_of(kind, **options), words, loss_of)
    assert [said in line for line in found] == [True] * bool(said), found


def test_pairs_of_a_batch(fit: Fit) -> None:
    """A softmax over the first dimension of a square is a symmetric loss's."""
    model = torch.nn.Linear(3, 3)

    def loss_of(model: Any, values: Any) -> Any:
        scores = model(values) @ values.T
        return torch.nn.functional.cross_entropy(
            torch.log_softmax(scores, 0).T, torch.arange(BATCH)
        )

    assert fit(model, lambda: torch.randn(BATCH, 3), loss_of) == []
