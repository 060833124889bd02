"""A finished rank that doesn't exit is reported, then given up; other ranks aren't."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from safe_launch.workers.exit_watch import FACTOR, ExitWatch

PATIENCE = 0.3
BUSY = {
    "its main thread wakes up": "while True: time.sleep(0.05)",
    "another thread works": (
        "def spin():\n while True: pass\n"
        "threading.Thread(target=spin, daemon=True).start()\nctypes.CDLL(None).pause()"
    ),
    "another thread writes": (
        "def write():\n"
        " while True: open('/dev/null', 'wb').write(b'x' * 100_000); time.sleep(0.05)\n"
        "threading.Thread(target=write, daemon=True).start()\nctypes.CDLL(None).pause()"
    ),
    "it waits for a child": "subprocess.run(['sleep', '60'])",
    "it is stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
}
"""Processes that must be left alone."""


@contextmanager
def process(source: str) -> Iterator[int]:
    """A process that runs this after it has announced it."""
    head = "import ctypes, os, signal, subprocess, threading, time\nprint(flush=True)\n"
    command = [sys.executable, "-c", head + source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started.pid
        finally:
            subprocess.run(["kill", "-KILL", "--", f"-{started.pid}"], check=True)


def watched(watch: ExitWatch, seconds: float, finalizing: frozenset[int] = frozenset()) -> set[int]:
    """The ranks that the watch gives up in this time."""
    found: set[int] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not found:
        found |= watch.check({3}, finalizing)
        pause = watch.pause({3})
        time.sleep(0 if pause is None else pause)
    return found


def test_a_rank_that_hangs_in_native_code() -> None:
    """It holds the GIL while another thread waits for it; reported once, then given up."""
    source = (
        "threading.Thread(target=lambda: time.sleep(0.5), daemon=True).start()\n"
        "ctypes.PyDLL(None).pause()"
    )
    notices: list[str] = []
    with process(source) as pid:
        watch = ExitWatch({3: pid}, PATIENCE, notices.append)
        assert watched(watch, 60) == {3}
    (told,) = notices
    assert told.startswith("rank 3 has finished training, but hangs in native code")
    assert watch.hung[3] >= FACTOR * PATIENCE
    assert watch.pause({3}) is None
    assert watch.check({3}) == set()


def test_a_rank_that_polls_after_its_exit_handlers() -> None:
    """Only native code is left, so wakeups aren't work and the timeout applies."""
    notices: list[str] = []
    with process(BUSY["its main thread wakes up"]) as pid:
        watch = ExitWatch({3: pid}, PATIENCE, notices.append)
        assert watched(watch, 60, frozenset({3})) == {3}
        assert notices == []
    with process(BUSY["another thread writes"]) as pid:
        watch = ExitWatch({3: pid}, PATIENCE, notices.append)
        assert watched(watch, 3 * PATIENCE, frozenset({3})) == set()


@pytest.mark.parametrize("source", BUSY.values(), ids=BUSY)
def test_a_rank_that_may_have_something_to_do_is_left_alone(source: str) -> None:
    """An upload, a writer or a tracker's service."""
    notices: list[str] = []
    with process(source) as pid:
        assert (
            watched(ExitWatch({3: pid}, PATIENCE, notices.append), 3 * FACTOR * PATIENCE) == set()
        )
    assert notices == []


def test_hangs_may_go_unreported() -> None:
    """`--hang-report 0` disables the watch."""
    with process("ctypes.CDLL(None).pause()") as pid:
        watch = ExitWatch({3: pid}, 0.0, lambda _: None)
        assert watch.pause({3}) is None
        assert watch.check({3}) == set()
