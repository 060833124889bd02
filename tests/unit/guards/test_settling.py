"""A worker's questions in its frameworks' entry points, and its use of the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.core import preset
from safe_launch.core.settings import Setting, Value
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Answer, Ask, Boundary
from safe_launch.guards import deepspeed, settling, trainer_arguments, transformers
from support import new_worker
from support.lazy import Lazy

torch = Lazy("torch")
STAGE, MODE = Setting.ZERO_STAGE, Setting.GRADIENT_CHECKPOINTING


@dataclass
class Launcher:
    """Answers every question with the same settings."""

    overrides: Mapping[str, Value] = field(default_factory=dict)
    asked: list[Ask] = field(default_factory=list)

    def __call__(self, question: Ask) -> Answer:
        """Returns the answer; reports requested checkpointing as reentrant."""
        self.asked.append(question)
        return Answer(question.key, self.overrides, {"gradient_checkpointing": "reentrant"})


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """A launcher that changes nothing yet; process-wide settings are reset afterwards."""
    monkeypatch.setattr(settling, "_settled", {})
    monkeypatch.setattr(settling, "_settled_replaced", {})
    monkeypatch.delenv(preset.OVERRIDES_VARIABLE, raising=False)
    launcher = Launcher()
    observations.report_to(lambda _message: None, launcher)
    return launcher


def ask(**facts: Value | None) -> dict[Setting, Value]:
    """A question at a boundary."""
    return settling.settings_of(settling.answer_at(Boundary.INITIALIZE, [STAGE], facts))


def test_what_is_known_is_said(launcher: Launcher) -> None:
    """The user's line is included; unknown values are omitted."""
    assert ask(zero_stage=3, offload=None) == {}
    (question,) = launcher.asked
    assert question.facts == {"zero_stage": 3}
    assert question.changeable == ["zero_stage"]
    file, _, line = question.frame.rpartition(":")
    assert file.endswith("test_settling.py")
    assert int(line) > 0


@pytest.mark.parametrize(
    "facts",
    [{"micro_batch": 2.0}, {"micro_batch": -1}, {"accumulation": 10**400}, {"static_graph": "no"}],
)
def test_what_no_plan_could_have_is_not_told(launcher: Launcher, facts: dict[str, Any]) -> None:
    """A script may pass any value: its framework reports the error."""
    ask(zero_stage=3, **facts)
    assert [question.facts for question in launcher.asked] == [{"zero_stage": 3}]


def test_the_same_way_twice_is_numbered(launcher: Launcher) -> None:
    """A loop's repeats are numbered; another path has another key in any order."""
    for _ in range(2):
        ask()
    ask()
    first, second, other = (question.key.split("#") for question in launcher.asked)
    assert (first[1], second[1], other[1]) == ("1", "2", "1")
    assert first[0] == second[0] != other[0]


def test_only_checkpointing_holds_for_the_process(launcher: Launcher) -> None:
    """Each new object asks again; a block's recomputation has no object."""
    launcher.overrides = {"zero_stage": 2, "gradient_checkpointing": "non_reentrant"}
    assert ask() == {STAGE: 2, MODE: "non_reentrant"}
    assert settling.overrides() == {MODE: "non_reentrant"}
    assert settling.replaced() == {MODE: "reentrant"}


def test_a_later_training_says_so(launcher: Launcher) -> None:
    """The steps done are included; without a launcher nothing is asked."""
    observations.count_steps(lambda: 3)
    ask()
    assert [question.step for question in launcher.asked] == [3]
    new_worker.begin()
    assert ask() == {}


class Arguments:
    """A partial stand-in for TrainingArguments."""

    fsdp = ""
    bf16, fp16 = True, False
    per_device_train_batch_size, gradient_accumulation_steps = 4, 2
    optim = "adamw_torch"
    ddp_find_unused_parameters: bool | None = None
    gradient_checkpointing = True
    gradient_checkpointing_kwargs: object = '{"use_reentrant": true}'

    def __init__(self, deepspeed: object = None) -> None:
        self.deepspeed = deepspeed

    def __post_init__(self) -> None:
        """Validates the arguments and records their values."""
        self.validated = dict(vars(self))


ZERO3 = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}


def test_arguments_say_what_they_ask_for() -> None:
    """Disabled or unset values aren't sent as requests."""
    facts = trainer_arguments.trainer_facts(Arguments(ZERO3))
    told = {str(name): value for name, value in facts.items() if value is not None}
    assert told == {
        "engine": "deepspeed",
        "zero_stage": 3,
        "offload": "none",
        "fp32_accumulation": False,
        "clips_by_default": True,
        "overflow_by_default": True,
        "precision": "bf16",
        "micro_batch": 4,
        "accumulation": 2,
        "gradient_checkpointing": "reentrant",
        "optimizer": "adamw",
        "fused_step": False,
    }
    plain = trainer_arguments.trainer_facts(Arguments())
    assert plain["engine"] == "ddp"
    assert plain["static_graph"] is False
    assert plain["find_unused_parameters"] is None


