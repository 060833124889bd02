"""Settings made before a model's weights are loaded, and models that don't ask."""

from __future__ import annotations

import math
import random
import weakref
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.core import preset
from safe_launch.core.choices import Framework
from safe_launch.core.settings import Setting, Value
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Answer, Ask, Boundary
from safe_launch.guards import loading, settling
from support.lazy import Lazy

torch = Lazy("torch")
transformers = Lazy("transformers")
STAGE = Setting.ZERO_STAGE
SIZES = {
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


class Owner:
    """The stage in force, which can be changed."""

    def __init__(self) -> None:
        self.stage: Value = 2


class World:
    """A process that creates models, and its questions."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.overrides: dict[str, Value] = {}
        self.probes = True
        observations.report_to(lambda _message: None, self._answer)
        self.loaded: list[Value | None] = []
        self.owner: Owner | None = None
        self.module = self._module()

    def _answer(self, question: Ask) -> Answer:
        self.asked.append(question)
        probes = self.probes and question.shape is None
        return Answer(question.key, {} if probes else self.overrides, {}, probes)

    def _module(self) -> Any:
        """Transformers' ways to create a model; the model is real and has no files."""
        loaded, world = self.loaded, self

        class PreTrainedModel(transformers.LlamaForCausalLM):  # type: ignore[misc]
            def __init__(self, config: Any) -> None:
                super().__init__(config)

            @classmethod
            def from_pretrained(cls, _name: str, *, config: Any = None, **_rest: Any) -> Any:
                loaded.append(world.owner and world.owner.stage)
                return cls(config)

            @classmethod
            def _from_config(cls, config: Any, **_rest: Any) -> Any:
                loaded.append(world.owner and world.owner.stage)
                return cls(config)

        module: Any = ModuleType(loading.HOOKED[0])
        PreTrainedModel.__module__ = "transformers.made"
        module.PreTrainedModel = PreTrainedModel
        loading.install(module)
        return module

    def put_in_force(self) -> None:
        """Applies a stage, like newly created arguments."""

        def give(owner: Owner, settings: Mapping[Setting, Value]) -> None:
            owner.stage = settings[STAGE]

        self.owner = Owner()
        loading.put_in_force(
            loading.InForce(
                weakref.ref(self.owner),
                Framework.TRANSFORMERS,
                lambda owner: {"engine": "deepspeed", "zero_stage": owner.stage},
                lambda _owner: [STAGE],
                give,
            )
        )

    def load(self, **more: Any) -> Any:
        """Loads a model."""
        config = transformers.LlamaConfig(**SIZES)
        return self.module.PreTrainedModel.from_pretrained("x", config=config, **more)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A process without models."""
    monkeypatch.setattr(loading, "_state", loading._State())
    monkeypatch.setattr(settling, "_settled", {})
    monkeypatch.delenv(preset.OVERRIDES_VARIABLE, raising=False)
    return World()


def test_the_first_model_is_settled_before_it_is_loaded(world: World) -> None:
    """The shape is known; the first question only announces that."""
    world.put_in_force()
    world.overrides = {"zero_stage": 3}
    model = world.load(dtype="bfloat16", attn_implementation="eager")
    assert world.loaded == [3]
    assert not any(parameter.is_meta for parameter in model.parameters())
    first, second = world.asked
    assert {first.boundary, second.boundary} == {Boundary.FROM_PRETRAINED}
    assert first.facts == {
        "engine": "deepspeed",
        "zero_stage": 2,
        "loaded_precision": "bf16",
        "dtype_by_default": False,
    }
    assert first.shape is None
    assert first.changeable == second.changeable == ["zero_stage"]
    assert second.shape is not None
    own = sum(parameter.numel() for parameter in model.parameters())
    sizes = (count * math.prod(shape) for _, shape, _, _, count in second.shape["weights"])
    assert sum(sizes) == own
    told = {name: second.facts[name] for name in ("attention", "gradient_checkpointing")}
    assert told == {"attention": "eager", "gradient_checkpointing": "off"}


def test_a_type_that_is_left_to_the_default(world: World) -> None:
    """An upgrade may change the default type."""
    world.put_in_force()
    world.load()
    assert world.asked[0].facts["dtype_by_default"] is True


def test_a_model_made_of_its_configuration(world: World) -> None:
    """The same for `from_config`, with torch's default type."""
    world.put_in_force()
    world.probes = False
    world.module.PreTrainedModel._from_config(transformers.LlamaConfig(**SIZES))
    (question,) = world.asked
    assert question.boundary is Boundary.FROM_CONFIG
    assert question.facts["loaded_precision"] == "fp32"


def test_random_numbers_stay(world: World) -> None:
    """The random state is kept, so that seeds give the same model."""
    world.load()
    torch.manual_seed(5)
    random.seed(5)
    alone = world.load(), torch.rand(3).tolist(), random.random()
    assert world.asked == []
    loading._state.is_made = False
    world.put_in_force()
    torch.manual_seed(5)
    random.seed(5)
    ours = world.load(), torch.rand(3).tolist(), random.random()
    assert len(world.asked) == 2
    assert ours[1:] == alone[1:]
    assert torch.equal(ours[0].lm_head.weight, alone[0].lm_head.weight)


def test_a_second_model_asks_nothing(world: World) -> None:
    """Neither does the first model under arguments if another was made before."""
    world.put_in_force()
    world.load()
    asked = len(world.asked)
    world.load()
    assert len(world.asked) == asked
    world.put_in_force()
    world.load()
    assert len(world.asked) == asked


@pytest.mark.parametrize("how", ["before", "gone", "partitioning"])
def test_where_nothing_could_be_changed(
    how: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before arguments, after they are gone, or in the script's own `zero.Init`."""
    if how != "before":
        world.put_in_force()
    if how == "gone":
        world.owner = None
    if how == "partitioning":
        active = SimpleNamespace(zero_init_context=1)
        monkeypatch.setitem(loading.sys.modules, loading.PARTITIONING, active)
    world.load()
    world.put_in_force()
    world.load()
    assert world.asked == []


@pytest.mark.parametrize(
    "more", [{"quantization_config": object()}, {"tp_plan": "auto"}, {"load_in_4bit": True}]
)
def test_other_weights_than_the_class_has(more: dict[str, Any], world: World) -> None:
    """Their shape isn't the class's: the Trainer reports it."""
    world.put_in_force()
    world.load(**more)
    assert world.asked == []
    assert world.loaded == [2]


def test_a_configuration_that_is_quantized_itself(world: World) -> None:
    """The model was saved quantized."""
    world.put_in_force()
    config = transformers.LlamaConfig(**SIZES)
    config.quantization_config = {"quant_method": "gptq"}
    world.module.PreTrainedModel._from_config(config)
    assert world.asked == []


def test_a_model_that_cannot_be_made_without_weights(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded as requested."""
    world.put_in_force()
    world.overrides = {"zero_stage": 3}

    def fail(*_arguments: Any) -> Any:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    monkeypatch.setattr(loading, "without_weights", fail)
    world.load()
    assert world.loaded == [2]
