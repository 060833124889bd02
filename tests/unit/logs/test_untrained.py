"""Finished trainings that learned nothing: a lost loss, numbers that don't move, no step."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.choose import RULES
from safe_launch.diagnosis.next_step.step import case_of
from safe_launch.logs.headline import headline
from safe_launch.logs.judgement import Verdict
from safe_launch.logs.report import rows
from support.logs import STEPS, entry_of, judged
from support.tables import table

LOST = "loss-not-a-number"


@pytest.mark.parametrize(
    "line",
    [
        "step {} | epoch 0 | loss nan | grad_norm nan | lr 1.00e-05",
        "{{'loss': nan, 'grad_norm': nan, 'epoch': 0.{}}}",
        "{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.{}}}",
        " iteration {}/ 200 | lm loss: NAN | loss scale: 1.0 | grad norm: nan |",
        "Epoch {}: 100%|####| 9/9 [00:01<00:00, v_num=0, train_loss_step=nan.0, val_loss=0.41]",
        "train_loss: nan, step: {}, val_loss: 2.31",
        "Epoch {} training loss: nan",
    ],
)
@pytest.mark.parametrize("end", ["", "{'train_runtime': 611.2, 'train_loss': 0.0}\n"])
def test_a_training_is_lost(line: str, end: str) -> None:
    """All later losses up to the end are bad; the first such line is reported."""
    lost = "".join(f"{line.format(number)}\n" for number in range(3))
    judgement = judged(STEPS + lost + end)
    assert entry_of(judgement) == LOST
    assert judgement.root is not None
    assert judgement.root.evidence.lines[0][0] == STEPS.count("\n") + 1
    assert entry_of(judged(STEPS + lost + STEPS + end)) is None


def test_a_part_of_an_epoch_is_no_step() -> None:
    """It stays the same in all of the last lines."""
    line = "{{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 9.99{}e-06, 'epoch': 0.0}}\n"
    assert judged("".join(map(line.format, range(5)))).root is not None
    assert judged("".join(map(line.format, range(4)))).root is None


def test_a_gradient_is_lost_before_the_loss() -> None:
    """The first step's loss comes from the weights as they were loaded."""
    first = "{'loss': 1.0446, 'grad_norm': nan, 'learning_rate': 1e-08, 'epoch': 0.0}\n"
    second = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-08, 'epoch': 0.01}\n"
    assert entry_of(judged(first + second)) == LOST
    assert entry_of(judged(first + first)) is None


@pytest.mark.parametrize(
    "line",
    [
        "{{'eval_loss': nan, 'eval_runtime': 1.2, 'epoch': {}.0}}",
        "Epoch {}: 100%|####| 9/9 [00:01<00:00, v_num=0, train_loss=0.5, val_loss=nan.0]",
        "epoch {} val loss nan",
        "[eval] step {} loss: nan",
        "Validation loss: nan",
        "test_loss=nan",
        "train loss 0.412 dev loss nan",
        "aux_loss: nan",
        "loss scale: nan",
        "{{'loss': 0.0, 'grad_norm': 0.0, 'epoch': {}.0}}",
        "nan_loss: 0",
        "loss: nano",
    ],
)
def test_another_loss_is_none(line: str) -> None:
    """An empty evaluation, a part of the loss, or a later number is no loss of the training."""
    assert entry_of(judged(STEPS + "".join(f"{line.format(n)}\n" for n in range(5)))) is None


def test_a_single_one_may_be_of_a_skipped_step() -> None:
    """At least two are needed."""
    assert entry_of(judged(STEPS + "step 30/50 loss nan\n")) is None
    assert entry_of(judged(STEPS + "step 30/50 loss nan\nstep 31/50 loss nan\n")) == LOST


END = "{'train_runtime': 611.2, 'train_loss': 10.5, 'epoch': 1.0}\n"


def steps(line: str, count: int = 6, end: str = "") -> str:
    """A log whose lines have their step and a loss that moves."""
    lines = (line.format(step=step, loss=3 - step / 20) for step in range(1, count + 1))
    return "".join(f"{text}\n" for text in lines) + end


NO_NORM = "{{'loss': {loss:.4f}, 'grad_norm': 0.0, 'learning_rate': 1e-5, 'epoch': {step}}}"
LN_2 = "{{'loss': 0.6931, 'grad_norm': 1.{step}, 'rewards/margins': 0.0, 'epoch': {step}}}"


