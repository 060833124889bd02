"""What a worker can tell of memory, of its own process and of its device, when it fails."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

FIELDS = {"VmData": "data", "VmRSS": "resident"}
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
SIGNS = re.compile(
    r"out of memory|can't allocate memory|not enough memory|ALLOC_FAILED|Failed to CUDA malloc|"
    r"Cannot allocate memory|memory allocation",
    re.IGNORECASE,
)


def is_about_memory(error: BaseException, message: str) -> bool:
    """Whether an exception is an allocator's complaint."""
    return isinstance(error, MemoryError) or SIGNS.search(message) is not None


def process_data() -> int:
    """Bytes of the process's data, heap and anonymous mappings; what RLIMIT_DATA limits."""
    return dict(_process()).get("data", 0)


def seen() -> dict[str, int]:
    """Bytes by name, see `FailureRecord.memory`; what can't be told is left out."""
    found = dict(_process())
    soft, _hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY:
        found["data_limit"] = soft
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):
            found["cgroup_limit"] = int(Path(path).read_text())
            break
    with contextlib.suppress(Exception):  # a device that has failed answers nothing
        found.update(_device())
    return found


def _process() -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in FIELDS:
                yield FIELDS[name], int(value.split()[0]) * 1024


def _device() -> Iterator[tuple[str, int]]:
    """Of the device that torch has initialised; none is initialised here."""
    torch = sys.modules.get("torch")
    for name in ("cuda", "npu"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available() and device.is_initialized():
            free, total = device.mem_get_info()
            yield "free", int(free)
            yield "total", int(total)
            yield "allocated", int(device.memory_allocated())
            yield "reserved", int(device.memory_reserved())
            return
