"""Contradictions that a worker detects, each with a clean twin that prints nothing."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE as CHECKS
from safe_launch.checks.finding import Check
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message, Remark
from safe_launch.guards import contradictions, data_parallel, done_twice
from safe_launch.guards.checks import trainer_losses
from support.lazy import Lazy

torch = Lazy("torch")
HERE = "tests/unit/guards/test_contradictions.py"
VARIABLE = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"


class Accelerator:
    """A partial stand-in for accelerate's; the environment overrides its argument."""

    def __init__(
        self,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int = 1,
        config: dict[str, Any] | None = None,
        processes: int = 2,
    ) -> None:
        self.mixed_precision = mixed_precision
        self.gradient_accumulation_steps = int(
            os.environ.get(VARIABLE, gradient_accumulation_steps)
        )
        held = None if config is None else SimpleNamespace(config=config)
        self.state = SimpleNamespace(deepspeed_plugin=SimpleNamespace(hf_ds_config=held))
        clipping = (config or {}).get("gradient_clipping", 0.0)
        engine = SimpleNamespace(gradient_clipping=lambda: clipping)
        self.step = 0
        self.deepspeed_engine_wrapped = None if config is None else SimpleNamespace(engine=engine)
        self.num_processes = processes

    def prepare(self, *args: Any) -> Any:
        """Does nothing."""

    def prepare_model(self, model: Any) -> Any:
        """Does nothing."""

    def load_state(self, folder: str) -> None:
        """Does nothing."""

    def accumulate(self, *models: Any) -> None:
        """Does nothing."""

    def free_memory(self) -> None:
        """Does nothing."""

    def clip_grad_norm_(self, parameters: Any, max_norm: float) -> None:
        """Does nothing."""

    def backward(self, loss: Any, **kwargs: Any) -> None:
        """Divides the loss like accelerate's without an engine."""
        (loss / self.gradient_accumulation_steps).backward(**kwargs)

    def prepare_data_loader(self, data_loader: Any) -> Any:
        """Does nothing."""

    def gather(self, tensor: Any) -> Any:
        """Does nothing."""


class DeepSpeedEngine:
    """A partial stand-in for DeepSpeed's."""

    def __init__(self, config: Any = None, optimizer: Any = None, lr_scheduler: Any = None) -> None:
        self.config = config or {}
        self.client_optimizer, self.client_lr_scheduler = optimizer, lr_scheduler

    def gradient_accumulation_steps(self) -> int:
        """The accumulation in force."""
        return 4

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Divides like DeepSpeed's, whose decorator hides the arguments' names."""
        (loss,) = args or (kwargs["loss"],)
        (loss / 4 if kwargs.get("scale_wrt_gas", True) else loss).backward()


class Trainer:
    """A partial stand-in for transformers'."""

    model: Any

    def __init__(
        self,
        args: Any,
        config: dict[str, Any] | None = None,
        steps: int = 2,
        optimizers: Any = (None, None),  # noqa: ARG002
        compute_loss_func: Any = None,  # noqa: ARG002
    ) -> None:
        self.args, self.model_accepts_loss_kwargs = args, True
        self.args.gradient_accumulation_steps, self.args.n_gpu = steps, 1
        self.args.average_tokens_across_devices = False
        held = None if config is None else SimpleNamespace(config=config)
        plugin = SimpleNamespace(hf_ds_config=held)
        self.accelerator = SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin))

    def train(self, resume_from_checkpoint: Any = None) -> None:
        """Does nothing."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Computes the loss like the Trainer."""
        return self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Divides by the number of items itself."""
        outputs = model(inputs)  # transformers' asks its label_smoother or compute_loss_func
        loss = outputs.loss / num_items_in_batch if num_items_in_batch else outputs.loss
        return (loss, outputs) if return_outputs else loss


@dataclasses.dataclass
class Arguments:
    """A partial stand-in for TrainingArguments."""

    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    optim: str = "adamw_torch"
    lr_scheduler_type: str = "linear"
    max_grad_norm: float = 1.0
    bf16: bool = False
    fp16: bool = False
    label_smoothing_factor: float = 0.0
    deepspeed: str = "configs/zero.json"
    resume_from_checkpoint: str | None = None


Told = Callable[[], list[str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The lines printed by the guard, installed in the stand-ins."""
    sent: list[Message] = []
    observations.report_to(sent.append)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    for name, kind in (
        ("accelerate.accelerator", Accelerator),
        ("deepspeed.runtime.engine", DeepSpeedEngine),
        ("transformers.trainer", Trainer),
    ):
        module = ModuleType(name)
        setattr(module, kind.__name__, kind)
        for member in vars(kind).copy().items():
            monkeypatch.setattr(kind, *member) if callable(member[1]) else None
        for guard in (contradictions, done_twice, trainer_losses):
            if name in guard.HOOKED:
                guard.install(module)
    monkeypatch.setenv(CHECKS, ",".join(Check))
    return lambda: [
        message.sentence if isinstance(message, Remark) else message.finding.line
        for message in sent
        if isinstance(message, Remark | Found)
    ]


