"""Out of memory: allocator messages, workers' own numbers, and whose memory it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from safe_launch.catalogue.reader import read_catalogue, read_entry
from safe_launch.diagnosis.allocator_message import Allocation, allocation_of, is_of_host
from safe_launch.diagnosis.root_cause import finding_of
from safe_launch.evidence import from_memory
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.system.typed_files import DocumentError
from support.entries import GOOD

CATALOGUE = read_catalogue()
GIB, MIB = 2**30, 2**20
ASYNCHRONOUS = (
    "The Inner error is reported as above. The process exits for this inner error, and the current "
    "working operator name is aclnnMul."
)
NPU_LOG = (
    "[rank7]:[E615 compiler_depend.ts:444] NPU out of memory. NPUWorkspaceAllocator tried to "
    "allocate 1.89 GiB(NPU 7; 60.96 GiB total capacity; 1.82 GiB free). If you want to reduce"
)


def record(exception: str, message: str, **more: object) -> FailureRecord:
    """A worker's record of an exception."""
    return FailureRecord(0, 0.0, exception, message, **more)  # type: ignore[arg-type]


def entries(one: FailureRecord) -> list[str]:
    """The id of the entry that explains a record, if any."""
    entry = finding_of(one, CATALOGUE).entry
    return [] if entry is None else [entry.id]


TORCH_2_1 = (
    "CUDA out of memory. Tried to allocate 10.08 GiB. GPU 0 has a total capacty of 22.20 GiB of "
    "which 687.12 MiB is free. Process 40666 has 21.53 GiB memory in use. Of the allocated memory "
    "9.71 GiB is allocated by PyTorch, and 10.61 GiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation."
)
NOTHING_HELD = (
    "HIP out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 15.24 GiB of "
    "which 15.09 GiB is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes "
    "is reserved by PyTorch but unallocated."
)
ALLOWED = (
    "HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 287.98 GiB of "
    "which 275.86 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated "
    "by PyTorch, with 17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is "
    "reserved by PyTorch but unallocated."
)
TORCH_1_0 = (
    "CUDA out of memory. Tried to allocate 1.12 MiB (GPU 0; 11.91 GiB total capacity; 5.52 GiB "
    "already allocated; 2.06 MiB free; 184.00 KiB cached)"
)
NUMPY = "Unable to allocate 7.45 GiB for an array with shape (1000000000,)"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (TORCH_2_1, (10.08 * GIB, 9.71 * GIB, 20.32 * GIB, 22.2 * GIB, 687.12 * MIB)),
        (NOTHING_HELD, (16 * GIB, 0, 0, 15.24 * GIB, 15.09 * GIB)),
        (ALLOWED, (2 * MIB, 1017.01 * MIB, 1072 * MIB, 1.05 * GIB, 275.86 * GIB)),
        (TORCH_1_0, (1.12 * MIB, 5.52 * GIB, 5.52 * GIB + 184 * 1024, 11.91 * GIB, 2.06 * MIB)),
        (NPU_LOG, (1.89 * GIB, None, None, 60.96 * GIB, 1.82 * GIB)),
        ("CUDA error: out of memory", (None,) * 5),
        (NUMPY, (7.45 * GIB, None, None, None, None)),
        ("not a word of a size", (None,) * 5),
    ],
    ids=["2.1", "nothing held", "allowed", "1.0", "workspace", "bare", "numpy", "none"],
)
def test_numbers_in_a_message(message: str, expected: tuple[float | None, ...]) -> None:
    """Less common wordings; 0 held is a number, a missing number is none."""
    seen = allocation_of(record("RuntimeError", message))
    found = (seen.requested, seen.allocated, seen.reserved, seen.capacity, seen.free)
    for one, wanted in zip(found, expected, strict=True):
        assert one == (None if wanted is None else pytest.approx(wanted, abs=32))


def test_a_library_gives_no_numbers_the_worker_does() -> None:
    """The worker's allocator and device counts are used."""
    told = {"allocated": 70 * GIB, "reserved": 75 * GIB, "free": 0, "total": 80 * GIB, "data": 9}
    seen = allocation_of(record("RuntimeError", "CUBLAS_STATUS_ALLOC_FAILED", memory=told))
    assert seen == Allocation(None, 70 * GIB, 75 * GIB, 80 * GIB, 0, None)


