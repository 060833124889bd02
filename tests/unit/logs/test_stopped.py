"""Runs that somebody stopped while they waited, and ends of what runs a script."""

from __future__ import annotations

import pytest
from safe_launch.logs.headline import headline
from safe_launch.logs.judgement import Verdict
from support.logs import STEPS, entry_of, judged
from support.tables import table

RAY = (
    "(scheduler +{at}) Warning: The following resource request cannot be scheduled right now:"
    " {{'CPU': 1.0}}. Consider creating fewer actors or adding more nodes to this Ray cluster.\n"
)
SERVER = "2026-01-01 10:{at}:00 WARNING waiting for the reward server: make sure that it runs\n"
CTRL_C = """\
^CTraceback (most recent call last):
  File "train.py", line 83, in main
    runner.run()
KeyboardInterrupt
"""
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\n"


def told(line: str, *ats: str) -> str:
    """The line at several times."""
    return "".join(line.format(at=at) for at in ats)


@table(
    ("log", "says"),
    [
        (told(RAY, "59s", "1m34s", "2m9s"), "cannot be scheduled"),
        (told(SERVER, "01", "02", "03", "04"), "reward server"),
        (f"{STEPS}{told(SERVER, '01', '02', '03')}", "reward server"),
    ],
)
def test_what_a_stopped_run_waited_for(log: str, says: str) -> None:
    """A repeated warning with advice is the cause of the stop."""
    judgement = judged(log + CTRL_C)
    assert judgement.verdict is Verdict.UNKNOWN
    assert says in headline(judgement)


@pytest.mark.parametrize(
    "log",
    [
        told(RAY, "59s", "1m34s"),
        told(RAY, "59s", "59s", "59s", "59s"),
        f"{told(SERVER, '01', '02', '03')}{STEPS}",
        "".join(f"[rank{n}]: waiting for rank 0, please be patient {n}\n" for n in range(3)),
    ],
)
def test_what_a_stopped_run_did_not_wait_for(log: str) -> None:
    """A warning that is rare, of all ranks at once, or followed by steps."""
    assert entry_of(judged(log + CTRL_C)) == "stopped-from-outside"


def test_a_dump_of_a_process_that_waits_for_a_build() -> None:
    """The innermost frame in py-spy's dump."""
    dump = 'Thread 4 (idle): "MainThread"\n    wait (torch/utils/file_baton.py:{})\n'
    assert entry_of(judged(dump.format(42))) == "extension-lock-left"
    assert entry_of(judged(dump.format(42).replace("file_baton", "other"))) is None


@table(
    ("end", "is_known"),
    [
        ("Unsuccessful task run with exit code: 75 completed in 41.2 seconds", True),
        ("task run completed in 41.2 seconds", True),
        ("Command finished in 3 s", True),
        ("Training completed in 41.2 seconds", False),
    ],
)
def test_the_end_of_what_runs_a_script(end: str, *, is_known: bool) -> None:
    """A wrapper's words of an end don't show that a failure was survived; a training's do."""
    judgement = judged(f"{MISMATCH}Exiting\n{end}\n")
    assert (entry_of(judgement) == "driver-and-library-differ") is is_known


PREEMPTED = (
    "slurmstepd: error: *** JOB 77 ON gpu-17 CANCELLED AT 2026-07-08T23:14 DUE TO PREEMPTION ***\n"
    "srun: error: gpu-17: tasks 0-3: Killed\n"
)


LIGHTNING = (
    "Detected KeyboardInterrupt, attempting graceful shutdown ...\nEpoch 21: 42%|4 | 13/31\n"
)
PROMPT = "(asr) jonas@dgx:~/asr$ "


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (f"{STEPS}{PREEMPTED}", "stopped"),
        (f"{STEPS}{PREEMPTED}Resuming from the newest checkpoint\n", "stopped"),
        (f"{STEPS}{PREEMPTED}Resuming at epoch 0\nstep 9 loss 2\n", "while the training goes on"),
        (f"{STEPS}{LIGHTNING}", "stopped"),
        (
            f"{STEPS}{LIGHTNING}{PROMPT}ls\nepoch=12-step=403.ckpt\n{PROMPT}# epoch 3\n",
            "stopped",
        ),
    ],
)
def test_a_stopped_run_that_goes_on(log: str, says: str) -> None:
    """After a line on a checkpoint and a step; a stop is no failure anyway."""
    assert says in headline(judged(log))
