"""Guards' observations of engines, optimizers and loops; some engines are left alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.core import preset
from safe_launch.core.settings import Setting
from safe_launch.evidence.observations import observations
from safe_launch.guards import accelerate, batches, deepspeed, optimizer, transformers
from safe_launch.guards.batches import size_of
from safe_launch.guards.step_times import times
from support.lazy import Lazy

torch = Lazy("torch")


def llama() -> Any:
    """A tiny model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return LlamaForCausalLM(config)


class Engine:
    """A partial stand-in for DeepSpeed's engine on torch's module."""

    global_steps = 0

    def __init__(self, module: torch.nn.Module, config: dict[str, Any]) -> None:
        super().__init__()
        self.module, self.config = module, config

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Runs the model."""
        return self.module(input_ids.float())

    def bfloat16_enabled(self) -> bool:
        """Always false."""
        return False

    fp16_enabled = bfloat16_enabled

    def zero_optimization_stage(self) -> int:
        """The configuration's value."""
        return int(self.config["zero_optimization"]["stage"])

    def train_micro_batch_size_per_gpu(self) -> int:
        """The configuration's value."""
        return int(self.config["train_micro_batch_size_per_gpu"])

    def gradient_accumulation_steps(self) -> int:
        """Always one."""
        return 1


@pytest.fixture
def initialize(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`deepspeed.initialize` with the guard, on rank 0."""
    kind = type("Engine", (Engine, torch.nn.Module), {})

    def of_the_package(
        model: Any = None, optimizer: Any = None, config: Any = None
    ) -> tuple[Engine, Any]:
        return kind(model, config), optimizer

    module: Any = ModuleType("deepspeed")
    module.initialize = of_the_package
    deepspeed.install(module)
    monkeypatch.setenv("RANK", "0")
    wrapped: Callable[..., Any] = module.initialize
    return wrapped


def configured(stage: int) -> dict[str, Any]:
    """A configuration with a batch of 2."""
    return {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}


def test_only_engines_with_an_optimizer_are_changed(
    initialize: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor, a reference without optimizer, a critic with a configured one."""
    monkeypatch.setenv(preset.OVERRIDES_VARIABLE, preset.encode({Setting.ZERO_STAGE: 1}))
    actor, critic = torch.nn.Linear(4, 5), torch.nn.Linear(4, 2)
    trained, _ = initialize(actor, optimizer=object(), config=configured(2))
    reference, _ = initialize(torch.nn.Linear(4, 5), config=configured(0))
    own = {**configured(3), "optimizer": {"type": "Adam"}}
    other, _ = initialize(critic, config=own)
    stages = [engine.zero_optimization_stage() for engine in (trained, reference, other)]
    assert stages == [1, 0, 1]
    assert observations.observed["zero_stage"] == 1
    assert observations.observed["reference_model"] is True
    assert observations.observed["trained_beside"] == 10
    assert "frozen_beside" not in observations.observed


def test_a_reference_with_an_optimizer_by_its_configuration(initialize: Callable[..., Any]) -> None:
    """Trl prepares it before the model, with the model's configuration."""
    policy, reference = torch.nn.Linear(4, 5), torch.nn.Linear(4, 5)
    observations.see_model(policy)
    initialize(reference, config={**configured(0), "optimizer": {"type": "Adam"}})
    assert "zero_stage" not in observations.observed
    wrapped = torch.nn.Sequential(policy, torch.nn.Linear(5, 1))
    initialize(wrapped, config={**configured(2), "optimizer": {"type": "Adam"}})
    assert observations.observed["zero_stage"] == 2


def test_the_first_batch_of_an_engine_in_training(initialize: Callable[..., Any]) -> None:
    """Earlier evaluations don't count; later batches give only the size, without a Trainer."""
    engine, _ = initialize(torch.nn.Linear(6, 5), optimizer=object(), config=configured(2))
    engine.eval()(input_ids=torch.ones(2, 6))
    assert "sequence_length" not in observations.observed
    engine.train()(input_ids=torch.ones(2, 6))
    assert observations.observed["sequence_length"] == 6
    engine.train()(input_ids=torch.ones(3, 6))
    assert observations.observed["sequence_length"] == 6
    assert times._tokens == 30
    times.has_trainer = True  # from here on the Trainer counts
    engine.train()(input_ids=torch.ones(2, 6))
    assert not engine._forward_pre_hooks
    assert times._tokens == 30


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        ({"input_ids": (4, 6)}, (4, 24)),
        ({"input_ids": (3, 6)}, (3, 18)),  # an epoch's last, or a custom sampler's
        ({"input_ids": (8, 6)}, (4, 48)),  # both texts of each pair
        ({"input_ids": (1, 14), "position_ids": (1, 14)}, (4, 14)),  # packed
        ({"input_ids": (1, 14)}, (1, 14)),
        ({"chosen_input_ids": (4, 6), "rejected_input_ids": (4, 5)}, (4, 44)),
        ({"pixel_values": (4, 3, 8, 8)}, (4, 0)),
        ({}, (0, 0)),
    ],
)
def test_the_size_of_a_batch(batch: Any, size: tuple[int, int]) -> None:
    """Samples, and tokens with padding."""
    made = {key: torch.ones(*sizes) for key, sizes in batch.items()}
    assert size_of(made, micro_batch=4) == size


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        ("aaa", 3),
        ("ababab", 3),  # two networks
        ("aaabaaab", 6),  # one steps more often
        ("abbbabbb", 6),
        ("aaabbb", 6),  # one training after another
        ("aaabbbccc", 9),
    ],
)
def test_steps_of_several_optimizers(order: str, steps: int) -> None:
    """Within one step, or each in a separate training."""
    each = {name: torch.nn.Module() for name in "abc"}
    found = optimizer.Steps()
    for name in order:
        found.count(each[name], None, None)
    assert found.most == steps


