"""Recognizes operating system errors by their text, in any exception."""

from __future__ import annotations

import re

from .step import Case, Step

WORDS = (
    (
        r"Transport endpoint is not connected|Stale (?:NFS )?file handle|Host is down",
        (
            "The file system that holds the path is gone or mounted anew: mount it again, and"
            " start from the newest checkpoint; write to a local disk meanwhile."
        ),
    ),
    (
        r"(?<!Function )\bInput/output error|\bRemote I/O error",
        (
            "The disk or the network file system failed: see `dmesg -T` on this node, and use"
            " another node or disk."
        ),
    ),
    (
        r"No space left on device|Disk quota exceeded",
        (
            "Free space where it writes, or write elsewhere: `df -h`, `df -i` and `quota` show what"
            " is full (checkpoints, caches, /tmp, /dev/shm)."
        ),
    ),
    (
        r"No locks available|database is locked|SQLite database: locking|flock\b.*(?:fail|not )",
        (
            "Move the file to a local disk, such as /tmp, for each node: its file system can't"
            " lock it, or another process holds it. Caches move by `TRITON_CACHE_DIR`, `HF_HOME`,"
            " `XDG_CACHE_HOME`, MIOpen's by `MIOPEN_USER_DB_PATH` and `MIOPEN_CUSTOM_CACHE_DIR`."
        ),
    ),
    (
        r"Read-only file system",
        (
            "Write to a folder that this node or container may write to: set the output and cache"
            " folders (`HF_HOME`, `TMPDIR`, `TRITON_CACHE_DIR`)."
        ),
    ),
    (
        r"Too many open files",
        (
            "Raise the limit of open files before the launch (`ulimit -n 65535`), and use"
            " fewer loader processes."
        ),
    ),
    (
        r"Resource temporarily unavailable|can't start new thread",
        (
            "Raise the limit of processes (`ulimit -u`, the container's pids limit), and start"
            " fewer: loader workers, OMP_NUM_THREADS."
        ),
    ),
)
"""Steps by texts of the C library (strerror)."""


def system_error(case: Case) -> Step | None:
    """The step for an error of the operating system."""
    do = next((do for words, do in WORDS if re.search(words, case.message)), None)
    return None if do is None else Step(do)
