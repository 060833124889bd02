"""A worker's knowledge of memory at a failure."""

from __future__ import annotations

import mmap
import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from safe_launch.evidence import from_memory


@pytest.mark.parametrize(
    ("error", "is_about"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("Failed to CUDA calloc 6291456 bytes"), True),
        (RuntimeError("error code is 207001"), True),
        (ValueError("shapes differ"), False),
    ],
)
def test_what_is_about_memory(error: Exception, is_about: bool) -> None:
    """The exception's type or message decides."""
    assert from_memory.is_about_memory(error, str(error)) == is_about


def test_the_process_knows_itself() -> None:
    """The kernel's numbers, in bytes."""
    held = bytearray(32 << 20)
    seen = from_memory.seen()
    assert seen["resident_peak"] >= seen["resident"] > len(held)
    assert seen["addresses"] > seen["data"] == pytest.approx(from_memory.process_data(), rel=0.5)


def test_limits_of_the_process_and_its_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smaller of `ulimit -d` and `-v`; the first cgroup with a number."""
    limits = {resource.RLIMIT_DATA: 500, resource.RLIMIT_AS: 1000}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    files = [tmp_path / "memory.max", tmp_path / "limit_in_bytes"]
    monkeypatch.setattr(from_memory, "LIMITS", tuple(map(str, files)))
    held = {"addresses": 900, "data": 200}
    assert dict(from_memory._limits(held)) == {"data_limit": 300}
    limits[resource.RLIMIT_AS] = resource.RLIM_INFINITY
    files[0].write_text("max\n")
    files[1].write_text("4096\n")
    assert dict(from_memory._limits(held)) == {"data_limit": 500, "cgroup_limit": 4096}
    files[1].write_text(f"{2**63 - 4096}\n")
    limits[resource.RLIMIT_DATA] = resource.RLIM_INFINITY
    assert dict(from_memory._limits(held)) == {}


class Device:
    """A `torch.cuda` that fails once its allocator has been queried."""

    def is_initialized(self) -> bool:
        """Always true."""
        return True

    def memory_allocated(self) -> int:
        """The allocator's number."""
        return 1

    def max_memory_allocated(self) -> int:
        """The allocator's number."""
        return 2

    def memory_reserved(self) -> int:
        """The allocator's number."""
        return 3

    def mem_get_info(self) -> tuple[int, int]:
        """Fails."""
        raise RuntimeError("an illegal memory access was encountered")


def test_a_device_that_answers_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier values are kept, and nothing is raised."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Device()))
    seen = from_memory.seen()
    assert (seen["allocated"], seen["peak"], seen["reserved"]) == (1, 2, 3)
    assert "free" not in seen
    assert seen["data"] > 0


def test_the_most_that_a_process_has_held() -> None:
    """Freed memory counts; without growth of its addresses the peak is unknown."""
    before = from_memory.most_addresses()
    assert from_memory.peak(7, before) is None
    room = before - from_memory.seen()["addresses"] + (64 << 20)  # earlier tests may have had more
    mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE).close()
    seen = from_memory.peak(7, before)
    assert seen is not None
    assert seen[0] == pytest.approx(from_memory.process_data() + room, abs=8 << 20)
    assert seen[1] == 7


def test_the_most_that_a_device_has_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator's peak and memory outside of it; none if the device wasn't used."""
    device = Device()
    monkeypatch.setattr(device, "mem_get_info", lambda: (10, 113), raising=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=device))
    assert from_memory.peak(7, 1 << 60) == (102, 100)
    monkeypatch.setattr(device, "max_memory_allocated", lambda: 0, raising=False)
    assert from_memory.peak(7, 1 << 60) is None


def test_a_driver_is_not_asked_while_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator's counts are used; without a device, the process's memory."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(npu=Device()))
    assert from_memory.peak_so_far(7, 1 << 60) == (2, 0)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert from_memory.peak_so_far(7, 1 << 60) is None
    assert from_memory.peak_so_far(7, 0) == from_memory.peak(7, 0)
