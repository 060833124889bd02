"""Changes after argument validation: in a Trainer, an Accelerator and `zero.Init`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.core import preset
from safe_launch.core.settings import Setting
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Answer, Ask, Boundary
from safe_launch.guards import (
    accelerate,
    deepspeed,
    deepspeed_plugin,
    settling,
    trainer_arguments,
    transformers,
)
from support.lazy import Lazy

torch = Lazy("torch")
OVERRIDES: dict[str, Any] = {}
ASKED: list[Ask] = []


def answer(question: Ask) -> Answer:
    """A launcher's answer with the same changes everywhere."""
    ASKED.append(question)
    return Answer(question.key, dict(OVERRIDES))


@pytest.fixture(autouse=True)
def launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose launcher changes nothing yet."""
    monkeypatch.setattr(settling, "_settled", {})
    monkeypatch.setattr(settling, "_settled_replaced", {})
    monkeypatch.delenv(preset.OVERRIDES_VARIABLE, raising=False)
    OVERRIDES.clear()
    ASKED.clear()
    observations.report_to(lambda _message: None, answer)


class Held:
    """A partial stand-in for accelerate's HfDeepSpeedConfig."""

    def __init__(self, stage: int, offload: str | None = None) -> None:
        zero: dict[str, Any] = {"stage": stage}
        if offload:
            zero["offload_optimizer"] = {"device": offload}
        self.config = {"zero_optimization": zero, "gradient_accumulation_steps": 4}
        self.stages = 0

    def set_stage_and_offload(self) -> None:
        """Counts the refreshes."""
        self.stages += 1

    def is_zero3(self) -> bool:
        """Whether the configuration in force has stage 3."""
        return bool(self.config["zero_optimization"]["stage"] == 3)  # type: ignore[index]


class Plugin:
    """A partial stand-in for accelerate's DeepSpeedPlugin."""

    zero3_init_flag = True
    offload_optimizer_device = "none"
    offload_param_device = "none"
    gradient_accumulation_steps = 4

    def __init__(self, stage: int, offload: str | None = None) -> None:
        self.hf_ds_config = Held(stage, offload)
        self.zero_stage = stage
        self.registered: list[int] = []
        self.dschf = object()

    def set_deepspeed_weakref(self) -> None:
        """Registers a copy for transformers."""
        self.registered.append(self.hf_ds_config.config["zero_optimization"]["stage"])  # type: ignore[index]


@dataclass
class TrainingArguments:
    """A partial stand-in for transformers', validated."""

    deepspeed: object = None
    fsdp: str = ""
    bf16: bool = False
    fp16: bool = False
    optim: str = "adamw_torch"
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 1
    gradient_checkpointing: bool = False
    gradient_checkpointing_kwargs: object = None
    ddp_find_unused_parameters: bool | None = None
    deepspeed_plugin: Any = field(default=None, init=False)


@dataclass
class OwnArguments(TrainingArguments):
    """A script's arguments unrelated to a batch."""

    beta: float = 0.1


@dataclass
class BatchArguments(TrainingArguments):
    """A script's arguments with one derived from the batch."""

    generation_batch_size: int = 8


def test_a_configuration_in_force_is_changed_in_place() -> None:
    """Its holders see the change; the plugin's copies and transformers do, too."""
    plugin = Plugin(3)
    config = plugin.hf_ds_config.config
    deepspeed_plugin.change(plugin, {Setting.ZERO_STAGE: 2, Setting.OFFLOAD: "optimizer"})
    assert plugin.hf_ds_config.config is config
    assert config["zero_optimization"] == {
        "stage": 2,
        "offload_optimizer": {"pin_memory": True, "device": "cpu"},
    }
    assert (plugin.zero_stage, plugin.offload_optimizer_device) == (2, "cpu")
    assert plugin.offload_param_device == "none"
    assert plugin.zero3_init_flag is False
    assert plugin.hf_ds_config.stages == 1
    assert plugin.registered == [2]


def test_who_gets_stage_3_gets_its_models_partitioned() -> None:
    """Unless stage 3 was requested without partitioning."""
    plugin = Plugin(2)
    plugin.zero3_init_flag = False
    deepspeed_plugin.change(plugin, {Setting.ZERO_STAGE: 3})
    assert (plugin.zero_stage, plugin.zero3_init_flag, plugin.registered) == (3, True, [3])
    plugin = Plugin(3)
    plugin.zero3_init_flag = False
    deepspeed_plugin.change(plugin, {Setting.MICRO_BATCH: 1})
    assert plugin.zero3_init_flag is False


def test_what_is_in_force_already_is_left_alone() -> None:
    """An unchanged value isn't written or registered again."""
    plugin = Plugin(2)
    deepspeed_plugin.change(plugin, {Setting.ZERO_STAGE: 2, Setting.MICRO_BATCH: 1})
    assert plugin.hf_ds_config.config["train_micro_batch_size_per_gpu"] == 1
    deepspeed_plugin.change(plugin, {Setting.ZERO_STAGE: 2, Setting.STATIC_GRAPH: True})
    assert plugin.hf_ds_config.stages == 1