@pytest.mark.parametrize(
    ("rank", "batch", "length"),
    [
        ("0", {"input_ids": (2, 6)}, 6),
        ("0", {"input_ids": (4, 6)}, 6),  # both texts of each pair
        ("0", {"input_ids": (1, 14)}, 7),  # packed
        ("0", {"input_ids": (2, 6, 3)}, None),
        ("0", {"pixel_values": (2, 6)}, None),
        ("1", {"input_ids": (2, 6)}, None),
    ],
)
def test_the_length_of_texts(
    monkeypatch: pytest.MonkeyPatch, rank: str, batch: Any, length: int | None
) -> None:
    """Rank 0's length counts: other ranks' may differ."""
    monkeypatch.setenv("RANK", rank)
    observations.see(micro_batch=2)
    batches.see_length({key: torch.ones(*sizes) for key, sizes in batch.items()})
    assert observations.observed.get("sequence_length") == length


@pytest.fixture
def optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's optimizers with a guarded constructor."""
    from torch.optim.optimizer import Optimizer

    monkeypatch.setattr(Optimizer, "__init__", Optimizer.__init__)  # to be restored afterwards
    module: Any = ModuleType("torch.optim.optimizer")
    module.Optimizer, module.register_optimizer_step_post_hook = Optimizer, lambda _count: None
    optimizer.install(module)


def test_a_step_that_makes_states_isnt_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch creates missing states by a step with rate 0 when it loads or saves."""
    from torch.distributed.checkpoint import state_dict
    from torch.optim import optimizer as real

    monkeypatch.setattr(real.Optimizer, "__init__", real.Optimizer.__init__)
    monkeypatch.setattr(state_dict, "_init_optim_state", state_dict._init_optim_state)
    hooks: OrderedDict[int, Any] = OrderedDict()
    monkeypatch.setattr(real, "_global_optimizer_post_hooks", hooks)
    optimizer.install(real)
    optimizer.install(state_dict)
    model = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters())
    for done in range(2):
        state_dict.get_optimizer_state_dict(model, sgd)
        assert observations.step() == done
        model(torch.ones(1, 2)).sum().backward()
        sgd.step()
        sgd.zero_grad()
    assert len(hooks) == 1


@pytest.mark.usefixtures("optimizers")
def test_the_optimizer_of_most_parameters_is_observed() -> None:
    """Its kind of states is reported."""
    few, many = torch.nn.Linear(2, 2).parameters(), list(torch.nn.Linear(9, 9).parameters())
    torch.optim.SGD(few)
    assert observations.observed == {"optimizer": "sgd", "fused_step": False}
    torch.optim.AdamW([{"params": many}])
    assert observations.observed == {"optimizer": "adamw", "fused_step": False}
    torch.optim.SGD(many[:1], momentum=0.9)
    assert observations.observed == {"optimizer": "adamw", "fused_step": False}
    torch.optim.SGD([*many, torch.nn.Parameter(torch.ones(1))], momentum=0.9)
    assert observations.observed == {"optimizer": "lion", "fused_step": False}


@pytest.mark.usefixtures("optimizers")
def test_steps_count_from_the_first_optimizer_on() -> None:
    """Without an optimizer the number of steps is unknown."""
    assert observations.step() is None
    torch.optim.SGD(torch.nn.Linear(2, 2).parameters())
    assert observations.step() == 0


@pytest.mark.usefixtures("optimizers")
def test_an_optimizer_calls_its_base_by_name() -> None:
    """A third-party optimizer does so; its states are unknown."""
    from torch.optim.optimizer import Optimizer

    class Own(Optimizer):
        def __init__(self, parameters: Any) -> None:
            Optimizer.__init__(self, parameters, {"lr": 0.1})

    weight = torch.nn.Parameter(torch.ones(1))
    assert Own([weight]).param_groups[0]["params"] == [weight]
    assert observations.observed == {}


@pytest.mark.usefixtures("optimizers")
def test_an_optimizer_of_others_is_not_judged_by_its_name() -> None:
    """The bits of bitsandbytes' `AdamW` are known only later."""
    kind = type("AdamW", (torch.optim.SGD,), {"__module__": "bitsandbytes.optim.adamw"})
    kind([torch.nn.Parameter(torch.ones(1))])
    assert observations.observed == {}


