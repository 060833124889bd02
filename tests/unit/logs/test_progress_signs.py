"""What a job was doing when its log ends."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.activities import ACTIVITIES
from safe_launch.logs.headline import headline
from safe_launch.logs.progress_signs import TRAINING, Written, last_activity
from safe_launch.logs.report import rows
from support.logs import STEPS, judged

ENDS = {
    "NCCL": "ws2:31:51 [0] NCCL INFO comm 0x8d4fd10 rank 0 nranks 2 cudaDev 0 - Init COMPLETE",
    "each other": "[rank: 0] Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/16",
    "an extension": "Using /root/.cache/torch_extensions/py310_cu121 as PyTorch extensions root...",
    "the data": "Map (num_proc=8):  41%|####  | 2100/5000 [00:11<00:15, 190.1 examples/s]",
    "weights": "Loading checkpoint shards:  25%|##5  | 1/4 [00:03<00:10,  3.5s/it]",
    "a checkpoint": "Saving model checkpoint to output/checkpoint-500",
    "an evaluation": "***** Running Evaluation *****",
    "exits": "[rank0]: process group has NOT been destroyed before we destruct ProcessGroupNCCL.",
    "a server": "INFO:trl.extras.vllm_client:Server is not up yet. Retrying in 2.0 seconds...",
    "objects": "Exception ignored in: <function DeepSpeedEngine.__del__ at 0x7f241b4fe830>",
    "the first": "  0%|          | 0/1000 [00:00<?, ?it/s]",
}
"""Last lines, by words of their activity."""


def lines_of(*texts: str) -> list[Written]:
    """Lines of a file."""
    return [Written("train.log", number, text) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize("words", ENDS)
def test_each_activity(words: str) -> None:
    """The headline names it; the advice is for a job that stands still."""
    judgement = judged(f"torchrun train.py\n{ENDS[words]}\n")
    assert words in headline(judgement)
    texts = [text for label, text in rows(judgement, []) if label == "next"]
    assert texts[0].startswith("if it stands still there, ")


def test_every_activity_has_a_line() -> None:
    """None is recognized by nothing here."""
    shown = {last_activity([lines_of(text)]) for text in ENDS.values()}
    assert shown == {*ACTIVITIES}


def test_a_step_after_it() -> None:
    """Then the training goes on."""
    assert last_activity([lines_of(ENDS["NCCL"], "step 10 loss 2.31")]) is TRAINING
    assert last_activity([lines_of("step 10 loss 2.31", ENDS["a checkpoint"])]) in ACTIVITIES
    assert last_activity([lines_of(ENDS["weights"], *["another line"] * 12)]) is None


def test_no_nccl_on_an_npu() -> None:
    """HCCL has other variables."""
    lines = lines_of("import torch_npu", ENDS["NCCL"])
    assert last_activity([lines]) is None


def test_a_training_that_goes_on() -> None:
    """That there is no failure comes first, and nothing is advised."""
    judgement = judged(STEPS * 3)
    assert headline(judgement).startswith("no failure so far")
    assert [label for label, _ in rows(judgement, [])] == ["last", "missing", "next"]
