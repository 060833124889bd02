"""Measures the memory of a worker's process and device."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

FIELDS = {
    "VmData": "data",
    "VmRSS": "resident",
    "VmHWM": "resident_peak",
    "VmSize": "addresses",
    "VmPeak": "addresses_peak",
}
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
NO_LIMIT = 2**62
""""No limit" in the first version of cgroups: a number near 2**63 (mm/memcontrol.c)."""
SIGNS = re.compile(
    r"out of memory|can't allocate memory|not enough memory|ALLOC_FAILED|Failed to CUDA (m|c)alloc|"
    r"Cannot allocate memory|memory allocation|Failed to allocate memory|EL0004|207001|"
    r"Inner error is reported as above",
    re.IGNORECASE,
)
"""Memory error messages besides torch's: NCCL's (src/include/alloc.h), CANN's codes, and that of
torch_npu for an operator that failed asynchronously, whose details are in the log."""


def is_about_memory(error: BaseException, message: str) -> bool:
    """Whether an exception comes from an allocator or may hide such an error."""
    return isinstance(error, MemoryError) or SIGNS.search(message) is not None


def process_data() -> int:
    """Bytes of the process's data, heap and anonymous mappings, limited by RLIMIT_DATA."""
    return dict(_process()).get("data", 0)


def seen() -> dict[str, int]:
    """Bytes by name, as in `FailureRecord.memory`, without unknown values."""
    sizes = dict(_process())
    sizes.update(_limits(sizes))
    with contextlib.suppress(Exception):  # a failed device may raise again when queried
        sizes.update(_device())
    return sizes


def most_addresses() -> int:
    """Peak address space of the process so far, in bytes."""
    return dict(_process()).get("addresses_peak", 0)


def peak(before_model: int, addresses: int) -> tuple[int, int] | None:
    """Peak bytes held, and how many aren't the training's; None if unknown.

    Args:
        before_model: the process's data before it had a model, in bytes.
        addresses: `most_addresses` when the model existed.

    On a device: the allocator's peak, and the device's memory outside the allocator. The kernel
    tracks no peak of a process's data, only of its address space: growth since the model existed
    excludes files mapped to load the model.
    """
    with contextlib.suppress(Exception):  # a device may not answer any more
        if (device := dict(_device())).get("peak"):
            context = max(device["total"] - device["free"] - device["reserved"], 0)
            return device["peak"] + context, context
    return _peak_of_process(before_model, addresses)


def peak_so_far(before_model: int, addresses: int) -> tuple[int, int] | None:
    """Peak bytes during training: on a device only the allocator's counts, without context.

    Querying a driver may be unsafe, e.g. during graph capture.
    """
    with contextlib.suppress(Exception):
        for name, size in _device():
            if name == "peak":
                return size, 0
    return _peak_of_process(before_model, addresses)


def _peak_of_process(before_model: int, addresses: int) -> tuple[int, int] | None:
    now = dict(_process())
    if now.get("addresses_peak", 0) <= addresses:
        return None
    return now["data"] + now["addresses_peak"] - now["addresses"], before_model


def _process() -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in FIELDS:
                yield FIELDS[name], int(value.split()[0]) * 1024


def _limits(sizes: dict[str, int]) -> Iterator[tuple[str, int]]:
    """The limits of the process's data (`ulimit -d` and `-v`) and of its cgroup."""
    data, addresses = (
        resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS)
    )
    limits = [] if data == resource.RLIM_INFINITY else [data]
    if addresses != resource.RLIM_INFINITY and {"addresses", "data"} <= sizes.keys():
        limits.append(max(addresses - (sizes["addresses"] - sizes["data"]), 0))
    if limits:
        yield "data_limit", min(limits)
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(path).read_text())
            if limit < NO_LIMIT:
                yield "cgroup_limit", limit
            return


def _device() -> Iterator[tuple[str, int]]:
    """Memory of a device initialised by torch, without initialising any.

    The allocator's counts come first: they don't query the device, so they remain available if it
    no longer responds.
    """
    torch = sys.modules.get("torch")
    for name in ("cuda", "npu", "xpu"):
        device = getattr(torch, name, None)
        if device is not None and device.is_initialized():
            yield "allocated", int(device.memory_allocated())
            yield "peak", int(device.max_memory_allocated())
            yield "reserved", int(device.memory_reserved())
            free, total = device.mem_get_info()
            yield "free", int(free)
            yield "total", int(total)
            return