class Accelerator:
    """A partial stand-in for accelerate's."""

    gradient_accumulation_steps = 4

    distributed_type = SimpleNamespace(value="MULTI_GPU")

    def __init__(self, mixed_precision: str) -> None:
        self.mixed_precision = mixed_precision
        self.prepared: set[Any] = set()

    def prepare_model(self, model: Any, *, evaluation_mode: bool = False) -> Any:
        """Returns what it has prepared as it is."""
        is_again = model in self.prepared
        self.prepared.add(model)
        return model if is_again or evaluation_mode else torch.nn.Sequential(model)

    def accumulate(self, *models: Any) -> tuple[Any, ...]:
        """A context manager in accelerate."""
        return models


@pytest.mark.parametrize(
    ("mixed", "engine", "observed"),
    [
        ("bf16", "ddp", {"accumulation": 4, "precision": "bf16", "gradient_checkpointing": "off"}),
        ("no", "ddp", {"accumulation": 4, "precision": "fp32", "gradient_checkpointing": "off"}),
        ("no", "deepspeed", {}),
    ],
)
def test_a_loop_around_accelerate(
    monkeypatch: pytest.MonkeyPatch, mixed: str, engine: str, observed: dict[str, Any]
) -> None:
    """DeepSpeed's own guard has more precise values."""
    monkeypatch.setattr(Accelerator, "accumulate", Accelerator.accumulate)
    module: Any = ModuleType("accelerate.accelerator")
    module.Accelerator = Accelerator
    accelerate.install(module)
    before = {"engine": engine, "loaded_precision": "fp32"}
    observations.see(**before)
    wrapped = SimpleNamespace(module=llama())
    assert module.Accelerator(mixed).accumulate(wrapped) == (wrapped,)
    assert observations.observed == before | observed


def test_a_model_that_is_left_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was prepared for an evaluation before; silent for others and for frozen models."""
    for name in ("accumulate", "prepare_model"):
        monkeypatch.setattr(Accelerator, name, getattr(Accelerator, name))
    module: Any = ModuleType("accelerate.accelerator")
    module.Accelerator = Accelerator
    accelerate.install(module)
    accelerator = module.Accelerator("no")
    frozen = torch.nn.Linear(1, 1).requires_grad_(False)
    for model in (torch.nn.Linear(1, 1), frozen):
        accelerator.prepare_model(model)
    accelerator.prepare_model(frozen)
    evaluated = torch.nn.Linear(1, 1)
    accelerator.prepare_model(evaluated, evaluation_mode=True)
    assert observations.observed == {}
    accelerator.prepare_model(evaluated)
    assert observations.observed == {"left_unwrapped": True}


class Trainer:
    """A partial stand-in for transformers'."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def train(self) -> str:
        """Does nothing."""
        return "trained"

    def training_step(self, _model: Any, _inputs: Any) -> None:
        """Does nothing."""


def made(held: Any) -> Any:
    """A trainer's models: a tuple is a layer's size."""
    if isinstance(held, list):
        return [made(each) for each in held]
    return torch.nn.Linear(*held) if isinstance(held, tuple) else held


@pytest.mark.parametrize(
    ("held", "observed"),
    [
        ({"model": (4, 5)}, {}),
        ({"ref_model": None}, {"reference_model": False}),
        ({"ref_model": (4, 5), "count": 3}, {"reference_model": True}),
        (
            {
                "ref_model": None,
                "reward_funcs": [(4, 1), len],
                "teacher_model": (9, 9),
            },
            {"reference_model": False, "frozen_beside": 95},
        ),
    ],
)
def test_the_models_of_a_trainer(
    monkeypatch: pytest.MonkeyPatch, held: dict[str, Any], observed: dict[str, Any]
) -> None:
    """Only one model is trained, even if the others' parameters require gradients."""
    held = {name: made(value) for name, value in held.items()}
    own = held.get("model", torch.nn.Linear(4, 5))
    observations.see_model(own)
    for name in ("__init__", "train", "training_step"):
        monkeypatch.setattr(Trainer, name, getattr(Trainer, name))
    module: Any = ModuleType("transformers.trainer")
    module.Trainer = Trainer
    trainer = Trainer(**{"model": own, "model_wrapped": torch.nn.Sequential(own), **held})
    transformers.install(module)
    assert trainer.train() == "trained"
    assert observations.observed == {"frozen_parameters": False, **observed}
