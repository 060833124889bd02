"""A guard's report on a model never stops the training, whatever the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from safe_launch.core.model import shape_of
from safe_launch.evidence.observations import Observations
from safe_launch.evidence.worker_messages import Imports, Message, ModelShape, Observed
from support.lazy import Lazy

torch = Lazy("torch")
peft = Lazy("peft")


def llama() -> Any:
    """A tiny model of three layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return LlamaForCausalLM(config)


class Seen(Observations):
    """A worker's observations and their messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.report_to(self.messages.append)


def kinds(shape: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The parameters by name: shape, trained, bits, count."""
    return {name: [list(sizes), *rest] for name, sizes, *rest in shape["weights"]}


def test_equal_layers_are_one_kind() -> None:
    """Layer numbers become stars; the embedding is a separate kind."""
    shape = shape_of(llama())
    assert shape["config"]["num_hidden_layers"] == 3
    found = kinds(shape)
    assert found["model.layers.*.self_attn.k_proj.weight"] == [[8, 16], True, None, 3]
    assert found["model.embed_tokens.weight"] == [[50, 16], True, None, 1]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_keep_the_models_own_names() -> None:
    """Peft's prefixes are removed; the frozen base is separate from trained parameters."""
    model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj"]))
    found = kinds(shape_of(model))
    assert found["model.layers.*.self_attn.q_proj.weight"] == [[16, 16], False, None, 3]
    assert found["model.layers.*.self_attn.q_proj.lora_A.weight"] == [[4, 16], True, None, 3]


def test_wrappers_and_numbers_at_either_end() -> None:
    """DDP's and torch.compile's prefixes, lists of parameters and of modules."""
    model = torch.nn.Module()
    inner = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(2, 3))
    inner.bare = torch.nn.ParameterList([torch.ones(5), torch.ones(5)])
    model.module = torch.nn.Module()
    model.module._orig_mod = inner
    found = kinds(shape_of(model))
    assert found["*.weight"] == [[3, 2], True, None, 2]
    assert found["bare.*"] == [[5], True, None, 2]


def test_partitioned_and_quantized_parameters_are_whole() -> None:
    """The full shape is in ZeRO-3's `ds_shape` and bitsandbytes' `quant_state`."""
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data = torch.empty(0)
    model.weight.ds_shape = torch.Size([8, 4])
    assert kinds(shape_of(model)) == {"weight": [[8, 4], True, None, 1]}
    packed = torch.nn.Parameter(torch.zeros(16, 1, dtype=torch.uint8), requires_grad=False)
    packed.quant_state = torch.ones(8, 4)  # has a shape, as bitsandbytes' QuantState does
    model.weight = packed
    assert kinds(shape_of(model)) == {"weight": [[8, 4], False, 4.5, 1]}
    model.weight = torch.nn.Parameter(torch.zeros(8, 4, dtype=torch.int8), requires_grad=False)
    assert kinds(shape_of(model)) == {"weight": [[8, 4], False, 8.0, 1]}


def test_only_the_first_trained_model_is_described() -> None:
    """Teachers without gradients and later models are only counted."""
    seen = Seen()
    teacher = llama().requires_grad_(False)
    student, other = llama(), torch.nn.Linear(2, 2)
    for model in (teacher, student, student, other):
        seen.see_model(model)
    kinds_of_messages = [type(message) for message in seen.messages]
    assert kinds_of_messages == [Observed, Observed, ModelShape, Observed, Observed]
    assert seen.messages[2] == ModelShape(shape_of(student))
    assert seen.before_model is not None
    size = sum(parameter.numel() for parameter in teacher.parameters())
    assert seen.observed == {
        "frozen_beside": size,
        "frozen_parameters": False,
        "output": "vocabulary",
        "trained_beside": 6,
    }


def test_models_beside_the_trained_one() -> None:
    """A copy, a critic and two evaluated models count once; wrappers don't count."""
    seen = Seen()
    actor, reference, critic = torch.nn.Linear(4, 5), torch.nn.Linear(4, 5), torch.nn.Linear(4, 2)
    rewards = [torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)]
    seen.see_model(actor)
    seen.see_model(reference, is_trained=False)
    seen.see_model(critic)
    for reward in (*rewards, *rewards, torch.nn.Sequential(actor), torch.nn.Sequential(reference)):
        seen.see_model(reward, is_trained=False)
    seen.see_model(torch.nn.Sequential(critic))
    assert seen.observed == {
        "frozen_parameters": False,
        "reference_model": True,
        "trained_beside": 10,
        "frozen_beside": 10,
    }


def test_a_model_after_the_first_step_is_not_counted() -> None:
    """The plan was made for the steps already done."""
    seen = Seen()
    models = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 3)]
    seen.see_model(models[0])
    seen.count_steps(lambda: 1)
    seen.count_steps(lambda: None)
    seen.see_model(models[1])
    assert seen.observed == {"frozen_parameters": False}


class Odd:
    """A configuration that isn't JSON."""

    def to_dict(self) -> dict[Any, Any]:
        """Has keys of two parts and a value that isn't JSON's."""
        return {("a", 1): 2, "kept": torch.float16}


class Broken:
    """A configuration that can't be read."""

    def to_dict(self) -> dict[Any, Any]:
        """Fails."""
        raise AttributeError("half-built")


def test_an_odd_configuration_is_told_as_far_as_it_goes() -> None:
    """Keys that JSON can't hold are omitted."""
    seen = Seen()
    model = torch.nn.Linear(2, 2)
    model.config = Odd()
    seen.see_model(model)
    assert isinstance(seen.messages[0], ModelShape)
    assert seen.messages[0].shape["config"] == {"kept": "torch.float16"}


def test_a_model_that_cannot_be_described_still_trains() -> None:
    """The script sees no exception, and other observations continue."""
    seen = Seen()
    model = torch.nn.Linear(2, 2)
    model.config = Broken()
    seen.see_model(model)
    lazy = torch.nn.LazyLinear(3)
    seen.see_model(lazy)
    assert [type(message) for message in seen.messages] == [Observed]
    assert list(seen.models()) == [lazy, model]


def test_imports_are_sent_with_the_first_model() -> None:
    """Imports are sent once, if the launcher asks for them."""
    seen = Seen()
    seen.report_imports_by(lambda: {"modules": ["torch"]})
    seen.see_model(torch.nn.Linear(2, 2))
    seen.see_model(torch.nn.Linear(2, 2))
    assert seen.messages.count(Imports({"modules": ["torch"]})) == 1


def test_what_is_known_is_sent_once() -> None:
    """Only news is sent; reentrant checkpointing, once seen, stays."""
    seen = Seen()
    seen.count_steps(lambda: 3)
    seen.see(zero_stage=2, gradient_checkpointing="reentrant")
    seen.see(zero_stage=2, gradient_checkpointing="non_reentrant", offload=None)
    first = Observed({"zero_stage": 2, "gradient_checkpointing": "reentrant"}, 3)
    assert seen.messages == [first]
    assert seen.observed == first.observed


def test_another_training_of_the_process_is_seen() -> None:
    """A new counter after some steps means another training; after 0 steps the same."""
    seen, first = Observations(), [0]
    seen.count_steps(lambda: first[0])
    seen.count_steps(lambda: 0)
    assert not seen.has_trained
    seen = Observations()
    seen.count_steps(lambda: first[0])
    first[0] = 5
    seen.count_steps(lambda: 0)
    assert (seen.has_trained, seen.step()) == (True, 0)
