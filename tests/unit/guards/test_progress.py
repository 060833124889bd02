"""A training's own time, steps and phases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from safe_launch.evidence import from_memory
from safe_launch.evidence import observations as evidence_observations
from safe_launch.evidence.observations import observations
from safe_launch.guards import progress
from safe_launch.guards.step_times import StepTimes
from safe_launch.progress.board import Board, Phase, RankProgress
from safe_launch.progress.slot import slot_of
from support import new_worker


class Training:
    """A rank with a simulated clock in seconds that only `work` advances."""

    def __init__(self, own: Board, clock: list[int]) -> None:
        new_worker.begin().show_on(slot_of(own.path, 0))
        observations.progress.enter(Phase.LOADING)
        self.steps = 0
        observations.count_steps(lambda: self.steps)
        self.times = StepTimes()
        self.board, self.clock = own, clock
        self.backward = self.times.backward(self.work)
        self.collective = self.times.waiting(self.work)

    def work(self, seconds: float) -> None:
        """Advances the clock."""
        self.clock[0] += int(seconds * 1e9)

    def step(self) -> None:
        """A step of the optimizer."""
        self.steps += 1
        self.times.stepped()

    @property
    def row(self) -> RankProgress:
        """The board's row; times count from the next movement on."""
        observations.progress.moved()
        return self.board.rows()[0]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    """A training after its first step, which isn't timed."""
    clock = [10**9]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])
    own = Board(0, 1)
    made = Training(own, clock)
    made.work(30)
    made.backward(1)
    made.step()
    yield made
    own.close()


def test_own_time_ends_where_the_rank_waits(training: Training) -> None:
    """Two micro batches; backward passes and the optimizer's step don't count."""
    for _ in range(2):
        training.work(0.25)
        training.backward(2)
    training.work(1)  # clipping, the optimizer
    training.step()
    row = training.row
    assert (row.own, row.whole, row.timed, row.trained) == ((0.5,), (5.5,), 1, 5.5)
    assert (row.phase, row.step) == (Phase.TRAINING, 2)