@table(
    ("log", "advised"),
    [
        (steps(NO_NORM), "labels"),
        (steps(NO_NORM, end=END), "labels"),
        (steps("grpo step {step} reward_std 0.0 loss 0.{step} grad_norm 0.0", 20), "rewards"),
        (steps(LN_2, 20), "policy and reference"),
        (steps("step {step}/100 loss 10.3735 lr 1e-4", 20), "optimizer"),
        (steps("step {step}/100 loss 0.0"), "labels"),
    ],
)
def test_what_does_not_move(log: str, advised: str) -> None:
    """The number is the failure, also of a run that ends well, and the advice fits it."""
    judgement = judged(log)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "nothing is learned: " in headline(judgement)
    assert "from line 1 to the end" in headline(judgement)
    label, text = rows(judgement, [])[0]
    assert (label, advised in text) == ("do", True), text
    root = judgement.root
    assert root is not None
    assert RULES["nothing-learned"](case_of(root.finding.record)) is not None


@table(
    "log",
    [
        steps(NO_NORM, 4),  # too few to tell
        steps(LN_2, 19),  # as in a warmup
        steps("grpo step {step} reward_std 0.0 loss 0.{step} grad_norm 0.0", 19),
        steps("step {step} loss 1.7{step} gnorm 0.00 grad_norm 0.00"),  # rounded
        steps("step {step} loss 0.01{step} grad_norm 0.0"),
        steps("step {step} loss {loss:.3f} grad_norm 1.{step}"),
        steps("step {step} loss 1.2.{step} grad_norm 0.0.0"),  # no number
        steps("step {step} loss 0.0012", 20),  # it is learned
        steps("step {step} loss 1.2", 20),  # few digits
        steps("[rank0]: step {step} loss: -1.0000", 20),  # a pipeline's stage without the loss
        steps("{{'loss': 0.0, 'grad_norm': 0.1{step}, 'reward': 0.{step}, 'epoch': {step}}}"),
        "".join(f"rank {rank}: step 7 loss 2.3071\n" for rank in range(8)),  # one step
        "OVERFLOW! Skipping step, reducing to 32768\n" + steps(NO_NORM),
    ],
)
def test_what_moves_or_may_stay(log: str) -> None:
    """It is no failure."""
    assert judged(log).verdict is Verdict.UNFINISHED


ENDED = "{'train_runtime': 3.1}\n"
STARTED = "train.py --rollout_batch_size 256 --micro_batch_size 512 --data x\n"
RAISED = """\
Traceback (most recent call last):
  File "/home/me/tune.py", line 86, in run
    trainer.train()
ValueError: the folder has another model
"""


@table(
    ("log", "says"),
    [
        (f"{STARTED}200 prompts selected\n", "Lower `rollout_batch_size` to 200 or less"),
        (f"{STARTED}dataset has 100 train samples\n", "at least 256 samples"),
        ("  Num examples = 1,000\ntrain.global_batch_size: 4096\n", "at least 4096 examples"),
        ("  Total optimization steps = 0\n", "at least one step"),
        ("  max_steps=0 of 3 epochs\n", "smaller batch"),
    ],
)
def test_a_training_that_ends_without_a_step(log: str, says: str) -> None:
    """Its end is a failure, with the numbers to change."""
    judgement = judged(f"{log}{ENDED}")
    assert "without an optimizer step" in headline(judgement)
    texts = [text for _, text in rows(judgement, ())]
    assert says in texts[0] + texts[1]


@pytest.mark.parametrize(
    "log",
    [
        f"{STARTED}200 prompts selected\n{STEPS}{ENDED}",
        f"{STARTED}200 prompts selected\n 50%|###  | 1/2 [00:01<00:01]\n{ENDED}",
        f"{STARTED}300 prompts selected, 10 samples kept for later\n{ENDED}",
        f"train.py --micro_batch_size 512\n200 prompts selected\n{ENDED}",
        f"train.py --global_batch_size 512\n{ENDED}",
        f"max_steps=0.5\n{ENDED}",
    ],
)
def test_a_training_that_may_have_had_steps(log: str) -> None:
    """A step, a bar, or enough samples: nothing is wrong."""
    assert judged(log).verdict is Verdict.HEALTHY


def test_a_training_that_has_not_ended() -> None:
    """It may still begin."""
    assert judged(f"{STARTED}200 prompts selected\n").verdict is Verdict.UNFINISHED


@pytest.mark.parametrize("end", ["Training complete, saving\n12:00:01 INFO Training complete!\n"])
def test_an_error_before_the_words_of_an_end(end: str) -> None:
    """Without any step the end says nothing; steps before or after show a training."""
    raised = f"{RAISED}12:00:00 INFO going on\n"
    judgement = judged(f"starting\n{raised}{end}")
    assert judgement.root is not None
    assert judgement.root.finding.record.exception == "builtins.ValueError"
    assert judged(f"starting\n{raised}{STEPS}{end}").verdict is Verdict.HEALTHY
    assert judged(f"{STEPS}{raised}{end}").verdict is not Verdict.KNOWN
