"""Failure messages of other processes: the root cause comes before them."""

from __future__ import annotations

import pytest
from safe_launch.logs.judgement import Verdict
from support.logs import STEPS, judged
from support.tables import table

HEADER = "Traceback (most recent call last):\n"
MAIN = HEADER + '  File "/home/me/train.py", line 9, in <module>\n    main()\n'
SHUT = "KeeperError: the door stands open\n"
SUMMARY = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n"
    "-----\nRoot Cause (first observed failure):\n[0]:\n  time : x\n  host : n1\n"
    "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 14)\n  error_file: <N/A>\n"
)


def behind(prefix: str, text: str) -> str:
    """A text as one process's lines."""
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@table(
    "end",
    [
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "EOFError",
        "SystemExit: 1",
        "subprocess.CalledProcessError: Command '['a.py']' returned non-zero exit status 1.",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "concurrent.futures.process.BrokenProcessPool: A process was terminated abruptly.",
    ],
)
def test_another_rank_is_the_root(end: str) -> None:
    """The order doesn't matter; alone, the message itself is reported."""
    own, other = behind("[rank1]: ", MAIN + SHUT), behind("[rank0]: ", f"{MAIN}{end}\n")
    for log in (own + other, other + own):
        root = judged(log).root
        assert root is not None
        assert root.finding.record.exception == "builtins.KeeperError"
    assert judged(other).verdict in (Verdict.UNKNOWN, Verdict.KNOWN)
    assert judged(STEPS + other + "{'train_runtime': 611.2}\n").failures == ()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            behind("[rank0]: ", "cannot find the cache, it is made anew")
            + behind("[rank3]: ", "ERROR the shard 7 is empty, cannot go on")
            + behind("[rank0]: ", "ERROR peer has gone, unable to read")
            + SUMMARY,
            "ERROR the shard 7 is empty, cannot go on",
        ),
        (f"the pool is shut: cannot allocate\n{MAIN}SystemExit: 1\n", "the pool is shut: "),
        (
            behind("3: ", "gate.py: the shard 7 is missing")
            + behind("0: ", "gate.py: refused by peer 3")
            + "srun: error: node1: task 3: Exited with exit code 1\n",
            "gate.py: the shard 7 is missing",
        ),
        (
            behind("[rank1]: ", "ERROR: no such file shard-7")
            + behind("[rank0]: ", f"{MAIN}BrokenPipeError: [Errno 32] Broken pipe\n"),
            "ERROR: no such file shard-7",
        ),
    ],
    ids=["torchrun", "an exit code", "srun", "a broken pipe"],
)
def test_the_first_complaint_of_the_rank_that_failed(log: str, said: str) -> None:
    """Without an exception, its lines before a launcher's report count."""
    judgement = judged(log)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.complaints[0].text.startswith(said)


@table(
    "line",
    [
        "free(): invalid pointer",
        "double free or corruption (!prev)",
        "corrupted size vs. prev_size",
        "*** stack smashing detected ***: terminated",
        "python: malloc.c:2617: sysmalloc: Assertion `old_top == initial_top' failed.",
    ],
)
def test_glibcs_line_above_an_abort(line: str) -> None:
    """It has the reason of the abort."""
    for end in ("Aborted (core dumped)", "Fatal Python error: Aborted", ""):
        root = judged(f"loading\n{line}\n{end}\n").root
        assert root is not None
        assert root.finding.record.signal == 6
        assert root.evidence.lines[-1][1] == line
