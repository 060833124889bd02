"""Trainings whose printed numbers don't move."""

from __future__ import annotations

from safe_launch.diagnosis.next_step.choose import RULES
from safe_launch.diagnosis.next_step.step import case_of
from safe_launch.logs.headline import headline
from safe_launch.logs.judgement import Verdict
from safe_launch.logs.report import rows
from support.logs import judged
from support.tables import table

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
