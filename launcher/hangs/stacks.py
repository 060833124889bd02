"""The main thread's stack of a process: written by itself upon a signal, or read by py-spy.

faulthandler writes it in C, into memory that the process has opened (`evidence/inquiry.py`), so
it works while an extension holds the GIL. Children made by os.fork can do it as well. py-spy, an
extra (`pip install 'safe-launch[hang]'`), reads from outside, without stopping the process, also
those that are stopped or have no handler for the signal.
"""

from __future__ import annotations

import ctypes
import linecache
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec

from ..core.errors import Refused, file_and_reason, reason_of
from ..evidence import inquiry
from ..evidence.failure_record import Frame
from ..evidence.from_exception import is_launcher_code
from . import proc

UNKNOWN = "its stack can't be read"
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$', re.MULTILINE)
"""A line of faulthandler's (dump_frame in CPython's Python/traceback.c)."""
_SECTION = re.compile(r"^(?:(?:Current t|T)hread 0x([0-9a-f]+)|Stack) .*$", re.MULTILINE)
_ESCAPE = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")
_INSTALLED = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3[.\d]*t?/|python3\d+\.zip/")
"""Files of Python and of installed packages; that Python may be another than ours."""
_TGKILL = {"x86_64": 234}.get(platform.machine(), 131)
"""The number of tgkill(2), which older C libraries have no function for; 131 is every newer
architecture's (include/uapi/asm-generic/unistd.h)."""
_PAUSE = 0.002
_TAKES = 0.1
"""Seconds for a thread to accept a signal, which it doesn't while it starts another thread."""
_WORKS = 0.02
"""The share of time for which the other threads of a still process may run, together."""
_MOST = 1 << 20


def from_handler(
    pid: int, thread: int, seconds: float, earlier: proc.Ran | None = None
) -> tuple[Frame, ...] | Refused:
    """The main thread's frames, outermost first, without the launcher's own.

    A process without the handler would die of the signal: none is sent if anything is missing.

    Args:
        pid: the process, which isn't stopped.
        thread: its main thread's identifier in Python; 0 if it isn't known.
        seconds: how long it may take.
        earlier: how long its threads had run at least a second ago: if it hasn't run since, another
            thread reads the frames. With None, the main thread writes them.
    """
    try:
        memory, waiting = _memory(pid)
        by_another = bool(waiting) and earlier is not None and is_still(pid, earlier)
        number, taker = (inquiry.OF_ALL, waiting) if by_another else (inquiry.OF_MAIN, pid)
        if not memory or not _soon(partial(proc.takes, pid, taker, number), _TAKES):
            return Refused(f"{UNKNOWN}: it has no handler for that, or blocks it")
        os.truncate(memory, 0)
        ctypes.CDLL(None).syscall(_TGKILL, pid, taker, number)
        if not _soon(partial(_has_answered, memory, pid, taker, number), seconds):
            return Refused(f"{UNKNOWN}: the process doesn't answer")
        with Path(memory).open("rb") as file:
            text = file.read(_MOST).decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return Refused(f"{UNKNOWN}: the process has ended")
    except OSError as error:
        return Refused(f"{UNKNOWN}: {reason_of(error)}")
    return with_sources(parsed(text, thread), pid)


def _has_answered(memory: str, pid: int, thread: int, number: int) -> bool:
    """Whether the handler has run to its end."""
    return Path(memory).stat().st_size > 0 and proc.takes(pid, thread, number)


