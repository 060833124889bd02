"""Resident pages of mapped files in a waiting process."""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path

from safe_launch.workers.forkserver import server


def resident(path: Path) -> dict[str, int]:
    """Resident KiB of a file, by its mappings' permissions."""
    text = Path("/proc/self/smaps").read_text()
    found = re.findall(rf"(\S+) \S+ \S+ \d+\s+{re.escape(str(path))}\n[^-]*?Rss:\s+(\d+) kB", text)
    return {permissions: int(size) for permissions, size in found}


def test_pages_that_nothing_changed_are_given_back(tmp_path: Path) -> None:
    """They are read again on demand; modified and writable pages stay."""
    path = tmp_path / "library"
    path.write_bytes(b"x" * (64 << 10))
    with path.open("r+b") as file:
        kinds = {"read": mmap.PROT_READ, "written": mmap.PROT_READ | mmap.PROT_WRITE}
        maps = {
            name: mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=prot)
            for name, prot in kinds.items()
        }
    assert maps["read"][:] == b"x" * (64 << 10)
    maps["written"][:5] = b"other"
    before = resident(path)
    assert before["r--p"] == 64
    server.release_pages()
    after = resident(path)
    assert after["r--p"] == 0
    assert after["rw-p"] == before["rw-p"]
    assert maps["read"][:] == b"x" * (64 << 10)
    assert maps["written"][:6] == b"otherx"


def test_relocated_pages_stay(tmp_path: Path) -> None:
    """Relocation modifies a library's pages before they are protected."""
    path = tmp_path / "library"
    path.write_bytes(b"x" * 4096)
    with path.open("r+b") as file:
        pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=3)
    pages[:5] = b"moved"
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(start), ctypes.c_size_t(4096), mmap.PROT_READ) == 0
    server.release_pages()
    assert pages[:6] == b"movedx"
