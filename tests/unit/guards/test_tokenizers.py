"""Chats that are rendered before a training, their markers, and losses of loaded models."""

from __future__ import annotations

from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.checks.passed import Chats
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import passes, tokenizers
from support import new_worker
from support.lazy import Lazy

torch = Lazy("torch")
transformers = Lazy("transformers")

ASKED = {"role": "user", "content": "a question that is long enough"}
THOUGHT = "<think>some long thoughts</think>"
FIRST = {"role": "assistant", "content": f"{THOUGHT}an answer that is long enough"}
LAST = {"role": "assistant", "content": "the end"}
WHOLE = " ".join(each["content"] for each in (ASKED, FIRST, ASKED, LAST))


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> Chats:
    """No chats yet."""
    monkeypatch.setattr(tokenizers, "noted", Chats())
    return tokenizers.noted


@pytest.mark.parametrize(
    ("chat", "text", "is_asking", "expected"),
    [
        ([ASKED, FIRST, ASKED, LAST], WHOLE, False, Chats(1, 0, 1, 0)),
        ([ASKED, FIRST, ASKED, LAST], WHOLE.replace(THOUGHT, ""), False, Chats(1, 0, 1, 1)),
        ([ASKED, FIRST], "", True, Chats(1, 1, 0, 0)),
        ([ASKED], "", True, Chats()),
        ([ASKED, FIRST], {"input_ids": [1]}, False, Chats(1)),
        ([[ASKED, FIRST], [ASKED, LAST]], ["", ""], False, Chats(2)),
        ([ASKED, {**LAST, "thinking": THOUGHT}], "the end", False, Chats(1, 0, 0, 0, 1, 1)),
        ([ASKED, {**LAST, "thinking": THOUGHT}], THOUGHT, False, Chats(1, 0, 0, 0, 1, 0)),
        ([], "", True, Chats()),
    ],
)
def test_chats(chat: Any, text: Any, is_asking: bool, expected: Chats, noted: Chats) -> None:
    """What is noted of one."""
    tokenizers._note_chats(chat, text, is_asking)
    assert noted == expected


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        ("<|im_start|>user", ["<|im_start|>"]),
        ("<start_of_turn>user", ["<start_of_turn>"]),
        ("a <b> |> [INST] </s>", []),
    ],
)
def test_markers(text: str, markers: list[str]) -> None:
    """Those of templates alone."""
    assert tokenizers.MARKER.findall(text) == markers


def test_known_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is unknown to all."""

    class Speaker:
        unk_token_id = 0

        def convert_tokens_to_ids(self, token: str) -> int | None:
            return {"<|a|>": 4, "<|b|>": 0}.get(token)

    monkeypatch.setattr(tokenizers, "_known", {Speaker()})
    known = [tokenizers.is_known(token) for token in ("<|a|>", "<|b|>", "<|c|>")]
    assert known == [True, False, False]


@pytest.mark.parametrize(("is_loaded", "scale"), [(True, 20.0), (True, 1.0), (False, 20.0)])
def test_losses(is_loaded: bool, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a loaded model that are far above a guess's."""
    sent: list[Message] = []
    new_worker.begin().report_to(sent.append)
    monkeypatch.setenv(VARIABLE, Check.DATA)
    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2)
    model = transformers.LlamaForCausalLM(config)
    monkeypatch.setattr(passes, "loaded", {model} if is_loaded else set())
    guesses = passes.Guesses()
    for _ in range(3):
        guesses.look(model, {"loss": torch.tensor(scale)})
    assert not guesses.is_open
    sentences = [each.finding.sentence for each in sent if isinstance(each, Found)]
    assert ["worse than chance" in each for each in sentences] == [True] * (is_loaded and scale > 9)
