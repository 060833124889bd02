"""Reading /proc for processes started by these tests; `processes/` tests a real slow disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.hangs import proc
from safe_launch.hangs.proc import Process, is_at_file

CHILD = "import os, time; os.fork() or os.execlp('sleep', 'sleep', '600'); {work}"
READS = "import sys; print('ready', flush=True); open(sys.argv[1], 'rb').read()"


@contextmanager
def started(work: str) -> Iterator[int]:
    """A process with a sleeping child."""
    line = [sys.executable, "-c", CHILD.format(work=work)]
    with subprocess.Popen(line, process_group=0) as process:
        try:
            while not any(other.name == "sleep" for other in tree(process.pid)):
                time.sleep(0.01)
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def tree(pid: int) -> tuple[Process, ...]:
    """A process and its descendants."""
    return proc.trees([pid])[pid]


def test_processor_time_and_bytes_of_each() -> None:
    """A process that computes and writes to a pipe, beside a sleeping one."""
    work = "a, b = os.pipe()\nwhile True: os.write(b, b'x' * 1000); os.read(a, 1000)"
    with started(work.replace("; ", "; ")) as pid:
        before = {process.pid: process for process in tree(pid)}
        while (now := tree(pid))[0].cpu < before[pid].cpu + 0.1:
            time.sleep(0.01)
        parent, child = now
        assert proc.used(parent, before) >= 0.1
        assert proc.moved(parent, before) > 10_000
        assert (proc.used(child, before), proc.moved(child, before)) == (0.0, 0)
        assert (child.parent, child.state) == (pid, "S")


def test_stopped_and_gone() -> None:
    """The state letter decides; a missing process has no state."""
    with started("time.sleep(600)") as pid:
        os.kill(pid, signal.SIGSTOP)
        while tree(pid)[0].state != "T":
            time.sleep(0.01)
        assert not proc.trees([0])[0]
    assert tree(pid) == ()


def test_a_number_that_is_used_again() -> None:
    """A reused pid is another process: its counters start over."""
    new = Process(5, 1, "python", "S", born=900, cpu=0.25, called=70, fetched=90)
    old = {5: replace(new, born=800, cpu=0.2, called=60, fetched=60)}
    assert (proc.used(new, old), proc.moved(new, old)) == (0.25, 90)
    same = {5: replace(new, cpu=0.2, called=60, fetched=60)}
    assert round(proc.used(new, same), 6) == 0.05
    assert proc.moved(new, same) == 30


def test_any_name(tmp_path: Path) -> None:
    """A process name may look like other fields."""
    program = tmp_path / "a) S 1 ("
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        try:
            while tree(process.pid)[0].name != "a) S 1 (":
                time.sleep(0.01)
            assert tree(process.pid)[0].parent == os.getpid()
        finally:
            process.kill()


def test_signals_that_a_thread_takes() -> None:
    """This process has Python's SIGINT handler."""
    own = os.getpid()
    assert proc.takes(own, own, signal.SIGINT)
    assert not proc.takes(own, own, signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        assert not proc.takes(own, own, signal.SIGINT)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert not proc.takes(own, 1, signal.SIGINT)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Waiting on a pipe, named or not, means waiting for a process."""
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-c", READS, str(tmp_path / "pipe")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        with (tmp_path / "pipe").open("wb"):  # it has opened the pipe, too, and reads
            assert not is_at_file([process.pid])
    finally:
        process.kill()
        process.communicate()


def test_nobody() -> None:
    """An ended process, and this process."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not is_at_file([ended.pid])
    assert not is_at_file([os.getpid()])


def test_between_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files need many calls: one look may fall between two of them."""
    looks = iter((False, False, True))
    monkeypatch.setattr(proc, "_is_thread_at_file", lambda _task: next(looks))
    alone = subprocess.Popen(["sleep", "600"])
    try:
        assert is_at_file([alone.pid])
    finally:
        alone.kill()
        alone.wait()
