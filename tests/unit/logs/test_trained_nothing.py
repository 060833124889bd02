"""Trainings that end without an optimizer step."""

from __future__ import annotations

import pytest
from safe_launch.logs import report
from safe_launch.logs.headline import headline
from safe_launch.logs.judgement import Verdict
from support.logs import STEPS, judged
from support.tables import table

END = "{'train_runtime': 3.1}\n"
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
    judgement = judged(f"{log}{END}")
    assert "without an optimizer step" in headline(judgement)
    rows = [text for _, text in report.rows(judgement, ())]
    assert says in rows[0] + rows[1]


@pytest.mark.parametrize(
    "log",
    [
        f"{STARTED}200 prompts selected\n{STEPS}{END}",
        f"{STARTED}200 prompts selected\n 50%|###  | 1/2 [00:01<00:01]\n{END}",
        f"{STARTED}300 prompts selected, 10 samples kept for later\n{END}",
        f"train.py --micro_batch_size 512\n200 prompts selected\n{END}",
        f"train.py --global_batch_size 512\n{END}",
        f"max_steps=0.5\n{END}",
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
