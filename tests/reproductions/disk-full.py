"""The checkpoint is larger than what its file system has left."""

import ctypes
import os
import sys
from pathlib import Path

import torch

RANKS = 1

NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000


def mount_small_disk(path: Path) -> None:
    """A file system of 64 KiB that only this process and its children see."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    namespaces = NEW_MOUNTS if user == 0 else NEW_USER | NEW_MOUNTS
    assert libc.unshare(namespaces) == 0, os.strerror(ctypes.get_errno())
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    private = libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None)
    done = libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, b"size=64k")
    assert private == done == 0, os.strerror(ctypes.get_errno())


folder = Path("checkpoints").absolute()
folder.mkdir()
if "--advised" not in sys.argv:
    mount_small_disk(folder)
model = torch.nn.Linear(256, 256)
model(torch.ones(2, 256)).sum().backward()
torch.save(model.state_dict(), folder / "model.pt")
