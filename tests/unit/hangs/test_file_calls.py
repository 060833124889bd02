"""Processes inside a system call on a file; `processes/` tests a real slow disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safe_launch.hangs import file_calls
from safe_launch.hangs.file_calls import is_at_file

READS = "import sys; print('ready', flush=True); open(sys.argv[1], 'rb').read()"


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
    monkeypatch.setattr(file_calls, "_is_thread_at_file", lambda _task: next(looks))
    alone = subprocess.Popen(["sleep", "600"])
    try:
        assert is_at_file([alone.pid])
    finally:
        alone.kill()
        alone.wait()
