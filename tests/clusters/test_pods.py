"""safe-launch as the first process of real pods, from the shipped manifest."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
from safe_launch.core.errors import ExitCode
from support.hosts import needs_hosts, network
from support.pods import Job, job
from support.stacks import EXAMPLES, ROOT
from support.waiting import LONG

pytestmark = needs_hosts
PROGRAMS = ROOT / "tests" / "programs"
TRAINS = PROGRAMS / "trains.py"


def step(folder: Path, rank: int) -> int:
    """A rank's last finished step; -1 before the first."""
    path = folder / f"step-{rank}"
    return int(path.read_text() or -1) if path.exists() else -1


def test_pods_train_together(tmp_path: Path) -> None:
    """Node 0's name resolves late; the example's failure is corrected in both, silently."""
    kwargs = ("--gradient_checkpointing_kwargs", '{"use_reentrant": true}')
    fails = ("--deepspeed", EXAMPLES / "zero2.json", "--gradient_checkpointing", "True", *kwargs)
    short = ("--max_steps", 4, "--save_strategy", "no", "--report_to", "none", "--use_cpu")
    with (
        network("train-0", "train-1", resolve=False) as hosts,
        job(tmp_path, hosts, EXAMPLES / "finetune.py", *fails, *short) as one,
    ):
        one.publish(1, 0, 1)
        one.publish(0, 0)
        follower, head = one.start(1), one.start(0)
        one.until(lambda: follower.says("its name isn't known") and head.says("1 of 2 nodes"))
        one.publish(0, 1)
        assert one.settle() == "Complete"
        assert [code for _, code in one.ended] == [0, 0]
        assert head.says("gradient_checkpointing: reentrant -> non_reentrant")
        assert head.says("attempt 1: succeeded")
        assert follower.says("node 0 ended the run: succeeded")
        assert [head.message, follower.message] == ["", ""]


def test_a_failure_is_in_every_pods_status_and_is_final(tmp_path: Path) -> None:
    """The user's line, from whichever pod; the job isn't retried."""
    with (
        network("train-0", "train-1", resolve=False) as hosts,
        job(tmp_path, hosts, TRAINS, tmp_path, 5, "1:2:raise") as one,
    ):
        one.start_all()
        assert [pod.end() for pod in one.pods.values()] == [1, 1]
        message, other = (pod.message for pod in one.pods.values())
        assert message == other
        assert message.startswith("safe-launch: exit code 1 (the failed worker's own): rank 1 on ")
        assert f": the bug of rank 1; {TRAINS}:26 in <module>: raise ValueError(" in message
        assert one.settle() == "Failed"
        assert len(one.ended) == 2


def test_a_job_survives_lost_and_preempted_pods(tmp_path: Path) -> None:
    """The other pods end with the retry code; their successors finish the training."""
    with (
        network("train-0", "train-1", resolve=False) as hosts,
        job(tmp_path, hosts, TRAINS, tmp_path, 5, "1:3:wait") as one,
    ):
        one.start_all()
        one.until(lambda: step(tmp_path, 1) == 3)
        lost, rest = one.pods[0], one.pods[1]
        lost.first().kill()
        one.judge(0, 1)
        assert sorted(one.ended) == [(0, 137), (1, ExitCode.RETRY_ELSEWHERE)]
        assert one.failures == {0: 1, 1: 1}
        assert rest.message.startswith("safe-launch: exit code 75 (a node is at fault, lost")
        assert "train-0" in rest.message
        assert lost.message == ""

        (tmp_path / "step-1").unlink()
        one.until(lambda: step(tmp_path, 1) == 3)
        preempted = one.pods[1]
        one.preempt(1)
        one.judge(0, 1)
        assert sorted(one.ended[2:]) == [(0, 143), (1, 143)]
        assert one.failures == {0: 2, 1: 1}, "a preemption doesn't count"
        assert preempted.message.startswith("safe-launch: exit code 143 (stopped by SIGTERM)")

        (tmp_path / "go-on").touch()
        assert one.settle() == "Complete"
        assert [code for _, code in one.ended[4:]] == [0, 0]
        assert step(tmp_path, 0) == step(tmp_path, 1) == 4


def alone(tmp_path: Path, one: Job) -> list[psutil.Process]:
    """Starts the only pod; returns its other processes, once the program is ready."""
    one.publish(0, 0)
    pod = one.start(0)
    one.until((tmp_path / "ready-0").exists)
    return pod.first().children(recursive=True)


def test_a_stubborn_worker_is_gone_within_the_grace(tmp_path: Path) -> None:
    """It gets SIGTERM, then SIGKILL; no descendant survives."""
    with (
        network("train-0", resolve=False) as hosts,
        job(tmp_path, hosts, "--shutdown-timeout=3", PROGRAMS / "stubborn.py", tmp_path) as one,
    ):
        processes = alone(tmp_path, one)
        assert one.pods[0].delete() == 128 + signal.SIGTERM
        assert (tmp_path / "signals-0").read_text() == "SIGTERM\n"
        assert psutil.wait_procs(processes, timeout=LONG)[1] == []


def test_a_worker_that_heeds_the_signal_has_time(tmp_path: Path) -> None:
    """It cleans up and exits by itself."""
    with (
        network("train-0", resolve=False) as hosts,
        job(tmp_path, hosts, PROGRAMS / "stubborn.py", tmp_path, "SIGTERM") as one,
    ):
        alone(tmp_path, one)
        assert one.pods[0].delete() == 128 + signal.SIGTERM
        assert (tmp_path / "goodbye-0").exists()


def test_orphans_that_end_are_reaped(tmp_path: Path) -> None:
    """PID 1 adopts every orphan: none stays a zombie."""
    with (
        network("train-0", resolve=False) as hosts,
        job(tmp_path, hosts, PROGRAMS / "orphans.py", tmp_path) as one,
    ):
        alone(tmp_path, one)
        first = one.pods[0].first()
        orphans = [child for child in first.children() if child.name() == "orphan"]
        assert len(orphans) == 3
        (tmp_path / "end-orphans").touch()
        assert psutil.wait_procs(orphans, timeout=LONG)[1] == []
        (tmp_path / "finish").touch()
        assert one.settle() == "Complete"


def test_what_cant_be_launched_is_in_the_status(tmp_path: Path) -> None:
    """A script missing from the image: final, and shown in the pod's status."""
    with (
        network("train-0", resolve=False) as hosts,
        job(tmp_path, hosts, "nowhere.py") as one,
    ):
        one.start_all()
        assert one.settle() == "Failed"
        assert one.ended == [(0, 64)]
        assert one.pods[0].message.startswith("safe-launch: exit code 64 (the command line")
        assert "nowhere.py" in one.pods[0].message


def test_a_pod_that_waits_for_the_others_can_be_stopped(tmp_path: Path) -> None:
    """It ends at once with a message."""
    with (
        network("train-0", "train-1", resolve=False) as hosts,
        job(tmp_path, hosts, TRAINS, tmp_path, 5) as one,
    ):
        one.publish(0, 0)
        pod = one.start(0)
        one.until(lambda: pod.says("1 of 2 nodes"))
        assert pod.delete() == 128 + signal.SIGTERM
        assert pod.message.endswith("stopped from outside by SIGTERM")