@pytest.mark.parametrize(
    ("arguments", "partitioned", "settable"),
    [
        (TrainingArguments(), False, {"gradient_checkpointing", "micro_batch", "accumulation"}),
        (OwnArguments(), False, {"gradient_checkpointing", "micro_batch", "accumulation"}),
        (BatchArguments(), False, {"gradient_checkpointing"}),
        (TrainingArguments("zero2.json"), False, set(trainer_arguments.SETTABLE)),
        (TrainingArguments("zero3.json"), True, {"gradient_checkpointing", "micro_batch"}),
    ],
)
def test_what_a_trainer_can_still_be_given(
    arguments: Any, settable: set[str], *, partitioned: bool
) -> None:
    """No stage without DeepSpeed or after sharding, no batch that others derive from."""
    given = dataclasses.replace(arguments)
    given.deepspeed_plugin = Plugin(3 if partitioned else 2) if arguments.deepspeed else None
    model = torch.nn.Linear(2, 1)
    if partitioned:
        model.weight.ds_id = 0
        settable = settable | {"accumulation"}
    assert set(trainer_arguments.settable_late(given, model)) == settable


def construct(**given: Any) -> Any:
    """Makes a guarded Trainer; returns the batch that its constructor saw."""
    states: list[tuple[int, int]] = []

    class Trainer:
        def __init__(self, model: Any = None, args: Any = None) -> None:
            states.append((args.per_device_train_batch_size, args.gradient_accumulation_steps))
            self.model, self.args, self.state = model, args, SimpleNamespace(global_step=0)

        def train(self) -> None: ...

        def training_step(self) -> None: ...

        def compute_loss(self) -> None: ...

    module: Any = ModuleType(transformers.HOOKED[1])
    module.Trainer = Trainer
    transformers.install(module)
    module.Trainer(**given)
    return states[0]


def test_a_trainer_gets_the_answer() -> None:
    """Before construction it describes its model and disabled settings."""
    OVERRIDES.update(micro_batch=2, accumulation=2, zero_stage=1)
    arguments = TrainingArguments("zero2.json")
    arguments.deepspeed_plugin = Plugin(2)
    assert construct(model=torch.nn.Linear(2, 1), args=arguments) == (2, 2)
    assert arguments.deepspeed_plugin.hf_ds_config.config["zero_optimization"]["stage"] == 1  # type: ignore[index]
    (question,) = ASKED
    assert question.boundary is Boundary.TRAINER
    assert question.framework == "transformers"
    assert question.facts["zero_stage"] == 2
    assert question.facts["loaded_precision"] == "fp32"
    assert question.shape is not None


@pytest.mark.parametrize("given", [{}, {"model": None}])
def test_a_trainer_without_a_model_yet(given: dict[str, Any]) -> None:
    """It asks no question: the later model's maker has better information."""
    assert construct(args=TrainingArguments(), **given) == (4, 1)
    assert ASKED == []


def accelerator(plugin: Any, name: str = "train") -> None:
    """Makes a guarded Accelerator in a module of that name."""

    class Accelerator:
        gradient_accumulation_steps = 4

        def __init__(self) -> None:
            self.state = SimpleNamespace(deepspeed_plugin=plugin)

        def accumulate(self) -> None: ...

        def prepare_model(self, model: Any) -> None: ...

    module: Any = ModuleType(accelerate.HOOKED[0])
    module.Accelerator = Accelerator
    accelerate.install(module)
    scope: dict[str, Any] = {"__name__": name, "make": module.Accelerator}
    exec("def call(): make()", scope)
    scope["call"]()


def test_an_accelerator_gets_the_answer() -> None:
    """It asks with its merged configuration; the batch is the loop's."""
    OVERRIDES.update(zero_stage=1)
    plugin = Plugin(2, "cpu")
    accelerator(plugin)
    assert plugin.hf_ds_config.config["zero_optimization"]["stage"] == 1  # type: ignore[index]
    (question,) = ASKED
    assert question.boundary is Boundary.ACCELERATOR
    assert question.framework == "accelerate"
    assert set(question.changeable) == {"zero_stage", "offload", "gradient_checkpointing"}
    told = {name: question.facts[name] for name in ("zero_stage", "offload", "accumulation")}
    assert told == {"zero_stage": 2, "offload": "optimizer", "accumulation": 4}


def test_an_accelerator_of_the_trainers_or_without_deepspeed() -> None:
    """The Trainer asks elsewhere; without DeepSpeed nothing can be changed."""
    accelerator(Plugin(2), "transformers.trainer")
    accelerator(None)
    assert ASKED == []


def partition(**given: Any) -> bool:
    """Makes a guarded `zero.Init`; returns whether it partitions."""

    class Init:
        def __init__(self, config_dict_or_path: object = None, *, enabled: bool = True) -> None:
            self.config, self.enabled = config_dict_or_path, enabled

    module: Any = ModuleType(deepspeed.HOOKED[-1])
    module.Init = Init
    deepspeed.install(module)
    return bool(module.Init(**given).enabled)


@pytest.mark.parametrize(
    ("config", "asks"),
    [({"zero_optimization": {"stage": 3}}, True), (None, False), ("no-such-file.json", False)],
)
def test_partitioning_gets_the_answer(config: object, *, asks: bool) -> None:
    """It asks before sharding, if the loop passes a configuration."""
    OVERRIDES.update(zero_stage=2)
    assert partition(config_dict_or_path=config) is not asks
    assert [question.boundary for question in ASKED] == [Boundary.PARTITION] * asks
