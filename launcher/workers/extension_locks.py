"""Locks in the folders of torch's extensions, left by builds that were killed.

The process that makes the file `lock` builds the extension and keeps the file open; the others wait
silently until the file is gone (torch/utils/file_baton.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOCAL = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
"""File systems of a single host; others may be shared by hosts."""
OF_CONTAINER = "overlay"
"""The file system of a container itself; others are mounted into it."""
ALL_PROCESSES = 0xEFFFFFFC
"""The inode of a host's first namespace of processes, which has all of them (PROC_PID_INIT_INO in
Linux' include/linux/proc_ns.h)."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock of an extension's build.

    Attributes:
        age: seconds since it was made.
        owner: a process of this host that builds there; None if there is none.
        shared: why an invisible process may build there; empty if none can.
    """

    path: Path
    age: float
    owner: int | None
    shared: str


def clear(environment: Mapping[str, str]) -> Iterator[str]:
    """Removes the locks that nobody holds; yields a sentence on each that isn't known to be held.

    A held lock isn't mentioned: every load of an extension takes it for a moment, and the hang
    watch reports workers that wait for long.
    """
    for path in _paths(environment):
        with suppress(OSError):  # its build has just ended
            found = path.stat()
            lock = _examined(path, found)
            is_left = lock.owner is None and not lock.shared and found.st_uid == os.geteuid()
            if is_left and os.path.samestat(found, path.stat()):
                path.unlink()
            if lock.owner is None:
                yield _sentence(lock, is_removed=is_left)


def _paths(environment: Mapping[str, str]) -> list[Path]:
    """The locks in the folders of the extensions (`_get_build_directory` in cpp_extension.py)."""
    named = environment.get("TORCH_EXTENSIONS_DIR")
    if named:
        return sorted(Path(named).glob("*/lock"))
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/")) / ".cache"
    return sorted((Path(cache) / "torch_extensions").glob("*/*/lock"))


def _examined(path: Path, found: os.stat_result) -> Lock:
    folder = path.parent.stat()
    kind = _file_system(folder.st_dev)  # a file's may be that of a layer below
    shared = "" if kind in LOCAL else f"the folder is on {kind}, which other hosts may share"
    with suppress(OSError):
        sees_all = Path("/proc/self/ns/pid").stat().st_ino == ALL_PROCESSES
        if not shared and not sees_all and kind != OF_CONTAINER:
            shared = "the folder is mounted into this container, and into others perhaps"
    age = max(0.0, time.time() - found.st_mtime)
    return Lock(path, age, _owner(folder, found), shared)


def _file_system(device: int) -> str:
    """The type of the file system on a device, from proc_pid_mountinfo(5)."""
    with suppress(OSError):
        number = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            mount, _, source = line.partition(" - ")
            if mount.split()[2] == number:
                return source.split()[0]
    return "an unknown file system"


def _owner(folder: os.stat_result, lock: os.stat_result) -> int | None:
    """A process that has the lock open, or works in its folder, as ninja does."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if os.path.samestat((process / "cwd").stat(), folder):
                    return int(process.name)
                for descriptor in (process / "fd").iterdir():
                    with suppress(OSError):
                        if os.path.samestat(descriptor.stat(), lock):
                            return int(process.name)
    return None


def _sentence(lock: Lock, *, is_removed: bool) -> str:
    """The warning about a lock that no process here holds."""
    left = f"{lock.path}, made {_age_text(lock.age)} ago by a build of an extension"
    if is_removed:
        return f"removed {left}: no process has it open, and workers would have waited for it"
    why = lock.shared or "the file is another user's"
    return (
        f"{left}: no process here has it open, but {why}. If nobody builds there, delete it: "
        "workers that need the extension wait for it forever"
    )


def _age_text(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
