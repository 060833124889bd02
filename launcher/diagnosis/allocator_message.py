"""Parses the numbers in an allocator's error message."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from ..evidence.failure_record import FailureRecord

UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE = r"(\d+(?:\.\d+)?) (bytes|B|KiB|MiB|GiB|TiB)"
REQUESTED = (rf"[Tt]ried to allocate {SIZE}", rf"Unable to allocate {SIZE} for an array")
CAPACITY = (rf"{SIZE} total capacity", rf"total capaci?ty of {SIZE}")
ALLOWED = (rf"{SIZE} allowed",)
FREE = (rf"{SIZE} (?:is )?free",)
ALLOCATED = (
    rf"{SIZE} already allocated",
    rf"Of the allocated memory {SIZE} is allocated by PyTorch",
)
RESERVED = (rf"{SIZE} reserved in total",)
UNALLOCATED = (rf"{SIZE} is reserved by PyTorch but unallocated", rf"{SIZE} cached")
"""Texts of c10/cuda/CUDACachingAllocator.cpp since 1.0 (2.1 has "capacty"), of the allocators for
XPU and in torch_npu (NPUCachingAllocator.cpp, NPUWorkspaceAllocator.cpp), which follow them, of
c10/core/impl/alloc_cpu.cpp, and of numpy/_core/_exceptions.py."""

OF_HOST = re.compile(
    r"DefaultCPUAllocator|Unable to allocate .{1,20} for an array|\[Errno 12\]|"
    r"unable to mmap|^DataLoader worker \(pid"
)
PYTHONS_OWN = ("MemoryError", "_ArrayMemoryError")
"""Out-of-memory exceptions of Python and numpy; torch's is always `OutOfMemoryError`."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes at the moment of the failure; None if unknown.

    Attributes:
        requested: bytes of the failed allocation.
        allocated: bytes of the framework's tensors on the device.
        reserved: bytes of the framework's allocator on the device, with its cache.
        capacity: the total memory of the device, or the limit of the process.
        free: free bytes of the device.
        process: memory of the process, on a CPU.
    """

    requested: int | None
    allocated: int | None
    reserved: int | None
    capacity: int | None
    free: int | None
    process: int | None


def allocation_of(record: FailureRecord) -> Allocation:
    """The numbers in a failure's message, or else the worker's measurements.

    If the message has no size, e.g. if an NPU operator fails asynchronously, the last such message
    in the worker's log is used.
    """
    seen = record.memory
    text = record.message
    if _size_in(text, REQUESTED) is None:
        tail = "\n".join(record.log_tail)
        text = tail[max((match.start() for match in re.finditer(REQUESTED[0], tail)), default=0) :]
    allocated = _first_known(_size_in(text, ALLOCATED), seen.get("allocated"))
    reserved = _size_in(text, RESERVED)
    if reserved is None and (unallocated := _size_in(text, UNALLOCATED)) is not None:
        reserved = None if allocated is None else allocated + unallocated
    of_device = [_first_known(_size_in(text, CAPACITY), seen.get("total")), _size_in(text, ALLOWED)]
    of_process = [seen.get("data_limit"), seen.get("cgroup_limit")]
    on_device = any(size is not None for size in (*of_device, seen.get("allocated")))
    limits = [size for size in (of_device if on_device else of_process) if size is not None]
    return Allocation(
        requested=_size_in(text, REQUESTED),
        allocated=allocated,
        reserved=_first_known(reserved, seen.get("reserved")),
        capacity=min(limits, default=None),
        free=_first_known(_size_in(text, FREE), seen.get("free")) if on_device else None,
        process=None if on_device else seen.get("data"),
    )


def is_of_host(record: FailureRecord) -> bool:
    """Whether the host ran out of memory, not an accelerator."""
    killed = record.signal == signal.SIGKILL and record.oom_kills > 0
    by_type = record.exception.rpartition(".")[2] in PYTHONS_OWN
    return killed or by_type or OF_HOST.search(record.message) is not None


def _size_in(text: str, patterns: tuple[str, ...]) -> int | None:
    """The size matched by the first matching pattern, in bytes."""
    for pattern in patterns:
        if match := re.search(pattern, text):
            return int(float(match[1]) * UNITS[match[2]])
    return None


def _first_known(stated: int | None, seen: int | None) -> int | None:
    """The first value that isn't None."""
    return seen if stated is None else stated
