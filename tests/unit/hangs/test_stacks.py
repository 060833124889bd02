"""Stacks from faulthandler and py-spy, and processes that can't write one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safe_launch.core.errors import Refused
from safe_launch.evidence import inquiry
from safe_launch.evidence.failure_record import Frame
from safe_launch.hangs import proc, stacks
from support.links import LONG

ALL = """Thread 0x00007f4e04e0f6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/job/d\\xe4ta \\u6570.py", line 9 in l\\xe4d

Current thread 0x00007f4e2968eb80 (most recent call first):
  <no Python frame>

Thread 0x00007f66e57116c0 (most recent call first):
  File "/job/train.py", line 10 in step
  File "/job/train.py", line ??? in <module>
  ...
"""
MAIN = 0x00007F66E57116C0


def test_all_threads() -> None:
    """The main thread has its identifier, else it is the last."""
    step = Frame("/job/train.py", 10, "step", "")
    assert stacks.parsed(ALL, MAIN) == [Frame("/job/train.py", 0, "<module>", ""), step]
    assert stacks.parsed(ALL)[-1] == step
    assert stacks.parsed(ALL, 0x00007F4E04E0F6C0) == [
        Frame("/job/däta 数.py", 9, "läd", ""),
        Frame("/usr/lib/python3.11/threading.py", 320, "wait", ""),
    ]


def test_one_thread() -> None:
    """The main thread's own dump has another header."""
    text = 'Stack (most recent call first):\n  File "a.py", line 3 in f\n'
    assert stacks.parsed(text, MAIN) == [Frame("a.py", 3, "f", "")]


@pytest.mark.parametrize("text", ["", "Fatal", ALL[:50], "Stack (most recent call first):\n"])
def test_less(text: str) -> None:
    """A dying process may write anything."""
    assert stacks.parsed(text, MAIN) == []


def test_the_users_own_files() -> None:
    """Files of any Python, installed packages and the launcher don't count."""
    mine = ["/job/train.py", "/home/me/lib/loader.py", "collate.py"]
    others = [
        "/opt/conda/lib/python3.12/threading.py",
        "/usr/lib64/python3.9/json/decoder.py",
        "/opt/lib/python3.13t/queue.py",
        "/job/.venv/lib/python3.11/site-packages/torch/_ops.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py",
        "/usr/lib/python311.zip/abc.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        stacks.__file__,
    ]
    frames = [Frame(file, 1, "f", "") for file in (*mine, *others, *mine)]
    assert stacks.user_files(frames) == tuple(mine)


def test_source_text(tmp_path: Path) -> None:
    """The current text of the line; the launcher's frames are omitted."""
    file = tmp_path / "a.py"
    frames = [Frame(stacks.__file__, 1, "f", ""), Frame(str(file), 2, "g", "")]
    assert stacks.with_sources(frames, 1)[0].source == ""
    file.write_text("one\n  two()\n")
    assert stacks.with_sources(frames, 1) == (Frame(str(file), 2, "g", "two()"),)


def test_py_spys() -> None:
    """The main thread's frames of py-spy 0.4.1's JSON, and invalid JSON."""
    frame = {"name": "inner", "filename": "<string>", "module": None, "line": 3, "locals": None}
    other = {"os_thread_id": 8, "frames": [{**frame, "name": "other"}]}
    main = {"os_thread_id": 7, "frames": [frame, {**frame, "name": "A.<module>", "line": 4}]}
    assert list(stacks.parsed_py_spy([other, main], 7)) == [
        Frame("<string>", 3, "inner", ""),
        Frame("<string>", 4, "<module>", ""),
    ]
    assert list(stacks.parsed_py_spy(None, 7)) == []


def test_py_spy_may_be_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error message is passed on; a hanging one is abandoned."""
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho 'Permission Denied: try sudo' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(stacks, "py_spy", lambda: str(program))
    assert stacks.from_py_spy(1, LONG) == Refused(
        "py-spy can't read it: Permission Denied: try sudo"
    )
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    assert stacks.from_py_spy(1, 0.1) == Refused("py-spy takes too long")


ANSWERS = """
import os, signal, sys, threading, time
sys.path[:0] = {path}
os.environ["{variable}"] = "/nowhere"
from safe_launch.guards import answering
answering.begin(0)
def work():
    {work}
