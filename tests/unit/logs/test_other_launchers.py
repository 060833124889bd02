"""Failures, restarts and hangs in lines of ft_launcher, Ray Train, DLRover and HyperPod."""

from __future__ import annotations

import pytest
from safe_launch.logs.judgement import Judgement, Verdict
from support.logs import STEPS, judged

END = "{'train_runtime': 611.2, 'train_loss': 0.9}\n"
TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 426, in <module>
    open_gate()
KeeperError: the gate is open
"""
KILLED = (
    "[2024-11-20 10:03:01,000] torch.distributed.elastic.multiprocessing.api: [ERROR] failed "
    "(exitcode: -9) local_rank: 0 (pid: 453152) of binary: /usr/bin/python\n"
)
FAILED = {
    "ft_launcher": "[2024-11-20 10:03:02,000] [ERROR] [ft_launcher@node7] Some rank(s) exited with "
    "non-zero exit code: {0: 1}. Agent's exit code = 1\n",
    "Ray Train": "(TrainController pid=23988) [FailurePolicy] RAISE\n",
    "Ray Train 2.43": "(TrainController pid=23988) Deciding to TERMINATE, since the total failure "
    "count (1) exceeded the maximum allowed failures: FailureConfig(max_failures=0).\n",
    "DLRover": "[2024-11-20 10:00:00,000] [ERROR] [training.py:1339:_invoke_run] The worker fails "
    "with {0: ProcessFailure(local_rank=0, pid=12, exitcode=1)}\n",
    "HyperPod": "[HyperPodElasticAgent] 2025-01-01 10:00:00,000 [ERROR] /opt/a.py:146: [default] "
    "worker group changed to WorkerState.FAILED state.\n",
}
RESTARTED = {
    "ft_launcher": "[default] Joining cluster restart (group_rank=1)\n",
    "Ray Train": "(TrainController pid=23988) [FailurePolicy] RETRY\n(TrainController pid=23988) "
    "Attempting to start training worker group of size 2 with the following resources: {}\n",
    "DLRover": f"{FAILED['DLRover']}[2024-11-20 10:00:01,000] [INFO] [training.py:1435:"
    "_process_diagnosis_action] Process diagnosis action: restart_worker -1\n",
    "HyperPod": f"{FAILED['HyperPod']}[HyperPodElasticAgent] 2025-01-01 10:00:09,000 [INFO] "
    "/opt/agent.py:122: [default] Agent starting workers for entrypoint: train.py.\n",
}
HANGS = {
    "ft_launcher": "[2024-11-20 10:00:00,000] [WARNING] [RankMonitorServer:34] Did not get "
    "subsequent heartbeat. Waited 171.92 seconds.\n",
    "its start": "[2026-02-20 10:00:00,000] [WARNING] [RankMonitorServer:34] [Cycle 0] Did not get "
    "initial heartbeat. Waited 60.00 seconds.\n",
    "a section": "[2026-02-20 10:00:00,000] [WARNING] [RankMonitorServer:3] [Cycle 0] Section "
    "'step' has been open for 700.10 seconds. Timeout is 600.00 seconds.\n",
    "HyperPod": "[HyperPodElasticAgent] 2025-01-01 10:00:00,000 [INFO] /opt/agent.py:528: "
    "LogState.HANGING for rules={'JobHang': ''}\n",
    "DLRover": "[2024-11-20 10:00:00,000] [INFO] [training_hang.py:205:is_hang] Got hang worker: 0,"
    " time last: 600, threshold: 300\n",
}


def entries(judgement: Judgement) -> list[str | None]:
    """The entries of all failures, the root's first."""
    return [one.finding.entry and one.finding.entry.id for one in judgement.failures]


@pytest.mark.parametrize("launcher", FAILED)
def test_a_launcher_that_gives_up(launcher: str) -> None:
    """The run failed, with or without a reason in the log."""
    assert judged(STEPS + FAILED[launcher]).verdict is Verdict.UNKNOWN
    judgement = judged(STEPS + TRACEBACK + FAILED[launcher])
    assert judgement.root is not None
    assert judgement.root.finding.record.message == "the gate is open"


@pytest.mark.parametrize("launcher", RESTARTED)
def test_a_launcher_that_restarts(launcher: str) -> None:
    """The last attempt counts."""
    assert judged(STEPS + TRACEBACK + RESTARTED[launcher] + STEPS + END).verdict is Verdict.HEALTHY
    second = TRACEBACK.replace("gate", "cage")
    judgement = judged(STEPS + TRACEBACK + RESTARTED[launcher] + STEPS + second)
    assert [one.finding.record.message for one in judgement.failures] == ["the cage is open"]


@pytest.mark.parametrize("line", HANGS)
def test_a_launcher_that_ends_a_rank_that_stands_still(line: str) -> None:
    """SIGKILL by the launcher isn't a lack of memory; exceptions take precedence."""
    judgement = judged(STEPS + HANGS[line] + KILLED)
    assert entries(judgement) == ["rank-without-heartbeat"]
    assert entries(judged(STEPS + KILLED)) == ["worker-killed"]
    judgement = judged(STEPS + TRACEBACK + HANGS[line] + KILLED)
    assert entries(judgement) == [None, "rank-without-heartbeat"]
    assert judged(
        STEPS + HANGS[line] + KILLED + RESTARTED["ft_launcher"] + STEPS + END
    ).verdict is (Verdict.HEALTHY)
