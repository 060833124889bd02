"""A process asked for its plan alone: no weights, no other ranks, no device."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from safe_launch.core.settings import Fact, Setting
from safe_launch.evidence.observations import shape_of
from safe_launch.evidence.worker_messages import ASKED_ALONE, EndOfQueryError
from safe_launch.guards import meta_models, plan_query
from support.lazy import Lazy

torch, transformers = Lazy("torch"), Lazy("transformers")
LLAMA = {
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A model's folder without weights."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return str(tmp_path)


def loaded(folder: str, **options: Any) -> Any:
    """The model created instead of loaded."""
    kind = transformers.LlamaForCausalLM
    return meta_models.load(kind.from_pretrained, kind, (folder,), options, is_stored=True)


def test_no_weights_are_read(folder: str) -> None:
    """No weights exist; shape, type and attention are the real ones."""
    model = loaded(folder, attn_implementation="eager")
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    assert {str(weight.dtype) for weight in model.parameters()} == {"torch.bfloat16"}
    assert model.config._attn_implementation == "eager"
    assert sum(weight.numel() for weight in model.parameters()) == 139_584
    assert torch.get_default_dtype() is torch.float32
    assert next(loaded(folder, dtype="float32").parameters()).dtype is torch.float32


def test_attention_that_needs_a_device_is_only_named(folder: str) -> None:
    """A login node lacks the device and often the package."""
    model = loaded(folder, attn_implementation="flash_attention_2")
    assert model.config._attn_implementation == "flash_attention_2"


def test_4_bits(folder: str) -> None:
    """All linear layers but the head are reported as bitsandbytes would store them."""
    model = loaded(folder, quantization_config={"load_in_4bit": True})
    bits = {name: held for name, _, _, held, _ in shape_of(model)["weights"]}
    assert bits["model.layers.*.self_attn.q_proj.weight"] == 4.5
    assert bits["lm_head.weight"] is None
    with pytest.raises(EndOfQueryError):
        loaded(folder, quantization_config={"quant_method": "gptq"})


def test_what_cant_be_made_ends_the_asking() -> None:
    """The model's code reads its weights."""

    class Curious:
        def __init__(self, _config: object) -> None:
            torch.zeros(1).item()

    options = {"config": transformers.LlamaConfig()}
    with pytest.raises(EndOfQueryError, match="Curious"):
        meta_models.load(None, Curious, (), options, is_stored=True)


def derived() -> tuple[Any, Any]:
    """Two classes of models as patched in a process that is asked."""

    class Base(torch.nn.Module):  # type: ignore[misc]
        made: ClassVar[list[str]] = []

        def __init_subclass__(cls, **_kwargs: Any) -> None:
            cls.made.append(cls.__name__)

    meta_models.build_unloaded(Base)

    class Model(Base):
        def __init__(self, width: int, *, curious: bool = False) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(width, width)
            if curious:
                self.first = self.layer.weight[0, 0].item()

    class Whole(Model):
        def __init__(self, width: int, path: str) -> None:
            super().__init__(width)
            self.part = loaded(path)

    assert Base.made == ["Model", "Whole"]
    return Model, Whole


def test_a_model_that_its_own_class_makes(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It and its parts have no weights, unless its code needs values."""
    model, whole = derived()
    assert inspect.signature(model).parameters.keys() == {"width", "curious"}
    assert {weight.device.type for weight in model(4).parameters()} == {"meta"}
    assert {weight.device.type for weight in whole(4, folder).parameters()} == {"meta"}
    assert model(4, curious=True).layer.weight.device.type == "cpu"
    with pytest.raises(TypeError, match="width"):
        model()
    partitioning = SimpleNamespace(zero_init_context=1)
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.zero.partition_parameters", partitioning)
    assert model(4).layer.weight.device.type == "cpu"


@pytest.mark.parametrize(
    ("collate", "expected"),
    [
        (None, 39),
        (lambda texts: {"input_ids": torch.zeros(len(texts), 48)}, 48),
        (lambda texts: {"input_ids": torch.zeros(1, 30 * len(texts))}, 30),
        (lambda texts: texts["none"], 39),
    ],
)
def test_the_length_of_samples(collate: Any, expected: int) -> None:
    """The longest samples' batch, padded or packed."""
    data = [{"input_ids": [0] * length} for length in range(1, 40)]
    assert plan_query._length(data, collate, 4) == expected
    assert plan_query._length(iter(data), collate, 4) is None


def test_only_a_process_that_is_asked_reads_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real training would continue from another state."""
    arguments = SimpleNamespace(per_device_train_batch_size=2, gradient_checkpointing=True)
    given = {"train_dataset": [{"input_ids": [1, 2, 3]}]}
    monkeypatch.delenv(ASKED_ALONE, raising=False)
    assert plan_query.facts_of_trainer(given, arguments) == {}
    monkeypatch.setenv(ASKED_ALONE, "1")
    facts = plan_query.facts_of_trainer(given, arguments)
    assert facts[Fact.SEQUENCE_LENGTH] == 3
    assert facts[Setting.GRADIENT_CHECKPOINTING] == "non_reentrant"


def test_a_model_on_meta_only_changes_its_type() -> None:
    """`to` ignores the device: there is nothing to move."""
    with torch.device("meta"):
        model = torch.nn.Linear(2, 2)
    assert plan_query._move(model.to, model, ("cuda:0",), {}) is model
    plan_query._move(model.to, model, ("cuda:0", torch.float16), {})
    assert model.weight.dtype is torch.float16
    assert model.weight.is_meta
