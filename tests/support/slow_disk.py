"""A slow disk: a mounted folder that takes its time for every 128 KiB that are written.

    with slow_disk(folder, seconds=0.2):
        ...

It is a file system in user space that keeps the sizes of its files and no content, by the kernel's
protocol: https://docs.kernel.org/filesystems/fuse/fuse.html and include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LARGEST = 128 * 1024
_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_LACKING = os.geteuid() != 0 or not Path("/dev/fuse").exists()
needs_slow_disk = pytest.mark.skipif(_LACKING, reason="a slow disk needs root and /dev/fuse")
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def slow_disk(folder: Path, seconds: float) -> Iterator[None]:
    """Mounts a slow disk on an empty folder; each piece that is written takes so many seconds."""
    command = [sys.executable, __file__, str(folder), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == "ready\n"
        yield
    finally:
        _LIBC.umount2(str(folder).encode(), 2)  # MNT_DETACH
        server.kill()
        server.communicate()


class Disk:
    """The files of the disk, which has one folder.

    Attributes:
        names: the number of each file, by its name.
        sizes: the bytes of each file, by its number.
        seconds: that a write takes.
    """

    def __init__(self, seconds: float) -> None:
        self.names: dict[bytes, int] = {}
        self.sizes: dict[int, int] = {1: 0}
        self.seconds = seconds

    def answer(self, operation: int, node: int, body: bytes) -> bytes | int | None:
        """The answer's content, an error's number, or None where none is wanted."""
        if operation in (2, 36, 42):  # FORGET, INTERRUPT, BATCH_FORGET
            return None
        known: dict[int, Callable[[int, bytes], bytes | int]] = {
            1: lambda _node, name: self._entry(name[:-1]),
            3: lambda node, _body: self._attributes(node),
            4: self._set_size,
            10: lambda _node, name: self._forget(name[:-1]),
            12: lambda _node, body: self._rename(body[8:]),
            14: lambda _node, _body: struct.pack("<QII", 0, 0, 0),
            15: lambda _node, _body: b"",
            16: self._write,
            17: lambda _node, _body: struct.pack("<5Q4I24x", *[2**30] * 5, 4096, 255, 4096, 0),
            18: lambda _node, _body: b"",
            20: lambda _node, _body: b"",
            25: lambda _node, _body: b"",
            26: lambda _node, _body: struct.pack(
                "<IIIIHHIIHHI28x", 7, 31, 0, 1 << 5, 12, 9, LARGEST, 1, 32, 0, 0
            ),
            27: lambda _node, _body: struct.pack("<QII", 0, 0, 0),
            28: lambda _node, _body: b"",
            29: lambda _node, _body: b"",
            35: lambda _node, body: self._create(body[16:-1]),
            45: lambda _node, body: self._rename(body[16:]),
        }
        return known[operation](node, body) if operation in known else errno.ENOSYS

    def _described(self, node: int) -> bytes:
        kind = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o644
        size = self.sizes.get(node, 0)
        return struct.pack("<6Q10I", node, size, size // 512, *[0] * 6, kind, 1, 0, 0, 0, 4096, 0)

    def _attributes(self, node: int) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._described(node)

    def _entry(self, name: bytes) -> bytes | int:
        node = self.names.get(name)
        if node is None:
            return errno.ENOENT
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self._described(node)

    def _create(self, name: bytes) -> bytes | int:
        node = self.names.setdefault(name, len(self.sizes) + 1)
        self.sizes[node] = 0
        entry = self._entry(name)
        assert isinstance(entry, bytes)
        return entry + struct.pack("<QII", 0, 0, 0)

    def _set_size(self, node: int, body: bytes) -> bytes:
        valid, size = struct.unpack_from("<I12xQ", body)
        if valid & 8:
            self.sizes[node] = size
        return self._attributes(node)

    def _forget(self, name: bytes) -> bytes | int:
        return errno.ENOENT if self.names.pop(name, None) is None else b""

    def _rename(self, names: bytes) -> bytes | int:
        old, new, _ = names.split(b"\0")
        if old not in self.names:
            return errno.ENOENT
        self.names[new] = self.names.pop(old)
        return b""

    def _write(self, node: int, body: bytes) -> bytes:
        offset, size = struct.unpack_from("<8xQI", body)
        time.sleep(self.seconds)
        self.sizes[node] = max(self.sizes[node], offset + size)
        return struct.pack("<II", size, 0)


def serve(folder: str, seconds: float) -> None:
    """Mounts the disk and answers until it is unmounted."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _LIBC.mount(b"slow", folder.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    print("ready", flush=True)
    disk = Disk(seconds)
    while True:
        try:
            request = os.read(device, LARGEST + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:  # unmounted
                return
            continue  # the request was interrupted
        length, operation, unique, node = _IN.unpack_from(request)[:4]
        answer = disk.answer(operation, node, request[_IN.size : length])
        if isinstance(answer, int):
            os.write(device, _OUT.pack(_OUT.size, -answer, unique))
        elif answer is not None:
            os.write(device, _OUT.pack(_OUT.size + len(answer), 0, unique) + answer)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))
