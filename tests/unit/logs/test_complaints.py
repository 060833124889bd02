"""A process's output before its failure: its last activity and its first complaint."""

from __future__ import annotations

import pytest
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.logs.complaints import output_before

TIMEOUT = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)"


def before(*lines: str, message: str = TIMEOUT) -> tuple[str, ...]:
    """The quoted lines of a log."""
    return output_before(FailureRecord(1, 0.0, "RuntimeError", message, log_tail=lines))


def test_the_last_activity_and_the_first_complaint() -> None:
    """The lines before the failure; spaces don't matter."""
    quoted = before(
        "{'loss': 0.3, 'epoch': 0.5}",
        "could not read shard 7, using shard 6",
        "Saving model   checkpoint to out/checkpoint-500",
        "shard 8 not found",
        f"[E723 15:09:48 ProcessGroupNCCL.cpp:685] {TIMEOUT}",
        "waiting for the others",
    )
    assert quoted == (
        "Saving model checkpoint to out/checkpoint-500",
        "could not read shard 7, using shard 6",
    )


@pytest.mark.parametrize(
    "line",
    [
        f"RuntimeError: {TIMEOUT}",
        TIMEOUT,
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "/u/x.py:31: UserWarning: None of the inputs have requires_grad=True, which is invalid.",
        "------------------------------",
        "$ torchrun --nproc_per_node 2 train.py",
        "WARNING:torch.distributed.elastic:Sending process 2383 closing signal SIGTERM",
        "[2024-12-11 20:32:05,511] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 33771",
        "train.py FAILED",
        "ok",
        "",
    ],
)
def test_what_shows_nothing(line: str) -> None:
    """The failure's own lines, frames, Python's warnings and launchers' output."""
    assert before(line) == ()
