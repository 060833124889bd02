"""A worker's death in one line."""

from __future__ import annotations

import signal

import pytest
from safe_launch.evidence.failure_record import FailureRecord, ToldBy, death_text, signal_text

OOM_KILL = "the kernel's out-of-memory killer struck on this host meanwhile"


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (FailureRecord(1, 0.0, exit_code=3), "rank 1 left with exit code 3"),
        (FailureRecord(None, 0.0, exit_code=3), "a worker left with exit code 3"),
        (
            FailureRecord(1, 0.0, "torch.OutOfMemoryError", step=1, host="beta"),
            "rank 1 on beta raised OutOfMemoryError after 1 step",
        ),
        (
            FailureRecord(0, 0.0, "builtins.SystemExit", step=2, exit_code=4),
            "rank 0 left with exit code 4 after 2 steps",
        ),
        (
            FailureRecord(0, 0.0, "builtins.KeyError", step=9, start=8),
            "rank 0 raised KeyError after 1 step from step 8 on",
        ),
        (
            FailureRecord(0, 0.0, signal=9, exit_code=137, oom_kills=1),
            f"rank 0 was ended by SIGKILL ({OOM_KILL})",
        ),
        (
            FailureRecord(0, 0.0, signal=11, exit_code=139),
            "rank 0 was ended by SIGSEGV (invalid memory access in native code)",
        ),
        (
            FailureRecord(0, 0.0, "builtins.KeyError", exit_code=4, told_by=ToldBy.OUTPUT),
            "rank 0 left with exit code 4; its output shows KeyError",
        ),
        (
            FailureRecord(0, 0.0, "a.B", signal=6, exit_code=134, step=2, told_by=ToldBy.OUTPUT),
            "rank 0 was ended by SIGABRT after 2 steps; its output shows B",
        ),
        (
            FailureRecord(0, 0.0, "a.B", exit_code=1, told_by=ToldBy.LAST_LINE),
            "rank 0 left with exit code 1; its last output says why",
        ),
        (
            FailureRecord(0, 0.0, signal=11, exit_code=245, told_by=ToldBy.EXIT_CODE),
            f"rank 0 left with exit code 245, as after {signal_text(11)}",
        ),
        (FailureRecord(None, 0.0, message="node 1 is lost"), "node 1 is lost"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_death_in_a_line(record: FailureRecord, text: str) -> None:
    """The line has the rank, host, reason and number of steps."""
    assert death_text(record) == text


def test_signals_in_words() -> None:
    """Known senders are named; real-time signals have no name."""
    assert "scheduler" in signal_text(signal.SIGKILL)
    assert signal_text(signal.SIGUSR1) == "SIGUSR1"
    assert signal_text(42) == "signal 42"
