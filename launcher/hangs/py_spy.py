"""The main thread's stack of a process as py-spy reads it, from outside and without stopping it.

It is an extra, `pip install 'safe-launch[hang]'`. It also reads processes that are stopped, and
those that have no handler for the signal of `stacks`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..core.errors import Refused, file_and_reason
from ..evidence.failure_record import Frame
from .stacks import with_sources


def command() -> str | None:
    """py-spy, of this environment or on the PATH."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("py-spy", path=beside) or shutil.which("py-spy")


def stack(pid: int, seconds: float) -> tuple[Frame, ...] | Refused:
    """The main thread's frames, outermost first, without the launcher's own."""
    program = command()
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
    return with_sources(list(parsed(threads, pid))[::-1], pid)


def parsed(threads: Any, pid: int) -> Iterator[Frame]:
    """The main thread's frames in py-spy's JSON, innermost first, without source text."""
    for thread in threads if isinstance(threads, list) else ():
        if thread.get("os_thread_id") == pid:
            for frame in thread.get("frames", ()):
                name = frame["name"].rpartition(".")[2]  # "Loader.load" is `load` elsewhere
                yield Frame(frame["filename"], int(frame["line"]), name, "")
