"""Judging a launch without us by its exit code and output."""

from __future__ import annotations

import pytest
from support.without_us import AT_EXIT, Verdict, verdict

TORCHRUN = """\
terminate called without an active exception
W0614 10:00:01.000 700 torch/distributed/elastic/multiprocessing/api.py:1015] Sending process 742 \
closing signal SIGTERM
E0614 10:00:01.000 700 torch/distributed/elastic/multiprocessing/api.py:1002] failed \
(exitcode: -6) local_rank: 0 (pid: 741) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
traceback : Signal 6 (SIGABRT) received by PID 741
"""
RAISED = """\
[rank0]: ValueError: the bug of the script
E0614 10:00:01.000 700 torch/distributed/elastic/multiprocessing/api.py:1002] failed \
(exitcode: 1) local_rank: 0 (pid: 741) of binary: /usr/bin/python3
"""
TERMINATED = RAISED.replace("(exitcode: 1)", "(exitcode: -15)")
MEMORY = "terminate called after throwing an instance of 'std::bad_alloc'\nSignal 6 (SIGABRT)\n"


@pytest.mark.parametrize(
    ("code", "said", "is_complete", "expected"),
    [
        (0, "", True, Verdict.TRAINED),
        (0, AT_EXIT, True, Verdict.TRAINED),
        (0, "", False, Verdict.FAILED),
        (1, TORCHRUN, True, Verdict.TRAINED_AND_ABORTED),
        (-6, "", True, Verdict.TRAINED_AND_ABORTED),
        (250, "train.py exits with return code = -6", True, Verdict.TRAINED_AND_ABORTED),
        (None, "", True, Verdict.TRAINED_AND_ABORTED),
        (None, "", False, Verdict.FAILED),
        (1, TORCHRUN, False, Verdict.CUT_SHORT),
        (1, MEMORY, False, Verdict.FAILED),
        (-6, "", False, Verdict.FAILED),
        (1, RAISED, True, Verdict.FAILED),
        (1, RAISED, False, Verdict.FAILED),
        (1, TERMINATED, True, Verdict.FAILED),
    ],
)
def test_what_became_of_it(
    code: int | None, said: str, is_complete: bool, expected: Verdict
) -> None:
    """Only errors after the script's end are torch's; a failure stays a failure."""
    judged = verdict(code, said, is_complete=is_complete)
    assert judged is expected
    assert judged.has_trained == expected.name.startswith("TRAINED")
