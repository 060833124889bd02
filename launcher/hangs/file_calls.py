"""Detects processes inside a system call that reads or writes a file.

Writing a tensor is a single call, which takes minutes on a slow file system, with unchanged
counters in /proc/PID/io. Most file systems show state D, but in user space file systems (FUSE) the
process sleeps as in any other wait (proc_pid_syscall(5)).
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CALLS = {
    "x86_64": frozenset({0, 1, 17, 18, 19, 20, 74, 75, 295, 296}),
    "aarch64": frozenset({63, 64, 65, 66, 67, 68, 69, 70, 82, 83}),
}
"""Numbers of read, write, pread64, pwrite64, readv, writev, fsync, fdatasync, preadv and pwritev:
https://github.com/torvalds/linux/blob/v6.6/arch/x86/entry/syscalls/syscall_64.tbl,
https://github.com/torvalds/linux/blob/v6.6/include/uapi/asm-generic/unistd.h."""
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
LOOKS, PAUSE = 5, 0.02
"""Maximum checks and seconds between them, as a thread may be between two calls."""


def is_at_file(pids: Iterable[int]) -> bool:
    """Whether a thread reads or writes a file; doesn't touch the file system."""
    folders = [Path(f"/proc/{pid}/task") for pid in pids]
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE)
        if any(map(_is_process_at_file, folders)):
            return True
    return False


def _is_process_at_file(folder: Path) -> bool:
    with suppress(OSError):
        return any(map(_is_thread_at_file, folder.iterdir()))
    return False


def _is_thread_at_file(task: Path) -> bool:
    with suppress(OSError, ValueError, IndexError):
        number, descriptor, *_ = (task / "syscall").read_text().split()
        if int(number) in _CALLS.get(platform.machine(), ()):
            link = os.readlink(task / "fd" / str(int(descriptor, 16)))  # noqa: PTH115 - no file yet
            is_file = link.startswith("/") and not link.startswith(_NO_FILES)
            return is_file and "pipe" not in (task / "wchan").read_text()  # nor a named pipe
    return False
