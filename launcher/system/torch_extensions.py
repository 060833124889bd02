"""The folders in which torch's extensions are built, and the locks of builds that were killed."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from ..core.errors import ExitCode, LaunchError, reason_of
from . import private_files

EXTENSIONS = "TORCH_EXTENSIONS_DIR"
LOCAL = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
"""File systems of a single host; others may be shared by hosts."""
OF_CONTAINER = "overlay"
"""The file system of a container itself; others are mounted into it."""
ALL_PROCESSES = 0xEFFFFFFC
"""The inode of a host's first namespace of processes, which has all of them (PROC_PID_INIT_INO in
Linux' include/linux/proc_ns.h)."""


def choose(
    environment: MutableMapping[str, str], log_dir: Path | None, tell: Callable[[str], None]
) -> None:
    """Sets the variables of folders that can be written, if the usual ones can't.

    Without a folder for temporary files torch can't be imported. Without one for extensions
    DeepSpeed's operations can't be built: the first ZeRO stage that needs one fails.

    Raises:
        LaunchError: there is no folder for temporary files.
    """
    spare = log_dir if log_dir is not None and _can_be_written(log_dir) else None
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        if spare is None:
            problem = "no folder for temporary files can be written"
            hint = "set TMPDIR or --log-dir to a writable folder"
            raise LaunchError.because(error, problem, hint, code=ExitCode.CANNOT_WRITE) from error
        temporary = spare
        environment["TMPDIR"] = str(temporary.absolute())
        tell(f"temporary files go to {temporary}: TMPDIR isn't set, and /tmp can't be written")
    usual = Path(environment.get(EXTENSIONS) or _cache(environment) / "torch_extensions")
    if _can_be_written(usual):
        return
    if EXTENSIONS in environment:
        tell(f"{EXTENSIONS}={usual} can't be written: DeepSpeed's operations can't be built there")
        return
    # Libraries built there are executed, so the folder must be this user's.
    places = [spare.absolute() / ".torch_extensions"] if spare else []
    problems = []
    for folder in (*places, temporary.absolute() / f".torch_extensions-{os.geteuid()}"):
        try:
            private_files.make_folders(folder.parent)
            private_files.make_unshared(folder)
        except OSError as error:
            problems.append(f"{folder}: {reason_of(error)}")
            continue
        environment[EXTENSIONS] = str(folder)
        tell(f"torch's extensions are built in {folder}: {usual} can't be written")
        return
    tell(f"{usual} can't be written: DeepSpeed's operations can't be built ({'; '.join(problems)})")


def _cache(environment: MutableMapping[str, str]) -> Path:
    """The user's cache, as torch finds it (`user_cache_dir` in torch/_appdirs.py)."""
    return Path(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111


def _can_be_written(folder: Path) -> bool:
    """Whether a folder can be written or made; not one below an unknown home."""
    above = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    return folder.parts[:1] != ("~",) and above.is_dir() and os.access(above, os.W_OK | os.X_OK)


def clear_locks(environment: Mapping[str, str]) -> Iterator[str]:
    """Removes the locks that no process holds; yields a sentence on each without a known holder.

    The process that makes the file `lock` builds the extension and keeps the file open; the others
    wait silently until the file is gone (torch/utils/file_baton.py).

    A held lock isn't mentioned: every load of an extension takes it for a moment, and the hang
    watch reports workers that wait for long.
    """
    for path in _paths(environment):
        with suppress(OSError):  # its build has just ended
            lock, folder = path.stat(), path.parent.stat()
            if _owner(folder, lock) is not None:
                continue
            age = _age_text(max(0.0, time.time() - lock.st_mtime))
            made = f"{path}, made {age} ago by a build of an extension"
            if doubt := _doubt(folder, lock):
                yield (
                    f"{made}: no process here has it open, but {doubt}. If nobody builds there, "
                    "delete it: workers that need the extension wait for it forever"
                )
                continue
            if os.path.samestat(lock, path.stat()):
                path.unlink()
            yield f"removed {made}: no process has it open, and workers would have waited for it"


def _paths(environment: Mapping[str, str]) -> list[Path]:
    """The locks in the folders of the extensions (`_get_build_directory` in cpp_extension.py)."""
    if folder := environment.get(EXTENSIONS):
        return sorted(Path(folder).glob("*/lock"))
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/")) / ".cache"
    return sorted((Path(cache) / "torch_extensions").glob("*/*/lock"))


def _doubt(folder: os.stat_result, lock: os.stat_result) -> str:
    """Why an invisible process may hold a lock; empty if none can."""
    kind = _file_system(folder.st_dev)  # the lock's own may be that of a layer below
    if kind not in LOCAL:
        return f"the folder is on {kind}, which other hosts may share"
    with suppress(OSError):
        sees_all = Path("/proc/self/ns/pid").stat().st_ino == ALL_PROCESSES
        if not sees_all and kind != OF_CONTAINER:
            return "the folder is mounted into this container, and into others perhaps"
    return "" if lock.st_uid == os.geteuid() else "the file is another user's"


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


def _age_text(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