def test_accumulation_in_the_environment(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """It overrides the script's argument; the line is named."""
    Accelerator(gradient_accumulation_steps=4)
    monkeypatch.setenv(VARIABLE, "4")
    Accelerator(gradient_accumulation_steps=4)
    Accelerator()
    assert not told()
    monkeypatch.setenv(VARIABLE, "2")
    Accelerator(gradient_accumulation_steps=4)
    (said,) = told()
    assert f"gradient_accumulation_steps 4 ({HERE}:" in said
    assert f"${VARIABLE} 2 is in force" in said


def test_accumulation_in_deepspeeds_configuration(told: Told) -> None:
    """It overrides the script's, unless that is unset or the loop changes it."""
    Accelerator(gradient_accumulation_steps=4, config={VARIABLE: 1}).prepare()
    Accelerator(
        gradient_accumulation_steps=4, config={"gradient_accumulation_steps": "auto"}
    ).prepare()
    Accelerator(config={"gradient_accumulation_steps": 4}).prepare()
    changed = Accelerator(gradient_accumulation_steps=4, config={"gradient_accumulation_steps": 2})
    changed.gradient_accumulation_steps = 2
    changed.prepare()
    assert not told()
    Accelerator(gradient_accumulation_steps=4, config={"gradient_accumulation_steps": 2}).prepare()
    (said,) = told()
    assert "gradient_accumulation_steps 4" in said
    assert "2 is in force" in said


def test_a_checkpoint_that_isnt_passed_on(told: Told) -> None:
    """`train` doesn't read it; silent if it is passed, or there is none."""
    Trainer(Arguments()).train()
    Trainer(Arguments(resume_from_checkpoint="out/checkpoint-6")).train("out/checkpoint-6")
    assert not told()
    Trainer(Arguments(resume_from_checkpoint="out/checkpoint-6")).train()
    (said,) = told()
    assert "out/checkpoint-6 has no effect by itself (it may be meant)" in said


def test_states_that_nothing_takes(told: Told) -> None:
    """Silent if something is prepared, and not if it was let go of."""
    for prepare in ("prepare", "prepare_model"):
        accelerator = Accelerator()
        getattr(accelerator, prepare)(None)
        accelerator.load_state("state")
    assert not told()
    accelerator.free_memory()
    accelerator.load_state("state")
    (said,) = told()
    assert "restores neither model nor optimizer" in said


def test_a_norm_that_deepspeed_doesnt_ask_for(told: Told) -> None:
    """DeepSpeed clips by its own norm; without one the loop's counts."""
    Accelerator().clip_grad_norm_([], 1.0)
    Accelerator(config={"gradient_clipping": 1.0}).clip_grad_norm_([], max_norm=1)
    Accelerator(config={"gradient_clipping": 1.0}).clip_grad_norm_([], float("inf"))
    assert not told()
    Accelerator(config={"gradient_clipping": 0.5}).clip_grad_norm_([], 1.0)
    (said,) = told()
    assert "max_norm 1.0" in said
    assert "0.5 is in force" in said


def graph() -> Any:
    """A loss with a graph."""
    return torch.ones(2, requires_grad=True).sum()


def test_a_loss_divided_by_loop_and_engine(told: Told) -> None:
    """Both lines, once; a single division or another divisor is fine."""
    engine, accumulation_steps = DeepSpeedEngine(), 4
    loss = graph()
    engine.backward(loss)
    engine = DeepSpeedEngine()
    loss = graph()
    loss = loss / len("four")
    engine.backward(loss)
    assert not told()

    def twice() -> None:
        engine, loss = DeepSpeedEngine(), graph()
        loss = loss / accumulation_steps
        engine.backward(loss)

    def left() -> None:
        engine, loss = DeepSpeedEngine(), graph()
        loss = loss / accumulation_steps
        engine.backward(loss, scale_wrt_gas=False)

    left()
    assert not told()
    twice()
    twice()
    (said,) = told()
    line = twice.__code__.co_firstlineno + 2
    assert f"{HERE}:{line}" in said
    assert f"line {line + 1}" in said
    assert "4 times too small" in said


def test_a_loss_divided_by_loop_and_accelerator(told: Told) -> None:
    """Without accumulation an Accelerator divides by one."""
    for steps in (1, 2):
        accelerator, loss, accumulation = Accelerator(gradient_accumulation_steps=steps), graph(), 2
        assert not told()
        loss = loss / accumulation
        accelerator.backward(loss)
    (said,) = told()
    assert "2 times too small" in said


def test_a_loader_divided_twice(told: Told) -> None:
    """By its sampler and by accelerate; a single process is fine."""
    data = torch.utils.data.TensorDataset(torch.ones(8))
    of_two = torch.utils.data.distributed.DistributedSampler(data, num_replicas=2, rank=0)
    plain = torch.utils.data.DataLoader(data)
    divided = torch.utils.data.DataLoader(data, sampler=of_two)
    Accelerator().prepare_data_loader(plain)
    Accelerator(processes=1).prepare_data_loader(divided)
    assert not told()
    Accelerator().prepare_data_loader(divided)
    (said,) = told()
    assert "among the ranks twice" in said
    assert HERE in said


def test_trainer_and_deepspeed(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only arguments that differ from the default, by flag if possible."""
    constants = SimpleNamespace(GRADIENT_CLIPPING_DEFAULT=0.0)
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.constants", constants)
    config = {"optimizer": {"type": "AdamW", "params": {}}}
    Trainer(Arguments(), config)
    Trainer(Arguments(learning_rate=1e-4))
    assert not told()
    monkeypatch.setattr("sys.argv", ["train.py", "--learning_rate=1e-4"])
    Trainer(Arguments(learning_rate=1e-4, max_grad_norm=0.5), config)
    rate, norm = told()
    assert rate.startswith("--learning_rate 0.0001 has no effect: zero.json has no optimizer.")
    assert norm.startswith("TrainingArguments' max_grad_norm 0.5")


class Own(Trainer):
    """A Trainer with its own loss."""

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Returns the model's loss."""
        outputs = model(inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class Counting(torch.nn.Module):  # type: ignore[misc]
    """A model that takes any argument, and computes a mean."""

    def forward(self, inputs: Any, **_others: Any) -> Any:
        """Returns a loss."""
        return SimpleNamespace(loss=torch.ones(1).mean() + len(inputs))


@pytest.mark.parametrize("kind", ["loss", "model"])
def test_a_loss_that_nobody_divides(told: Told, kind: str) -> None:
    """Only under accumulation, unless the Trainer leaves it to the loss; seen in the first step."""

    def step(trainer: Trainer, count: Any) -> None:
        trainer.accelerator.unwrap_model = lambda model: model
        trainer.model = Counting()
        trainer.training_step(trainer.model, {}, None if count is None else torch.tensor(count))

    class Passing(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **given: Any) -> Any:
            """Leaves it to the model."""
            return model(inputs, **given).loss

    Passing.compute_loss.__module__ = "transformers.trainer"
    ignoring = Own if kind == "loss" else Passing
    step(ignoring(Arguments(), steps=1), 8)
    step(ignoring(Arguments()), None)
    divides = ignoring(Arguments())
    divides.model_accepts_loss_kwargs = False
    step(divides, 8)
    assert not told()
    step(ignoring(Arguments()), 8)
    (said,) = told()
    code = (Own.compute_loss if kind == "loss" else Counting.forward).__code__
    assert f"{HERE}:{code.co_firstlineno}" in said
    assert "gradients are 2 times" in said
    step(ignoring(Arguments()), 8)
    assert len(told()) == 1


def test_samples_that_fill_a_batch(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in an evaluation's last batch, if it is too short."""
    accelerator = Accelerator()
    state = SimpleNamespace(in_dataloader=True, end_of_dataloader=True, remainder=4)
    accelerator.gradient_state = state  # type: ignore[attr-defined]
    monkeypatch.setattr(data_parallel, "wrapped", [SimpleNamespace(training=False)])
    accelerator.gather(torch.ones(2))
    state.remainder, state.end_of_dataloader = 3, False
    accelerator.gather(torch.ones(2))
    state.end_of_dataloader = True
    accelerator.gather(torch.ones(2, requires_grad=True))
    assert not told()
    accelerator.gather((torch.ones(2), {"labels": torch.ones(2)}))
    (said,) = told()
    assert "gather() returns 4 values for the evaluation's last 3 samples" in said


def test_a_loss_that_divides(told: Told) -> None:
    """The number may be moved before it is used."""

    class Dividing(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **given: Any) -> Any:
            """Divides by the number."""
            return model(inputs).loss / given["num_items_in_batch"].to("cpu")

    trainer = Dividing(Arguments())
    loss = trainer.training_step(Counting(), {}, torch.tensor(8))
    assert type(loss) is torch.Tensor
    assert not told()


def test_an_optimizer_that_is_passed(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """It overrides the arguments, unless DeepSpeed's configuration has one."""
    weight = torch.nn.Parameter(torch.ones(1))
    passed = torch.optim.AdamW([weight], lr=1e-3), None
    Trainer(Arguments(learning_rate=1e-3), optimizers=passed)
    Trainer(Arguments(), optimizers=passed)
    assert not told()
    Trainer(Arguments(learning_rate=1e-4, optim="sgd"), optimizers=passed)
    rate, kind = told()
    assert f"the passed optimizer AdamW with lr 0.001 ({HERE}:" in rate
    assert kind.startswith("TrainingArguments' optim sgd has no effect")
    constants = SimpleNamespace(GRADIENT_CLIPPING_DEFAULT=0.0)
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.constants", constants)
    Trainer(Arguments(), {"optimizer": {"type": "Lamb"}}, optimizers=passed)
    assert told()[-1].startswith("the passed optimizer AdamW (")
    assert "zero.json: optimizer.type Lamb is in force" in told()[-1]


def test_accumulation_that_a_trainer_leaves_out(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Trainer ignores accelerate's variable; accelerate itself sets 1."""
    for value in ("1", "2"):
        monkeypatch.setenv(VARIABLE, value)
        Trainer(Arguments())
    assert not told()
    monkeypatch.setenv(VARIABLE, "4")
    Trainer(Arguments())
    (said,) = told()
    assert said.startswith(f"${VARIABLE} 4 has no effect: TrainingArguments'")


class Smoothing(Own):
    """A Trainer whose loss calls transformers'."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the base class's loss."""
        return super().compute_loss(*args, **kwargs)


def test_what_a_loss_leaves_out(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A custom loss or loss function ignores label smoothing."""
    monkeypatch.setitem(sys.modules, "transformers.trainer", SimpleNamespace(Trainer=Trainer))
    smoothed = Arguments(label_smoothing_factor=0.1)
    Trainer(smoothed)
    Smoothing(smoothed)
    Own(Arguments())
    Trainer(Arguments(), compute_loss_func=graph)
    assert not told()
    Own(smoothed)
    Trainer(smoothed, compute_loss_func=graph)
    Own(Arguments(), compute_loss_func=graph)
    own, function, ignored = told()
    assert "label_smoothing_factor 0.1 has no effect: the loss of Own.compute_loss (" in own
    assert "compute_loss_func graph" in function
    assert ignored.startswith("compute_loss_func graph has no effect")


def test_what_an_engine_is_passed(told: Told) -> None:
    """A script's optimizer or schedule overrides DeepSpeed's configuration."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    config = {"optimizer": {"type": "Adam"}, "scheduler": {"type": "WarmupLR"}}
    DeepSpeedEngine({}, optimizer)
    DeepSpeedEngine(config)
    assert not told()
    DeepSpeedEngine(config, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))
    first, second = told()
    assert first.startswith("DeepSpeed's configuration: optimizer.type Adam has no effect")
    assert "the passed scheduler StepLR is in force" in second


def test_an_accumulation_that_no_loop_makes(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate divides anyway; a loop with its own accumulation steps later."""
    done = 0
    monkeypatch.setattr(observations, "steps_of_all", lambda: done)
    waits = Accelerator(gradient_accumulation_steps=2)
    for _ in range(2):
        waits.backward(graph())
    counted = Accelerator(gradient_accumulation_steps=2)
    for counted.step in (1, 2):
        counted.backward(graph())
        done += 1
    assert not told()
    accelerator = Accelerator(gradient_accumulation_steps=2)
    for _ in range(2):
        accelerator.backward(graph())
        done += 1
    (said,) = told()
    assert "without accumulate(). Gradients are 2 times too small" in said


def test_an_accumulation_that_accelerate_doesnt_get(told: Told) -> None:
    """The script's arguments have it."""
    args = SimpleNamespace(gradient_accumulation_steps=4)
    Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps).accumulate()
    assert not told()
    Accelerator().accumulate()
    (said,) = told()
    assert "args.gradient_accumulation_steps is 4, but the Accelerator's is 1" in said


def test_nothing_odd_ends_a_training(told: Told) -> None:
    """Unreadable calls are ignored."""
    Accelerator().prepare_data_loader(object())
    Accelerator(gradient_accumulation_steps=2).backward(graph(), retain_graph=True)
    Own(Arguments()).training_step(lambda _: SimpleNamespace(loss=1.0), {})
    assert not told()