def test_an_npus_complaint_is_in_the_log() -> None:
    """An operator fails after its call returns; an older, survived error doesn't count."""
    older = NPU_LOG.replace("1.89", "0.50")
    one = record("builtins.RuntimeError", ASYNCHRONOUS, log_tail=(older, NPU_LOG, "Traceback"))
    assert entries(one) == ["accelerator-out-of-memory"]
    assert allocation_of(one).requested == pytest.approx(1.89 * GIB, abs=1)
    assert not is_of_host(one)
    other = record("builtins.RuntimeError", ASYNCHRONOUS, log_tail=("an aicore error",))
    assert entries(other) == []


TORCHS, RUNTIME = "torch.OutOfMemoryError", "builtins.RuntimeError"
NUMPYS = "numpy._core._exceptions._ArrayMemoryError"
ACCELERATOR, LIBRARY = "accelerator-out-of-memory", "accelerator-library-out-of-memory"
HOST, SHARED = "host-allocation-failed", "shared-memory-exhausted"
NO_ROOM = "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"
MAPPED = "unable to mmap 8589934592 bytes from file <weights>: Cannot allocate memory (12)"


@pytest.mark.parametrize(
    ("exception", "message", "expected", "of_host"),
    [
        (TORCHS, "HIP out of memory. Tried to allocate 1.00 GiB.", ACCELERATOR, False),
        (TORCHS, "NPU out of memory. Tried to allocate 1.00 GiB", ACCELERATOR, False),
        (RUNTIME, "NPU out of memory. NPUWorkspaceAllocator tried to allocate", ACCELERATOR, False),
        ("torch.AcceleratorError", "CUDA error: out of memory\nCUDA kern", ACCELERATOR, False),
        (RUNTIME, "NPU function error: x failed, error code is 207001", LIBRARY, False),
        (RUNTIME, "Last error:\nFailed to CUDA calloc async 1920 bytes", LIBRARY, False),
        (RUNTIME, "DefaultCPUAllocator: not enough memory: you tried to", HOST, True),
        (RUNTIME, MAPPED, HOST, True),
        ("builtins.MemoryError", "", HOST, True),
        ("builtins.MemoryError", "std::bad_alloc", HOST, True),
        (NUMPYS, NUMPY, HOST, True),
        ("builtins.OSError", "[Errno 12] Cannot allocate memory", HOST, True),
        (RUNTIME, NO_ROOM, SHARED, False),
        (RUNTIME, "unable to open shared memory object </torch_1> in read-write mode", None, False),
        ("builtins.OSError", "[Errno 28] No space left on device", "disk-full", False),
        (RUNTIME, "CUDA error: device-side assert triggered", "kernel-assertion-failed", False),
    ],
)
def test_whose_memory_it_was(
    exception: str, message: str, expected: str | None, of_host: bool
) -> None:
    """Torch's exception name ends like Python's; neither NPU nor ROCm memory is the host's."""
    one = record(exception, message)
    assert entries(one) == ([] if expected is None else [expected])
    assert is_of_host(one) is of_host


@pytest.mark.parametrize(
    ("message", "signal", "kills", "expected"),
    [
        ("", 9, 1, True),
        ("", 9, 0, False),
        ("", 15, 1, False),
        ("DataLoader worker (pid(s) 30334) exited unexpectedly", None, 1, True),
        ("DataLoader worker (pid 22358) is killed by signal: Killed. ", None, 1, True),
        ("DataLoader worker (pid(s) 30334) exited unexpectedly", None, 0, False),
        ("an unrelated bug", None, 1, False),
    ],
)
def test_the_out_of_memory_killer(
    message: str, signal: int | None, kills: int, expected: bool
) -> None:
    """Kills of a worker or its data loader count; other kills on the host don't."""
    one = record("RuntimeError" if message else "", message, signal=signal, oom_kills=kills)
    assert (entries(one) == ["host-out-of-memory-killed"]) is expected
    assert is_of_host(one) or not expected


def test_a_neighbours_kill_makes_no_host_of_an_accelerator() -> None:
    """The kernel counts kills on the whole host, also of other jobs."""
    assert not is_of_host(record("torch.OutOfMemoryError", "CUDA out of memory.", oom_kills=3))


def test_a_full_dev_shm_is_told_by_the_log() -> None:
    """A data loader's bus error is logged; measured with torch 2.13."""
    said = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient"
    log = (f"{said} shared memory (shm).",)
    message = "DataLoader worker (pid(s) 30336) exited unexpectedly"
    assert entries(record("builtins.RuntimeError", message, log_tail=log)) == [
        "shared-memory-exhausted"
    ]
    assert entries(record("", "", signal=7, log_tail=log)) == ["shared-memory-exhausted"]
    assert entries(record("builtins.ValueError", "a bug", log_tail=log)) == []


