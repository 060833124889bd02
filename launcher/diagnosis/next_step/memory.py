"""Advice on exhausted memory by allocator, device or host."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalogue.situation import Device
from .step import Case, Step, run_of


@dataclass(frozen=True, slots=True)
class Allocator:
    """An allocator, recognized by its message.

    Attributes:
        words: pattern of its message.
        name: its name.
        of: the exhausted resource: `device`, `host`, or a resource with specific advice.
        do: the advice; empty for the general advice on a device or host.
    """

    words: str
    name: str
    of: str
    do: str = ""


DEVICES = r"CUDA|HIP|NPU|XPU|MPS|Metal|HBM|GPU|cuda|hip|npu|xpu|mps|device"
ALLOCATORS = (
    Allocator(
        r"ray\.exceptions|node running low on memory|\(ray\)",
        "Ray's monitor",
        "host",
        "Ray ends workers before the kernel does: fewer or smaller workers on the node.",
    ),
    Allocator(
        r"RESOURCE_EXHAUSTED|XlaRuntimeError.*out of memory",
        "JAX or XLA",
        "device",
        "It takes most of a device at its start: `export XLA_PYTHON_CLIENT_PREALLOCATE=false` where"
        " another framework shares the device.",
    ),
    Allocator(r"cupy|cudaErrorMemoryAllocation.*cupy", "cupy", "device"),
    Allocator(
        r"out of resource: shared memory|OutOfResources",
        "Triton",
        "kernel",
        "A Triton kernel wants more memory on the chip than this device has: smaller blocks or"
        " fewer stages in the kernel, a smaller head or state dimension of the model, or turn this"
        " kernel off.",
    ),
    Allocator(
        r"(?:pinned|page-locked|cudaHostAlloc|cudaMallocHost|HostAlloc)",
        "pinned",
        "pinned",
        "Pinned memory can't be swapped: fewer pinned buffers (`pin_memory=False`, less offloaded),"
        " or `ulimit -l unlimited`.",
    ),
    Allocator(
        r"ArrowMemoryError|arrow.*malloc|realloc of size \d+ failed|malloc of size \d+ failed",
        "Arrow",
        "host",
        "Read the data in parts: a smaller `batch_size` and `writer_batch_size` in `map`,"
        " `streaming=True`, fewer `num_proc`.",
    ),
    Allocator(r"Unable to allocate .{1,24} for an array|_ArrayMemoryError", "numpy", "host"),
    Allocator(
        r"DefaultCPUAllocator|alloc_cpu|not enough memory: you tried to allocate",
        "torch on the CPU",
        "host",
    ),
    Allocator(
        r"unable to mmap|Cannot allocate memory|\[Errno 12\]",
        "the operating system",
        "host",
        "It may be the number of processes or maps instead of bytes: see `ulimit -u`, `ulimit -v`"
        " and the container's limit.",
    ),
    Allocator(r"std::bad_alloc|bad_alloc", "C++", "host"),
    Allocator(
        r"plasma|object store",
        "Ray's object store",
        "host",
        "Give it more (`ray start --object-store-memory=...`) and /dev/shm, or put smaller objects"
        " into it.",
    ),
    Allocator(
        r"No space left on device.*(?:shm|torch_)",
        "shared memory",
        "shm",
        "Give the container more: `docker run --shm-size=16g` or `--ipc=host`.",
    ),
    Allocator(
        rf"\b(?:{DEVICES})\b.{{0,40}}\bout of memory|out of memory.{{0,40}}\b(?:{DEVICES})\b"
        r"|OutOfMemoryError|MemoryAllocation|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
        r"|FAILED_TO_ALLOC|EL0004|207001"
        rf"|Failed to allocate .{{0,30}}(?:{DEVICES})",
        "the accelerator",
        "device",
    ),
)
"""Allocators by their messages, the specific ones first."""
GENERAL = {
    "device": (
        "Lower the micro batch or the sequence length, recompute activations, or shard and offload"
        " more"
    ),
    "host": (
        "Fewer workers and processes on this node, less data at once, less offloaded, or more"
        " memory for the job"
    ),
}
LOOK = {
    Device.NPU: "`npu-smi info` shows who else holds the device",
    Device.ROCM: "`rocm-smi --showpids` shows who else holds the device",
    Device.XPU: "`xpu-smi ps` shows who else holds the device",
    Device.CUDA: "`nvidia-smi` shows who else holds the device",
}
ASKED = re.compile(r"\bdevice=\[\d+(?:, ?\d+)+\]|\bdevice='?\d+(?:, ?\d+)+\b'?")
LISTED = re.compile(r"(?m)^Ultralytics\b.* CUDA:(\d+) \(|^\s*CUDA:(\d+) \(")
WORDS = re.compile(
    r"out of memory|OutOfMemory|MemoryError|bad_alloc|RESOURCE_EXHAUSTED|[Cc]annot allocate"
    r" memory|\[Errno 12\]"
    r"|[Uu]nable to allocate|not enough memory|OutOfResources|out of"
    r" resource|ALLOC_FAILED|MemoryAllocation"
    r"|malloc of size|failed to allocate|Failed to allocate|alloc(?:ation)? failed",
)


def one_device(case: Case) -> Step | None:
    """Several devices that Ultralytics was asked for, and the only one that its header lists."""
    asked = ASKED.search(case.around)
    if WORDS.search(f"{case.raised.exception}: {case.message}") is None or asked is None:
        return None
    if len({"".join(device) for device in LISTED.findall(case.around)}) != 1:
        return None
    return Step(
        f"Give the devices as text (`device={','.join(re.findall('[0-9]+', asked[0]))}`), or take"
        " another release (`pip install -U ultralytics`): several were asked for"
        f" (`{asked[0]}`), and the header lists one, which gets the whole batch."
    )


def out_of_memory(case: Case) -> Step | None:
    """Names the exhausted memory and settings that need less."""
    text = f"{case.raised.exception}: {case.message}"
    if WORDS.search(text) is None:
        return None
    allocator = next((known for known in ALLOCATORS if re.search(known.words, text)), None)
    if allocator is None and case.kind == "MemoryError":
        allocator = Allocator("", "Python", "host")
    if allocator is None:
        return None
    run = run_of(case)
    general = GENERAL.get(allocator.of, "")
    if allocator.of == "device":
        general += f" ({run.less_memory})" if run.less_memory else ""
        general += f"; {LOOK[run.device]}" if run.device in LOOK else ""
    head = f"The memory that ran out is the {allocator.of}'s ({allocator.name})" if general else ""
    return Step(" ".join(f"{part.rstrip('.')}." for part in (head, allocator.do, general) if part))
