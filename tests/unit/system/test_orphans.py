"""A run's leftover processes: found by their mark, killed, guarded."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safe_launch.system import orphans
from support.waiting import LONG, wait_for

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def mark() -> str:
    """A unique run id."""
    return f"test-{secrets.token_hex(8)}"


@pytest.fixture
def start(mark: str) -> Iterator[Start]:
    """Starts marked processes and kills them at the end."""
    processes: list[subprocess.Popen[str]] = []

    def started(*command: str | Path, variable: str = orphans.VARIABLE) -> subprocess.Popen[str]:
        environment = {**os.environ, variable: mark}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def test_marked_processes_are_found_and_killed(mark: str, start: Start) -> None:
    """In any session; other, spared and this process live on."""
    one, spared = start("sleep", "600"), start("sleep", "600")
    start("sleep", "600", variable="ANOTHER_VARIABLE")
    assert sorted(orphans.marked(mark)) == sorted((one.pid, spared.pid))
    assert orphans.marked(mark, "ANOTHER_VARIABLE") != []
    assert orphans.kill(mark, {spared.pid}) == 1
    assert one.wait() == -signal.SIGKILL
    assert spared.poll() is None
    assert orphans.kill(mark) == 1
    assert orphans.kill(mark) == 0


def test_a_process_that_has_just_begun(mark: str, start: Start) -> None:
    """It is found although the kernel shows its environment a moment later."""
    for _ in range(50):
        assert orphans.is_marked(start("sleep", "600").pid, mark)


def test_who_has_no_environment(mark: str) -> None:
    """It has no mark and isn't waited for."""
    with subprocess.Popen(["sleep", "600"], env={}) as process:
        try:
            began = time.monotonic()
            wait_for(lambda: not orphans.is_marked(process.pid, mark))
            assert time.monotonic() - began < orphans.BEGINNING
        finally:
            process.kill()


def test_who_is_told_to_stop_may_save(mark: str, start: Start, tmp_path: Path) -> None:
    """Processes started while saving get no signal."""
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    script = "trap 'sleep 0.2; touch $1; exit 0' TERM; touch $0; while true; do sleep 0.1; done"
    saving = start("sh", "-c", script, ready, saved)
    wait_for(ready.exists)
    orphans.stop(mark, signal.SIGTERM, LONG, lambda: False)
    assert saving.wait() == 0
    assert saved.exists()


@pytest.mark.parametrize(("seconds", "is_hastened"), [(0.1, False), (LONG, True)])
def test_who_heeds_no_signal_is_killed(
    mark: str, start: Start, tmp_path: Path, seconds: float, is_hastened: bool
) -> None:
    """After the grace period, or at once on request."""
    ready = tmp_path / "ready"
    stubborn = start("sh", "-c", "trap '' TERM; touch $0; while true; do sleep 0.1; done", ready)
    wait_for(ready.exists)
    orphans.stop(mark, signal.SIGTERM, seconds, lambda: is_hastened)
    assert stubborn.wait() == -signal.SIGKILL


def test_the_dead_are_not_counted(mark: str, start: Start) -> None:
    """A zombie can't be killed."""
    process = start("true")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert orphans.marked(mark) == []


def test_a_guardian_kills_when_its_launcher_dies(mark: str, start: Start) -> None:
    """It does nothing if the launcher reports its own cleanup."""
    program = (
        "import sys\n"
        "from safe_launch.system import orphans\n"
        "guardian = orphans.guard(sys.argv[1])\n"
        "if sys.argv[2] == 'dismissed': guardian.dismiss()\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    worker = start("sleep", "600")
    launcher = [sys.executable, "-c", program, mark]
    assert subprocess.run([*launcher, "dismissed"], check=False).returncode == -signal.SIGKILL
    assert worker.poll() is None
    assert subprocess.run([*launcher, "killed"], check=False).returncode == -signal.SIGKILL
    assert worker.wait(60) == -signal.SIGKILL


def test_a_child_dies_with_its_parent() -> None:
    """The parent's death sends it the signal that it requested, which ends its output."""
    program = (
        "import os, subprocess\n"
        "from functools import partial\n"
        "from safe_launch.system import orphans\n"
        "with_us = partial(orphans.die_with, os.getpid())\n"
        "child = subprocess.Popen(('sleep', '600'), preexec_fn=with_us)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = (sys.executable, "-c", program)
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


def test_buffers_of_one_port_are_unlinked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's, of this user and this attempt's port."""
    monkeypatch.setattr(orphans, "SHARED", tmp_path)
    user = os.getuid()
    ours = tmp_path / f"deepspeed_allreduce_buffer_{user}_127.0.0.1_29500_0"
    others = [
        tmp_path / f"deepspeed_allreduce_buffer_{user}_127.0.0.1_29501_0",
        tmp_path / f"deepspeed_allreduce_buffer_{user + 1}_127.0.0.1_29500_0",
    ]
    for path in (ours, *others):
        path.touch()
    orphans.forget_buffers(29500)
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_only_a_containers_first_process_reaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere another process reaps."""
    assert orphans.reaping_pause() is None
    orphans.reap(set())
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert orphans.reaping_pause() == orphans.REAPING


def test_a_mark_can_be_rewritten_as_others_see_it() -> None:
    """With one of the same length; the process's own variables are unchanged."""
    code = (
        "import os, sys\n"
        "from safe_launch.system import orphans\n"
        "print(orphans.rewrite_mark('another'), orphans.rewrite_mark('too-long'), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={"BEFORE": "x", orphans.VARIABLE: "the-one", f"{orphans.VARIABLE}_2": "the-one"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True False\n"
        assert orphans.marked("another") == [process.pid]
        assert orphans.marked("the-one") == []
        process.communicate("")


@pytest.mark.parametrize(
    ("end", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", -signal.SIGSEGV)]
)
def test_the_end_of_a_child_can_be_asked_for_twice(end: str, code: int) -> None:
    """The child isn't reaped by the query."""
    child = subprocess.Popen(["sh", "-c", end])
    assert orphans.exit_code(child.pid) == orphans.exit_code(child.pid) == code
    assert child.wait() == code


def test_others_children_have_no_end_here() -> None:
    """Process 1 isn't a child of this process."""
    with pytest.raises(ChildProcessError):
        orphans.exit_code(1)


def test_descendants_become_children_only_meanwhile() -> None:
    """Tested in a separate process, whose orphans would go elsewhere."""
    code = (
        "import os, subprocess\n"
        "from safe_launch.system import orphans\n"
        "def orphan():\n"
        "    command = ['sh', '-c', 'sleep 600 >&2 & echo $!']\n"
        "    pid = int(subprocess.check_output(command))\n"
        "    state = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()\n"
        "    is_ours = int(state[1]) == os.getpid()\n"
        "    os.kill(pid, 9)\n"
        "    return is_ours, pid\n"
        "with orphans.subreaper():\n"
        "    inside, pid = orphan()\n"
        "outside, _ = orphan()\n"
        "print(inside, outside, orphans.exit_code(pid))\n"
        "orphans.reap_children()\n"
        "orphans.reap_children()\n"
        "print(os.path.exists(f'/proc/{pid}'))\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert shown.split() == ["True", "False", "-9", "False"]


def test_nobody_is_there_to_be_reaped() -> None:
    """It is no error, also if a child is running."""
    code = (
        "import subprocess\n"
        "from safe_launch.system import orphans\n"
        "orphans.reap_children()\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "orphans.reap_children()\n"
        "print(child.poll())\n"
        "child.kill()\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert shown == "None\n"