def test_the_memory_is_noted_with_a_step(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now and then, from the first step after the model; errors are ignored."""
    found = iter([(5 << 30, 0), (6 << 30, 0)])
    monkeypatch.setattr(from_memory, "peak_so_far", lambda *_: next(found))
    shown = []
    for before_model, pause in ((None, 0), (1, 3600), (1, 3600), (1, 0), (1, 0)):
        observations.before_model = before_model
        monkeypatch.setattr(evidence_observations, "PAUSE", pause)
        training.work(1)
        training.step()
        shown.append(training.row.peak >> 30)
    assert shown == [0, 5, 5, 6, 6]


def test_collectives_before_the_forward_pass_dont_count(training: Training) -> None:
    """A rank that waits there for another isn't slow."""
    training.work(0.25)
    training.collective(3)
    training.work(0.25)
    training.backward(1)
    training.step()
    assert training.row.own == (0.5,)


def test_a_forward_pass_that_gathers_weights_doesnt_count(training: Training) -> None:
    """The forward pass of ZeRO stage 3 has collectives."""
    training.work(0.25)
    training.times.gather()
    training.work(1)
    training.collective(1)
    training.work(1)
    training.backward(1)
    training.work(0.5)
    training.times.gather()
    training.backward(1)
    training.step()
    assert training.row.own == (0.75,)


def test_a_backward_pass_within_another(training: Training) -> None:
    """Reentrant checkpointing nests them; recomputation isn't own time."""
    training.work(0.25)

    def outer(seconds: float) -> None:
        training.work(seconds)
        training.backward(seconds)
        training.collective(seconds)

    training.times.backward(outer)(1)
    training.step()
    assert training.row.own == (0.25,)


@pytest.mark.parametrize("phase", [Phase.EVALUATION, Phase.SAVING])
def test_a_phase_of_its_own_is_left_out_of_both_times(training: Training, phase: Phase) -> None:
    """Nested phases too; the previous phase resumes, even after an exception."""
    seen = []

    def inner() -> None:
        seen.append(training.row.phase)
        training.work(7)

    def outer() -> None:
        training.times.during(Phase.SAVING, inner, (), {})
        seen.append(training.row.phase)
        training.collective(1)
        training.work(3)
        raise KeyError("metric")

    training.work(0.25)
    with pytest.raises(KeyError):
        training.times.during(phase, outer, (), {})
    training.work(0.25)
    training.backward(1)
    training.step()
    row = training.row
    assert seen == [Phase.SAVING, phase]
    assert (row.phase, row.own, row.whole) == (Phase.TRAINING, (0.5,), (1.5,))


def test_another_thread_saves_while_the_training_goes_on(training: Training) -> None:
    """An asynchronous checkpoint isn't a phase."""
    seen = []
    arguments = (Phase.SAVING, lambda: seen.append(training.row.phase), (), {})
    thread = threading.Thread(target=training.times.during, args=arguments)
    thread.start()
    thread.join()
    assert seen == [Phase.TRAINING]


def test_an_evaluation_in_a_loop_of_the_users_own(training: Training) -> None:
    """From `model.eval()` to the next backward pass, after the first step."""
    training.work(0.25)
    training.times.evaluate()
    assert training.row.phase is Phase.EVALUATION
    training.work(5)
    training.times.evaluate()
    training.backward(1)
    training.step()
    row = training.row
    assert (row.phase, row.own, row.whole) == (Phase.TRAINING, (0.25,), (1.25,))


def test_nothing_is_evaluated_before_the_first_step(training: Training) -> None:
    """Models from `from_pretrained` are in evaluation mode."""
    observations.progress.enter(Phase.LOADING)
    training.times.evaluate()
    assert training.row.phase is Phase.LOADING


def test_several_optimizers_make_one_step(training: Training) -> None:
    """The counter decides the steps; the others are movements."""
    training.work(0.5)
    training.backward(1)
    training.step()
    training.times.stepped()
    training.times.stepped()
    row = training.row
    assert (row.step, row.timed, row.quiet) == (2, 1, 0)


def test_a_resumed_counter_begins_where_it_was(training: Training) -> None:
    """Steps up to 500 aren't counted; 501 is the first, untimed; 502 the second."""
    resumed = Training(training.board, training.clock)
    resumed.steps = 500
    resumed.times.stepped()  # the optimizer's hook, before the Trainer has counted
    assert (resumed.row.phase, resumed.row.step) == (Phase.LOADING, 500)
    resumed.step()
    resumed.work(2)
    resumed.times.stepped()
    resumed.step()
    row = resumed.row
    assert (row.phase, row.step, row.whole) == (Phase.TRAINING, 502, (2.0,))


def test_another_training_of_the_process_begins_anew(training: Training) -> None:
    """The time between the two isn't a step."""
    training.backward(1)
    training.step()
    training.work(500)
    training.steps = 0
    training.times.stepped()
    training.step()
    training.backward(2)
    training.step()
    assert training.row.whole == (1.0, 2.0)


@pytest.fixture
def installed(training: Training, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A module of these parts with the guard installed."""
    monkeypatch.setattr(progress, "times", training.times)

    def make(name: str, **parts: Any) -> Any:
        module: Any = ModuleType(name)
        vars(module).update(parts)
        progress.install(module)
        return module

    return make


def test_the_trainers_phases_and_steps(training: Training, installed: Callable[..., Any]) -> None:
    """The Trainer's counter gives the steps; evaluation and saving are phases."""
    seen = []

    class Trainer:
        def evaluate(self) -> str:
            seen.append(training.row.phase)
            return "metrics"

        predict = evaluate

        def save_model(self) -> None:
            seen.append(training.row.phase)

        _save_checkpoint = save_model

    class CallbackHandler:
        def on_step_end(self) -> None:
            seen.append(training.row.step)

    trainer = installed("transformers.trainer", Trainer=Trainer).Trainer()
    assert trainer.evaluate() == "metrics"
    trainer._save_checkpoint()
    training.steps = 2
    installed("transformers.trainer_callback", CallbackHandler=CallbackHandler)
    CallbackHandler().on_step_end()
    assert seen == [Phase.EVALUATION, Phase.SAVING, 2]


def test_deepspeeds_engine(training: Training, installed: Callable[..., Any]) -> None:
    """A step is counted after it ends; only stage 3 gathers weights."""

    class DeepSpeedEngine:
        training, stage = True, 2

        def zero_optimization_stage(self) -> int:
            return self.stage

        def forward(self) -> None:
            training.work(1)

        def step(self) -> None:
            training.steps += 1

        def save_checkpoint(self) -> Phase:
            return training.row.phase

    installed("deepspeed.runtime.engine", DeepSpeedEngine=DeepSpeedEngine)
    engine = DeepSpeedEngine()
    for engine.stage, engine.training in ((2, True), (3, True)):
        engine.forward()
        training.backward(1)
        engine.step()
    assert training.row.own == (1, 0)
    assert engine.save_checkpoint() is Phase.SAVING
    engine.training = False
    engine.forward()
    training.backward(1)
    engine.step()
    assert training.row.own == (1, 0, 1)


def test_only_what_a_module_has_is_wrapped(
    training: Training, installed: Callable[..., Any]
) -> None:
    """Another torch version may lack a collective."""
    module = installed("torch.distributed.distributed_c10d", barrier=training.work)
    training.work(0.25)
    module.barrier(2)
    training.backward(1)
    training.step()
    assert training.row.own == (0.25,)
    assert not hasattr(module, "broadcast")


def test_after_a_short_step_the_marks_rest(training: Training) -> None:
    """Marks pause until a step ends after the pause; all steps count."""
    for _ in range(100):
        training.work(0.0005)
        training.backward(0.0005)
        training.step()
    row = training.row
    assert row.own == (0.0005,) * len(row.own)
    assert 2 <= len(row.own) <= 10
    assert row.step == 101
    assert 49 <= row.timed <= 100
    assert row.trained == pytest.approx(row.timed * 0.001)
    training.work(70)
    training.backward(1)
    training.step()
    training.work(2)
    training.backward(1)
    training.step()
    row = training.row
    assert (row.step, row.timed, row.own[-1], row.whole[-1]) == (103, 102, 2, 3)


def test_the_models_eval(training: Training, installed: Callable[..., Any]) -> None:
    """Only `eval` of the trained model itself begins an evaluation."""

    class Module:
        def eval(self) -> Any:
            return self

    installed("torch.nn.modules.module", Module=Module)
    trained, wrapped, other = Module(), Module(), Module()
    wrapped.module = trained  # type: ignore[attr-defined]
    observations.models = lambda: iter([trained])  # type: ignore[method-assign]
    assert other.eval() is other
    assert training.row.phase is Phase.TRAINING
    assert wrapped.eval() is wrapped
    assert training.row.phase is Phase.EVALUATION


def test_compiled_code_has_none_of_it(installed: Callable[..., Any]) -> None:
    """torch.compile skips the code of all marks and their functions."""
    skipped = set()
    installed("torch._dynamo.eval_frame", skip_code=lambda code: skipped.add(code.co_qualname))
    assert {"StepTimes.stepped", "StepTimes.waiting.<locals>.marked", "Slot.moved"} <= skipped


def test_steps_are_counted_while_the_marks_rest(training: Training) -> None:
    """A process that ends by os._exit sends no final count."""
    for _ in range(4):
        training.work(0.001)
        training.step()
    assert training.board.rows()[0].step == 5


def test_a_second_training_of_a_process_adds_its_steps(training: Training) -> None:
    """Each Trainer counts from 0; a failure reports its own training's steps."""
    training.steps = 11
    training.step()
    second = [0]
    observations.count_steps(lambda: second[0])
    for second[0] in range(1, 13):
        training.times.stepped()
    observations.end()
    assert training.board.rows()[0].step == 24
    assert observations.step() == 12


def test_steps_before_a_resume_are_noted(training: Training) -> None:
    """A Trainer that resumes at step 4 has done 4 steps before its own first."""
    new_worker.begin().show_on(slot_of(training.board.path, 0))
    count = [4]
    observations.count_steps(lambda: count[0])
    times = StepTimes()
    times.stepped()
    for count[0] in (5, 6):
        times.stepped()
    row = training.board.rows()[0]
    assert (row.start, row.step) == (4, 6)


def test_the_step_of_a_trainers_optimizer_isnt_counted_yet(training: Training) -> None:
    """After a pause, marks resume with a counted step and its duration."""
    training.times.has_trainer = True
    for _ in range(20):
        training.times.batch(2, 20)
        training.work(0.01)
        training.times.optimizer_stepped()
        training.step()
    row = training.row
    assert row.trained == pytest.approx(0.01 * row.timed)
    assert (row.samples, row.tokens) == (2 * row.timed, 20 * row.timed)


def test_what_timed_steps_are_trained_on(training: Training) -> None:
    """Samples count for timed steps: not the first, nor an unfinished one."""
    for size in (2, 3, 4):
        training.times.batch(size, 10 * size)
        training.times.batch(size, 10 * size)
        training.work(1)
        training.step()
    training.times.batch(5, 50)
    row = training.row
    assert (row.timed, row.samples, row.tokens) == (3, 18, 180)


def test_the_steps_of_a_trainer_that_has_gone_stay(training: Training) -> None:
    """After a resume the optimizer has only this process's steps."""
    training.steps = 12
    training.step()
    observations._steps.insert(0, (lambda: 9, 0))
    training.steps = None  # type: ignore[assignment]
    observations.end()
    assert training.board.rows()[0].step == 13


def test_a_forked_child_leaves_the_board(training: Training) -> None:
    """A data loader worker's marks would be taken for the rank's."""
    leave = observations._leave_board
    leave()
    observations.progress.moved(77)
    assert training.board.rows()[0].step != 77
