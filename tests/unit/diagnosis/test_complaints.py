"""What somebody wrote around a log."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.diagnosis.next_step.complaints import complaint_in
from safe_launch.evidence.failure_record import FailureRecord
from support.logs import judged


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("it gets stuck after the first epoch", "py-spy dump"),
        ("then the job just exits", "echo $?"),
        ("nvidia-smi shows only the first GPU busy", "one process for each device"),
        ("训练时只用了一张卡", "one process for each device"),
        ("After resuming from the checkpoint the loss jumps to 10.3", "what the resume doesn't"),
        ("the loss spikes each time I restart from a checkpoint", "what the resume doesn't"),
        ("The model does not learn anything", "the optimizer trains the model"),
        ("loss一直不下降", "the optimizer trains the model"),
        ("the saved model outputs garbage", "weight in the saved file"),
        ("GPU memory keeps growing with every epoch", "Find what each step keeps"),
        ("with 2 GPUs it is slower than with a single GPU", "samples per second"),
        ("It does not stop training though", ""),
        ("the model does not need a GPU", ""),
        ("we only use the first 100 samples", ""),
        ("a memory efficient optimizer", ""),
        ("resuming from checkpoint-500", ""),
    ],
)
def test_complaints(words: str, says: str) -> None:
    """Each has its advice; sentences with some of the words have none."""
    complaint = complaint_in(words)
    assert (complaint is not None) == bool(says)
    if complaint is not None:
        assert says in next_step(FailureRecord(None, 1.0, message=words)).do


def test_a_hang_while_the_ranks_connect() -> None:
    """What the log ends with comes first."""
    log = (
        "No error, but it hangs after this:\n"
        "ws2:31:51 [0] NCCL INFO comm 0x8d4fd10 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    )
    root = judged(log).root
    assert root is not None
    do = next_step(root.finding.record).do
    assert do.startswith("Run once with NCCL_P2P_DISABLE=1.")
    assert "while NCCL connects the ranks" in do
