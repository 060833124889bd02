"""An allocator's complaint in numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .failure import FailureRecord

UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE = r"(\d+(?:\.\d+)?) (bytes|B|KiB|MiB|GiB|TiB)"
ASKED = (rf"[Tt]ried to allocate {SIZE}", r"tried to allocate (\d+) (bytes)")
CAPACITY = (rf"{SIZE} total capacity", rf"total capacity of {SIZE}")
FREE = (rf"{SIZE} (?:is )?free", rf"of which {SIZE} is free")
ALLOCATED = (
    rf"{SIZE} already allocated",
    rf"Of the allocated memory {SIZE} is allocated by PyTorch",
)
RESERVED = (rf"{SIZE} reserved in total",)
UNALLOCATED = (rf"{SIZE} is reserved by PyTorch but unallocated",)
"""Wordings of c10/cuda/CUDACachingAllocator.cpp since 1.0, of torch_npu's NPUCachingAllocator.cpp,
which follows them, and of c10/core/impl/alloc_cpu.cpp."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes at the moment of the failure; None where nothing tells.

    Attributes:
        asked: what couldn't be had.
        allocated: what the framework held of the device, in tensors.
        reserved: the same with what its allocator kept for later.
        capacity: what the device, or the process, may have in all.
        free: what the device had left.
        process: what the process held, on a CPU.
    """

    asked: int | None
    allocated: int | None
    reserved: int | None
    capacity: int | None
    free: int | None
    process: int | None


def allocation_of(record: FailureRecord) -> Allocation:
    """The numbers in a failure's message, and beside them those that the worker took itself."""
    text, seen = "\n".join([record.message, *record.log_tail]), record.memory
    allocated = _first(text, ALLOCATED) or seen.get("allocated")
    unallocated = _first(text, UNALLOCATED)
    reserved = _first(text, RESERVED) or seen.get("reserved")
    if reserved is None and allocated is not None and unallocated is not None:
        reserved = allocated + unallocated
    capacity = _first(text, CAPACITY) or seen.get("total")
    on_device = capacity is not None or "allocated" in seen
    if not on_device:
        limits = [seen[name] for name in ("data_limit", "cgroup_limit") if name in seen]
        capacity = min(limits, default=None)
    return Allocation(
        asked=_first(text, ASKED),
        allocated=allocated,
        reserved=reserved,
        capacity=capacity,
        free=_first(text, FREE) if on_device else None,
        process=None if on_device else seen.get("data"),
    )


def is_of_host(record: FailureRecord) -> bool:
    """Whether it is the host's memory that was lacking, rather than an accelerator's."""
    by_python = record.exception.endswith("MemoryError") and "CUDA" not in record.message
    return record.oom_kills > 0 or "DefaultCPUAllocator" in record.message or by_python


def _first(text: str, patterns: tuple[str, ...]) -> int | None:
    """The size that the first matching pattern finds, in bytes."""
    for pattern in patterns:
        if match := re.search(pattern, text):
            return int(float(match[1]) * UNITS[match[2]])
    return None