@pytest.mark.parametrize("value", ["no", "false", "'9'"])
def test_the_killer_strikes_or_is_left_out(value: str, tmp_path: Path) -> None:
    """`oom_kill: false` would match every failure, so it is rejected."""
    path = tmp_path / "sample.md"
    path.write_text(
        GOOD.replace("{exception: RuntimeError, message: 'words of it'}", f"{{oom_kill: {value}}}")
    )
    with pytest.raises(DocumentError, match="oom_kill is true or left out"):
        read_entry(path)


LIMITED = """
import json, resource, sys
from safe_launch.evidence import from_memory
before = from_memory.seen()
resource.setrlimit(resource.RLIMIT_{kind}, ({most}, resource.RLIM_INFINITY))
try:
    bytearray(4 * 2**30)
except MemoryError as error:
    assert from_memory.is_about_memory(error, str(error))
assert "torch" not in sys.modules
print(json.dumps([before, from_memory.seen()]))
"""


def told_under(kind: str, most: int) -> tuple[dict[str, int], dict[str, int]]:
    """A process's own numbers before and under a limit."""
    script = LIMITED.format(kind=kind, most=most)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    return before, after


def test_what_a_process_tells_of_itself() -> None:
    """Data size, resident part and limit, without torch."""
    before, after = told_under("DATA", 2 * GIB)
    assert "data_limit" not in before
    assert after["data_limit"] == 2 * GIB
    assert 0 < after["data"] < after["addresses"]
    assert 0 < after["resident"] <= after["resident_peak"]


def test_a_limit_of_addresses_is_one_of_data() -> None:
    """`ulimit -v` includes mapped files; the rest is the data's limit."""
    _, after = told_under("AS", 3 * GIB)
    assert after["data_limit"] == 3 * GIB - (after["addresses"] - after["data"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1073741824\n", {"cgroup_limit": GIB}), ("9223372036854771712\n", {}), ("max\n", {})],
    ids=["limited", "version 1", "version 2"],
)
def test_no_limit_is_no_number(
    text: str, expected: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both cgroup versions can state that there is no limit."""
    (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(from_memory, "LIMITS", (str(tmp_path / "memory.max"),))
    seen = from_memory.seen()
    assert {name: size for name, size in seen.items() if name == "cgroup_limit"} == expected


class Device:
    """A stand-in for `torch.cuda` after a failure, in a given state."""

    def __init__(self, *, initialized: bool = True, answers: bool = True) -> None:
        self.initialized, self.answers = initialized, answers

    def is_initialized(self) -> bool:
        """Whether the device was used."""
        return self.initialized

    def memory_allocated(self) -> int:
        """Bytes in tensors."""
        return 5

    def max_memory_allocated(self) -> int:
        """The peak of the bytes in tensors."""
        return 7

    def memory_reserved(self) -> int:
        """Bytes that the allocator holds."""
        return 8

    def mem_get_info(self) -> tuple[int, int]:
        """Free and total bytes by the driver."""
        if not self.answers:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return 1, 10


class Torch:
    """A stand-in for an imported torch."""

    def __init__(self, **devices: Device) -> None:
        for name, device in devices.items():
            setattr(self, name, device)


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        (Torch(cuda=Device()), {"allocated": 5, "peak": 7, "reserved": 8, "free": 1, "total": 10}),
        (Torch(cuda=Device(answers=False)), {"allocated": 5, "peak": 7, "reserved": 8}),
        (Torch(cuda=Device(initialized=False)), {}),
        (Torch(cuda=Device(initialized=False), npu=Device(answers=False)), {"allocated": 5}),
        (Torch(), {}),
    ],
    ids=["whole", "broken", "untouched", "npu", "none"],
)
def test_what_a_device_tells(
    torch: Torch, expected: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an initialized device is queried; values before an error are kept."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    seen = from_memory.seen()
    assert expected.items() <= seen.items()
    assert expected != {} or "allocated" not in seen


def test_the_field_survives_the_passage() -> None:
    """A record is sent as JSON; an older worker's lacks this field."""
    raw = {"rank": 0, "at": 1.0, "memory": {"data": 5}}
    assert msgspec.convert(raw, FailureRecord).memory == {"data": 5}
    assert msgspec.convert({"rank": 0, "at": 1.0}, FailureRecord).memory == {}
