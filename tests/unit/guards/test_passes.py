"""What the first training passes have for padding and labels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import passes, tokenizers
from support import new_worker
from support.lazy import Lazy
from support.tables import table

torch = Lazy("torch")
transformers = Lazy("transformers")

LEFT = [[0, 0, 0, 5], [0, 0, 6, 7], [5, 6, 7, 8]]
RIGHT = [row[::-1] for row in LEFT]
SMALL = {"vocab_size": 50, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
WIDE = {**SMALL, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 16}
HEADS = {"vocab_size": 50, "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16}


@pytest.fixture(autouse=True)
def is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks are on, and no tokenizer is known."""
    monkeypatch.setenv(VARIABLE, f"{Check.DATA},{Check.TRAINED}")
    monkeypatch.setattr(tokenizers, "_known", set())
    monkeypatch.setattr(tokenizers, "added", {})


def model(kind: str, **more: Any) -> Any:
    """A small model of a class of transformers'."""
    match kind.partition("For")[0].removesuffix("LMHeadModel"):
        case "GPT2":
            config = transformers.GPT2Config(**HEADS | {"pad_token_id": 0} | more)
        case family:
            config = getattr(transformers, f"{family}Config")(**WIDE | more)
    return getattr(transformers, kind)(config)


def facts(kind: str, rows: list[list[int]], mask: Any = "right", **more: Any) -> list[int]:
    """The places of the facts that a batch shows."""
    ids = torch.tensor(rows)
    masks = {"right": (ids != 0).long(), "ones": torch.ones_like(ids), None: None}
    asked = {name: more.pop(name) for name in ("position_ids",) if name in more}
    given = {"input_ids": ids, "attention_mask": masks[mask], **asked}
    found = [*passes.padding_facts(model(kind, **more), given)]
    assert len(found) == 4
    return [place for place, fact in enumerate(found) if fact]


LLAMA, BERT = "LlamaForSequenceClassification", "BertForSequenceClassification"


@table(
    ("shown", "asked", "more"),
    [
        ([0], (LLAMA, RIGHT), {"pad_token_id": 3}),
        ([], (LLAMA, RIGHT), {}),
        ([], (LLAMA, LEFT), {}),
        ([], (LLAMA, LEFT), {"pad_token_id": 3}),
        ([], (BERT, RIGHT), {"pad_token_id": 3}),  # it reads the first token
        ([1], (BERT, RIGHT, None), {}),
        ([1], (BERT, RIGHT, "ones"), {}),
        ([], (BERT, RIGHT), {}),
        ([], (BERT, RIGHT, "ones"), {"pad_token_id": 9}),
        ([], (BERT, [[5, 0, 0], [6, 0, 0]], "ones"), {}),  # all alike: zeros may be words
        ([], (BERT, [[0, 5, 0, 0], [6, 0, 0, 0]], "ones"), {}),  # zeros are words
        ([3], (BERT, LEFT), {}),
        ([], ("LlamaForCausalLM", RIGHT, "ones"), {}),  # nothing sees what is behind
        ([2], ("LlamaForCausalLM", LEFT, "ones"), {}),
        ([2], ("LlamaForCausalLM", LEFT, None), {}),
        ([], ("LlamaForCausalLM", LEFT), {}),
        ([3], ("GPT2LMHeadModel", LEFT), {}),
        ([], ("GPT2LMHeadModel", RIGHT), {}),
        ([], ("GPT2LMHeadModel", LEFT), {"position_ids": 1}),
        ([], ("OPTForCausalLM", LEFT), {"ffn_dim": 8, "word_embed_proj_dim": 8}),
    ],
)
def test_padding(shown: list[int], asked: tuple[Any, ...], more: dict[str, Any]) -> None:
    """Each fact, and the models and batches that are right."""
    assert facts(*asked, **more) == shown


def test_passes() -> None:
    """Three batches are looked at; the finding is sent once, and the outputs are the model's."""
    sent: list[Message] = []
    new_worker.begin().report_to(sent.append)
    trained = model(BERT, num_labels=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ids = torch.tensor(RIGHT * 2)
    labels = torch.tensor([0.0, 1.0] * 3)
    before = trained(ids, labels=labels).loss
    trained.config.problem_type = None
    passes.watch(trained)
    for _ in range(12):
        assert trained(ids, labels=labels).loss == before
    sentences = [each.finding.sentence for each in sent if isinstance(each, Found)]
    assert len(sentences) == len(sent) == 2
    assert "padding is attended" in sentences[0]
    assert "two classes are learnt as numbers" in sentences[1]
    assert not trained._forward_pre_hooks


@table(
    ("asked", "given", "is_found"),
    [
        (False, {}, True),
        (True, {}, False),
        (False, {"output_router_logits": True}, False),
    ],
)
def test_experts(asked: bool, given: dict[str, bool], is_found: bool) -> None:
    """A model with routers, by its configuration and the call."""
    router = torch.nn.ModuleDict({"gate": torch.nn.Linear(2, 2)})
    layers = torch.nn.ModuleDict({"layer": router})
    config = SimpleNamespace(router_aux_loss_coef=0.02, output_router_logits=asked)
    assert (passes._unbalanced(layers, config, given) is not None) == is_found
    layers.requires_grad_(False)
    assert passes._unbalanced(layers, config, given) is None