def _soon(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition holds within the time."""
    end = monotonic() + seconds
    while not (holds := condition()) and monotonic() < end:
        sleep(_PAUSE)
    return holds


def is_still(pid: int, earlier: proc.Ran) -> bool:
    """Whether a process's main thread doesn't run at all, and the others hardly.

    Only then are frames unchanged while another thread reads them; otherwise the process dies, as
    one reading in 90 did that naps for 0.1 s between its work.
    """
    now = proc.ran(pid)
    others = sum(now.threads.values()) - sum(earlier.threads.values())
    return (
        not now.is_ready
        and now.threads.get(pid, 0.0) == earlier.threads.get(pid)
        and others < (now.at - earlier.at) * _WORKS
    )


def parsed(text: str, thread: int = 0) -> list[Frame]:
    """The frames of a thread in faulthandler's text, outermost first, without source text.

    The text has a section for each thread; the last is the main thread, for the identifier 0.
    """
    sections = _SECTION.split(text)[1:]  # in turn: an identifier or None, and its frames
    pairs = zip(sections[::2], sections[1::2], strict=True)
    threads = {int(name or "0", 16): lines for name, lines in pairs}
    frames = threads.get(thread) or (sections[-1] if sections else "")
    return [
        Frame(_plain(file), int(line) if line.isdecimal() else 0, _plain(function), "")
        for file, line, function in reversed(_FRAME.findall(frames))
    ]


def py_spy() -> str | None:
    """py-spy, of this environment or on the PATH."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("py-spy", path=beside) or shutil.which("py-spy")


def from_py_spy(pid: int, seconds: float) -> tuple[Frame, ...] | Refused:
    """The main thread's frames, outermost first, without the launcher's own."""
    program = py_spy()
    if seconds <= 0:
        return Refused("there was no time left for py-spy")
    if program is None:
        return Refused("py-spy isn't installed: pip install 'safe-launch[hang]'")
    line = (program, "dump", "--nonblocking", "--json", "--pid", str(pid))
    try:
        done = subprocess.run(
            line, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False
        )
        threads = msgspec.json.decode(done.stdout) if done.stdout else None
    except subprocess.TimeoutExpired:
        return Refused("py-spy takes too long")
    except (OSError, ValueError) as error:
        return Refused(f"py-spy can't read it: {file_and_reason(error)}")
    if threads is None:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        return Refused(f"py-spy can't read it: {errors[0] if errors else 'it says nothing'}")
    return with_sources(list(parsed_py_spy(threads, pid))[::-1], pid)


def parsed_py_spy(threads: Any, pid: int) -> Iterator[Frame]:
    """The main thread's frames in py-spy's JSON, innermost first, without source text."""
    for thread in threads if isinstance(threads, list) else ():
        if thread.get("os_thread_id") == pid:
            for frame in thread.get("frames", ()):
                name = frame["name"].rpartition(".")[2]  # "Loader.load" is `load` elsewhere
                yield Frame(frame["filename"], int(frame["line"]), name, "")


def with_sources(frames: Iterable[Frame], pid: int) -> tuple[Frame, ...]:
    """The frames with the text of their lines, without the launcher's own."""
    result = []
    for frame in frames:
        if not is_launcher_code(frame.file):
            path = frame.file
            if not path.startswith(("/", "<")):  # as the process names it
                path = str(Path(f"/proc/{pid}/cwd", path))
            linecache.checkcache(path)
            result.append(replace(frame, source=linecache.getline(path, frame.line).strip()))
    return tuple(result)


def user_files(frames: Iterable[Frame]) -> tuple[str, ...]:
    """The files of the frames that belong to the user."""
    files = dict.fromkeys(frame.file for frame in frames)
    return tuple(
        file
        for file in files
        if not (file.startswith("<") or _INSTALLED.search(file) or is_launcher_code(file))
    )


def is_same_program(pid: int, child: int) -> bool:
    """Whether a process runs the same interpreter as another."""
    try:
        return os.path.samefile(f"/proc/{pid}/exe", f"/proc/{child}/exe")  # noqa: PTH121 - links
    except OSError:
        return False


def _memory(pid: int) -> tuple[str, int]:
    """The path of the memory for a process's stack, and the thread that takes `OF_ALL`.

    A forked child has no such thread: its number is 0. The path is empty if the memory is no
    longer open.
    """
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - quick
        path = f"/proc/{pid}/fd/{number}"
        with suppress(OSError):
            thread = inquiry.thread_of(os.readlink(path))  # noqa: PTH115 - not a path
            if thread is not None:
                return path, thread if Path(f"/proc/{pid}/task/{thread}").exists() else 0
    return "", 0


def _plain(text: str) -> str:
    """A name without faulthandler's escapes of non-ASCII characters."""
    return _ESCAPE.sub(lambda match: chr(int(match[0][2:], 16)), text)