print(threading.get_ident(), flush=True)
work()
"""


@contextmanager
def process(work: str, begins: bool = True) -> Iterator[tuple[int, int]]:
    """A process with an inquiry handler: its pid and its main thread's identifier."""
    script = ANSWERS.format(path=sys.path, variable=inquiry.VARIABLE, work=work)
    script = script if begins else script.replace("answering.begin(0)", "")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        try:
            yield started.pid, int(started.stdout.readline())
        finally:
            started.kill()


def functions(found: tuple[Frame, ...] | Refused) -> list[str]:
    """The functions of a stack."""
    assert not isinstance(found, Refused), found
    return [frame.function for frame in found]


def test_a_process_that_waits() -> None:
    """It sleeps in C with the GIL and isn't interrupted, which would end the sleep."""
    with process("import ctypes; ctypes.PyDLL(None).sleep(600)") as (pid, thread):
        for _ in range(3):
            earlier = wait_until_still(pid)
            assert functions(stacks.from_handler(pid, thread, LONG, earlier)) == [
                "<module>",
                "work",
            ]


def test_a_process_that_naps() -> None:
    """It is asked while it sleeps: a read during changes would crash it."""
    naps = "while True: print(flush=True); sum(range(10**6)); time.sleep(0.3)"
    with process(naps) as (pid, thread):
        earlier = proc.ran(pid)
        while proc.ran(pid).threads == earlier.threads or proc.trees([pid])[pid][0].state != "S":
            time.sleep(0.01)
        assert not stacks.is_still(pid, earlier)
        assert functions(stacks.from_handler(pid, thread, LONG, earlier)) == ["<module>", "work"]


def test_a_process_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps running while it is asked and its frames and threads change."""
    monkeypatch.setattr(stacks, "_TAKES", LONG)
    work = """
    def deep(n):
        return n and deep(n - 1)
    while True:
        threading.Thread(target=deep, args=(50,)).start()
        deep(100)
        exec(compile("def f(): return [1]", "made", "exec"), {})
"""
    with process(work) as (pid, thread):
        while functions(stacks.from_handler(pid, thread, LONG)) == ["<module>"]:
            pass  # it hasn't begun
        for _ in range(20):
            assert functions(stacks.from_handler(pid, thread, LONG))[:2] == ["<module>", "work"]


def test_without_a_handler() -> None:
    """The signal would kill the process, so it isn't sent."""
    with process("time.sleep(600)", begins=False) as (pid, thread):
        refused = stacks.from_handler(pid, thread, 0.1)
        assert isinstance(refused, Refused)
        assert "no handler" in refused.sentence
        wait_until_still(pid)


@pytest.mark.parametrize("number", [inquiry.OF_ALL, inquiry.OF_MAIN])
def test_a_script_keeps_its_signal(number: int) -> None:
    """The script's handler isn't called for a stack."""
    work = f"signal.signal({number}, lambda *_: os._exit(1)); print(1, flush=True); time.sleep(600)"
    with process(f"{work}") as (pid, thread):
        wait_until_still(pid)
        assert isinstance(stacks.from_handler(pid, thread, 0.2), Refused)
        wait_until_still(pid)


def wait_until_still(pid: int) -> proc.Ran:
    """Waits until a living process sleeps; returns its threads' processor time."""
    before = None
    while True:
        now, state = proc.ran(pid), proc.trees([pid])[pid][0].state
        if before is not None and state == "S" and now.threads == before.threads:
            return now
        time.sleep(0.1)
        before = now


def test_a_blocked_signal() -> None:
    """It would be delivered after the inquiry."""
    work = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n    while True: pass"
    with process(work) as (pid, thread):
        while proc.takes(pid, pid, inquiry.OF_MAIN):
            time.sleep(0.01)
        refused = stacks.from_handler(pid, thread, 0.2)
        assert isinstance(refused, Refused)
        assert "blocks it" in refused.sentence


def test_a_process_that_ends() -> None:
    """Its end is reported, whenever it comes."""
    with process("time.sleep(0.3)") as (pid, thread):
        while not isinstance(stacks.from_handler(pid, thread, LONG), Refused):
            pass
    assert stacks.from_handler(pid, thread, 0.1) == Refused(
        "its stack can't be read: the process has ended"
    )


def test_the_signals_are_free() -> None:
    """The C library and common programs don't use these real-time signals."""
    taken = {signal.SIGRTMAX, *range(signal.SIGRTMIN, signal.SIGRTMIN + 16)}
    assert not {inquiry.OF_ALL, inquiry.OF_MAIN} & taken
