"""Dependencies of imports besides the environment: files, and the command line.

Imports can be used again later only if a fresh interpreter would import the same. So these files
count: every one that an import has opened, those of the imported modules and libraries, those that
decide where modules are found, and the modules in the user's folders.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...workload.script.imports import Step, is_installed

IGNORED = ("/proc/", "/sys/", "/dev/", "/memfd:", "/SYSV")
"""Prefixes of paths that aren't files on a disk."""
TICK = 20_000_000
"""Nanoseconds by which a file's times may lag behind the clock (a timer tick of the kernel)."""
HELD_HERE = 3
"""References to an object that only `sys`, a local variable and the question hold."""
Signature = tuple[int, int, int, int, int] | None
"""A file's device, inode, size in bytes, and times in ns; None if there is none."""


@dataclass(slots=True)
class ImportTrace:
    """Files that imports have opened or read, and their state then.

    Attributes:
        opened: paths that were opened for reading, whether they exist or not.
        written: paths that were opened for writing, by the imports.
        signatures: the signature of every file and folder that counts.
        user_modules: names of the modules in each of the user's folders on `sys.path`.
        reads_arguments: an import reads the command line, or keeps it.
        is_recording: whether events are noted.
    """

    opened: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    signatures: dict[str, Signature] = field(default_factory=dict)
    user_modules: Mapping[str, frozenset[str]] = field(default_factory=dict)
    reads_arguments: bool = False
    is_recording: bool = False

    def watch(self) -> None:
        """Watches this process and its forks from now on: an audit hook can't be removed."""
        sys.addaudithook(self._note)

    def during(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yields the steps, and records their execution but not the search for them."""
        arguments = sys.argv if isinstance(sys.argv, _Arguments) else _Arguments(sys.argv)
        arguments.trace, sys.argv = self, arguments
        try:
            for step in steps:
                self.is_recording = True
                yield step
                self.is_recording = False
        finally:
            self.is_recording = False
            if sys.getrefcount(arguments) == HELD_HERE:
                sys.argv = [*arguments]
            else:  # a module holds it, which must see the script's own later
                self.reads_arguments = True

    def settle(self, begun: int) -> str | None:
        """Notes the state of each file after imports that began at a time in ns since the epoch.

        Returns:
            Why the files may differ from the imported ones; None if they don't.
        """
        for path in sorted(self._paths() - self.signatures.keys()):
            current = signature(path)
            if current is not None and current[-1] > begun - TICK and path not in self.written:
                return f"{path} has changed while it was imported"
            self.signatures[path] = current
        self.user_modules = _user_modules()
        return None

    def changed(self) -> str | None:
        """A difference that a fresh interpreter would find; None if there is none."""
        for path, earlier in self.signatures.items():
            if signature(path) != earlier:
                return f"{path} has changed"
        for folder, names in _user_modules().items():
            if different := names ^ self.user_modules.get(folder, frozenset()):
                return f"{folder} has other modules: {min(different)}"
        return None

    def _paths(self) -> set[str]:
        files = {*self.opened, *_module_files(), *_mapped_files(), *_finding_files()}
        return {path for path in files if not path.startswith(IGNORED)} - self.written

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook; it must be quick, since it is called for every event."""
        if self.is_recording and event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and not os.fsdecode(path).endswith(".pyc"):
                is_read = flags & os.O_ACCMODE == os.O_RDONLY
                kind = self.opened if is_read else self.written
                kind.add(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - links stay


class _Arguments(list[str]):
    """The command line during imports, which notes when it is read, except for the script."""

    trace: ImportTrace

    def __getitem__(self, index: Any) -> Any:
        self.trace.reads_arguments |= self.trace.is_recording and index != 0
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[str]:
        self.trace.reads_arguments |= self.trace.is_recording
        return super().__iter__()


def signature(path: str) -> Signature:
    """A file's identity without reading its contents."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path for each of thousands takes longer
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _module_files() -> Iterator[str]:
    """The files of imported modules, not the script; for a module in an archive, the archive."""
    for name, module in list(sys.modules.items()):
        if name == "__main__":  # it isn't imported here; its first imports are read anew
            continue
        # No `getattr`: a lazy module would import what is looked up.
        path = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(path, str) and os.path.isabs(path):  # noqa: PTH117 - as above
            while signature(path) is None and path != "/":
                path = os.path.dirname(path)  # noqa: PTH120
            yield path


def _mapped_files() -> Iterator[str]:
    """The libraries that are loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            yield fields[5].removesuffix(" (deleted)")


def _finding_files() -> Iterator[str]:
    """Paths that decide where modules are found: folders with packages, and files that add more."""
    yield f"{sys.prefix}/pyvenv.cfg"
    for folder in {site.getusersitepackages(), *sys.path}:
        if is_installed(folder):
            yield folder
            yield from map(str, Path(folder).glob("*.pth"))


def _user_modules() -> dict[str, frozenset[str]]:
    """The names of the modules in each of the user's folders on `sys.path`.

    A folder without `__init__.py` doesn't count: runs write folders beside their script.
    """
    return {
        folder: frozenset(_names_of_modules(folder))
        for folder in sys.path
        if folder and not is_installed(folder)
    }


def _names_of_modules(folder: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        name, dot, suffix = entry.name.partition(".")
        is_module = suffix == "py" or suffix.split(".")[-1] == "so"
        if is_module or (not dot and signature(f"{entry.path}/__init__.py")):
            yield name
