"""Releases pages of mapped files, which a waiting process doesn't need."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_MADV_DONTNEED = 4
_HEAD = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) .-.. \S+ \S+ [1-9]\d*\b")
"""The head of a mapping of a file that isn't written to, in /proc/PID/smaps (proc(5))."""
_UNCHANGED = "Anonymous:             0 kB"


def release() -> None:
    """Gives back the pages of libraries that this process has mapped and not changed.

    They stay in the page cache, and return one by one on use; torch's libraries have 90 MiB.
    Mappings with relocations differ from the file, and are left alone.
    """
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    head: re.Match[str] | None = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line[0] in "0123456789abcdef":
            head = _HEAD.match(line)
        elif head and line == _UNCHANGED:
            start = int(head["start"], 16)
            libc.madvise(start, int(head["end"], 16) - start, _MADV_DONTNEED)