def test_of_two_names_the_newer_counts_once_they_are_validated() -> None:
    """After validation the older name has no effect."""
    arguments: Any = Arguments()
    arguments.activation_checkpointing = True
    arguments.activation_checkpointing_kwargs = None
    told = [
        trainer_arguments.trainer_facts(arguments, validated=late)[MODE] for late in (False, True)
    ]
    assert told == ["reentrant", None]


@pytest.mark.parametrize("name", trainer_arguments.OTHER_ENGINES)
def test_accelerate_may_take_another_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is then omitted from the arguments."""
    monkeypatch.setenv(name, "true")
    assert "engine" not in trainer_arguments.trainer_facts(Arguments())


def complete(arguments: Any) -> Any:
    """Passes arguments through the guard."""
    module: Any = ModuleType(transformers.HOOKED[0])
    module.TrainingArguments = type(arguments)
    original = type(arguments).__post_init__
    try:
        transformers.install(module)
        arguments.__post_init__()
    finally:
        type(arguments).__post_init__ = original
    return arguments


def test_arguments_get_the_answer(launcher: Launcher) -> None:
    """Before validation; the configuration stays a dict, and the script's is unchanged."""
    launcher.overrides = {"zero_stage": 2, "micro_batch": 2, "accumulation": 4}
    arguments = complete(Arguments(ZERO3))
    assert arguments.deepspeed["zero_optimization"] == {"stage": 2}
    assert arguments.validated["gradient_accumulation_steps"] == 4
    assert ZERO3["zero_optimization"] == {"stage": 3}
    (question,) = launcher.asked
    assert question.framework == "transformers"
    assert question.boundary is Boundary.TRAINING_ARGUMENTS


def test_odd_arguments_are_left_to_others(launcher: Launcher) -> None:
    """Their own validation reports the error."""
    arguments = complete(Arguments("no-such-file.json"))
    assert arguments.validated["deepspeed"] == "no-such-file.json"
    assert launcher.asked == []


def initialize(call: Callable[[Any], Any]) -> dict[str, Any]:
    """The DeepSpeed arguments when a loop creates its engine."""
    given: dict[str, Any] = {}

    def original(
        args: object = None,
        model: object = None,
        optimizer: object = None,
        config: object = None,
        config_params: object = None,
    ) -> tuple[object, ...]:
        given.update(config=config, optimizer=optimizer, args=args, params=config_params)
        return (SimpleNamespace(), model)

    module: Any = ModuleType(deepspeed.HOOKED[0])
    module.initialize = original
    deepspeed.install(module)
    call(module.initialize)
    return given


@pytest.mark.parametrize(
    ("optimizer", "partitioned", "changeable"),
    [
        (None, False, {"gradient_checkpointing", "offload", "zero_stage"}),
        (object(), False, {"gradient_checkpointing", "zero_stage"}),
        (object(), True, {"gradient_checkpointing"}),
    ],
)
def test_a_loops_engine(
    optimizer: object,
    changeable: set[str],
    launcher: Launcher,
    *,
    partitioned: bool,
) -> None:
    """Settings that can still change; the data loader determines the batch."""
    launcher.overrides = {"zero_stage": 2}
    model = torch.nn.Linear(2, 1)
    if partitioned:
        model.weight.ds_id = 0
    config = {**ZERO3, "optimizer": {"type": "AdamW"}}
    got = initialize(lambda make: make(model=model, optimizer=optimizer, config=config))
    assert got["config"]["zero_optimization"]["stage"] == 2
    (question,) = launcher.asked
    assert set(question.changeable) == changeable
    assert question.facts["zero_stage"] == 3
    assert question.facts["loaded_precision"] == "fp32"
    assert question.shape is not None


def test_an_engine_without_a_model(launcher: Launcher) -> None:
    """DeepSpeed itself reports the missing model."""
    config = {**ZERO3, "optimizer": {"type": "AdamW"}}
    assert initialize(lambda make: make(config=config))["config"] is config
    assert launcher.asked == []


def test_a_frameworks_engine_is_not_asked_for(launcher: Launcher) -> None:
    """Its configuration copies would differ."""
    code = "def call(make): make(model=model, config=config)"
    model = torch.nn.Linear(2, 1)
    config = {**ZERO3, "optimizer": {"type": "AdamW"}}
    scope: dict[str, Any] = {"__name__": "accelerate.accelerator", "model": model, "config": config}
    exec(code, scope)
    assert initialize(scope["call"])["config"] is config
    assert launcher.asked == []
