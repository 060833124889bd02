"""What a guard reports of a model; whatever the model is like, its training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safe_launch.evidence import observations
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=50,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=3,
    num_attention_heads=2,
    num_key_value_heads=1,
)


class Told:
    """The launcher's end of the channel."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Mapping[str, Any]]] = []

    def send(self, kind: str, content: Mapping[str, Any]) -> None:
        """Keeps what a worker would send."""
        self.messages.append((kind, content))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """A worker that has seen nothing yet."""
    told = Told()
    monkeypatch.setattr(observations, "sender", told)
    monkeypatch.setattr(observations, "_models", [])
    monkeypatch.setattr(observations, "observed", {})
    monkeypatch.setattr(observations, "before_model", None)
    return told


def kinds(shape: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The parameters by name: shape, trained, bits, count."""
    return {name: [list(sizes), *rest] for name, sizes, *rest in shape["weights"]}


def test_equal_layers_are_one_kind() -> None:
    """Numbers become stars; the embedding stands alone."""
    shape = observations.shape_of(LlamaForCausalLM(CONFIG))
    assert shape["config"]["num_hidden_layers"] == 3
    found = kinds(shape)
    assert found["model.layers.*.self_attn.k_proj.weight"] == [[8, 16], True, None, 3]
    assert found["model.embed_tokens.weight"] == [[50, 16], True, None, 1]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_keep_the_models_own_names() -> None:
    """Peft's prefixes are taken off, the frozen base is told from what is trained."""
    model = get_peft_model(LlamaForCausalLM(CONFIG), LoraConfig(r=4, target_modules=["q_proj"]))
    found = kinds(observations.shape_of(model))
    assert found["model.layers.*.self_attn.q_proj.weight"] == [[16, 16], False, None, 3]
    assert found["model.layers.*.self_attn.q_proj.lora_A.weight"] == [[4, 16], True, None, 3]


def test_wrappers_and_numbers_at_either_end() -> None:
    """DDP's and torch.compile's prefixes, and a list of parameters or of modules."""
    model = torch.nn.Module()
    inner = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(2, 3))
    inner.bare = torch.nn.ParameterList([torch.ones(5), torch.ones(5)])
    model.module = torch.nn.Module()
    model.module._orig_mod = inner
    found = kinds(observations.shape_of(model))
    assert found["*.weight"] == [[3, 2], True, None, 2]
    assert found["bare.*"] == [[5], True, None, 2]


def test_partitioned_and_quantized_parameters_are_whole() -> None:
    """ZeRO-3 keeps the shape in `ds_shape`, bitsandbytes that of 4 bits in `quant_state`."""
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data = torch.empty(0)
    model.weight.ds_shape = torch.Size([8, 4])
    assert kinds(observations.shape_of(model)) == {"weight": [[8, 4], True, None, 1]}
    packed = torch.nn.Parameter(torch.zeros(16, 1, dtype=torch.uint8), requires_grad=False)
    packed.quant_state = torch.ones(8, 4)  # has a shape, as bitsandbytes' QuantState does
    model.weight = packed
    assert kinds(observations.shape_of(model)) == {"weight": [[8, 4], False, 4.5, 1]}
    model.weight = torch.nn.Parameter(torch.zeros(8, 4, dtype=torch.int8), requires_grad=False)
    assert kinds(observations.shape_of(model)) == {"weight": [[8, 4], False, 8.0, 1]}


def test_only_the_first_trained_model_is_described(told: Told) -> None:
    """A teacher without a gradient is none; a second model changes nothing."""
    teacher = LlamaForCausalLM(CONFIG).requires_grad_(False)
    student, other = LlamaForCausalLM(CONFIG), torch.nn.Linear(2, 2)
    for model in (teacher, student, student, other):
        observations.see_model(model)
    assert [kind for kind, _ in told.messages] == ["model", "observed"]
    assert told.messages[0][1]["shape"] == observations.shape_of(student)
    assert observations.before_model is not None


class Odd:
    """A configuration that JSON can't hold as it is."""

    def to_dict(self) -> dict[Any, Any]:
        """Keys of two parts, a value that isn't JSON's."""
        return {("a", 1): 2, "kept": torch.float16}


class Broken:
    """A configuration that can't be had."""

    def to_dict(self) -> dict[Any, Any]:
        """Fails."""
        raise AttributeError("half-built")


def test_an_odd_configuration_is_told_as_far_as_it_goes(told: Told) -> None:
    """What JSON has no key for is left out."""
    model = torch.nn.Linear(2, 2)
    model.config = Odd()
    observations.see_model(model)
    assert told.messages[0][1]["shape"]["config"] == {"kept": "torch.float16"}


def test_a_model_that_cannot_be_described_still_trains(told: Told) -> None:
    """Nothing is raised into the user's script, and the rest is seen all the same."""
    model = torch.nn.Linear(2, 2)
    model.config = Broken()
    observations.see_model(model)
    lazy = torch.nn.LazyLinear(3)
    observations.see_model(lazy)
    assert [kind for kind, _ in told.messages] == ["observed"]
    assert list(observations.models()) == [lazy, model]
