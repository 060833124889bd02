"""Adapters of peft's: what they name, and merges into tied weights."""

from __future__ import annotations

from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards.checks import adapters
from support import new_worker
from support.lazy import Lazy

torch = Lazy("torch")
transformers = Lazy("transformers")
peft = Lazy("peft")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """What the worker sends."""
    messages: list[Message] = []
    new_worker.begin().report_to(messages.append)
    monkeypatch.setenv(VARIABLE, f"{Check.TRAINED},{Check.SAVED}")
    return messages


def sentences(sent: list[Message]) -> list[str]:
    """The sentences of the findings."""
    assert all(isinstance(each, Found) for each in sent)
    return [each.finding.sentence for each in sent if isinstance(each, Found)]


def small(**more: Any) -> Any:
    """A small decoder."""
    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, **more)
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("inference", [False, True])
def test_names(inference: bool, sent: list[Message]) -> None:
    """Both lists are looked at, and the maker is called as it was."""
    calls: list[Any] = []
    names = ["q_proj", "other"]
    config = peft.LoraConfig(
        target_modules=names, modules_to_save=["wte"], inference_mode=inference
    )
    model = small()
    made = (lambda *args, **_: calls.append(args)), None, (model, config), {}
    adapters._making(peft, *made)
    assert calls == [(model, config)]
    found = sentences(sent)
    assert len(found) == 2 * (not inference)
    assert inference or ("other of target_modules" in found[0] and "wte of modules" in found[1])
    assert config.target_modules == {*names}


@pytest.mark.parametrize(
    ("targets", "is_tied", "is_trained", "is_found"),
    [
        (["q_proj", "lm_head"], True, True, True),
        (["q_proj", "embed_tokens"], True, True, True),
        (["q_proj", "lm_head", "embed_tokens"], True, True, False),
        (["q_proj"], True, True, False),
        (["q_proj", "lm_head"], False, True, False),
        (["q_proj", "lm_head"], True, False, False),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_merges(
    targets: list[str], is_tied: bool, is_trained: bool, is_found: bool, sent: list[Message]
) -> None:
    """An adapter of one of two tied weights changes both."""
    model = peft.get_peft_model(
        small(tie_word_embeddings=is_tied), peft.LoraConfig(target_modules=targets)
    )
    if is_trained:
        for name, parameter in model.named_parameters():
            if "_B" in name:
                torch.nn.init.ones_(parameter)
    tuner = model.base_model
    adapters._look_at_ties(tuner)
    merged = tuner.merge_and_unload()
    assert type(merged) is transformers.LlamaForCausalLM
    assert ["merge_and_unload changes" in each for each in sentences(sent)] == [True] * is_found
