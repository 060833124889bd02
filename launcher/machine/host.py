"""CPU cores and memory available to this job, within its cgroups' limits."""

from __future__ import annotations

import ipaddress
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from ..system import cgroups

MEMORY = Path("/proc/meminfo")


def cores(root: Path = cgroups.ROOT, membership: Path = cgroups.MEMBERSHIP) -> int:
    """Number of CPU cores available to this process by affinity and cgroup quotas."""
    allowed = len(os.sched_getaffinity(0))
    quotas = [int(quota) for quota in _quotas(root, membership)]
    return max(1, min([allowed, *quotas]))


def _quotas(root: Path, membership: Path) -> Iterator[float]:
    """Limits of cgroups, in cores: cpu.max (v2), cpu.cfs_quota_us (v1)."""
    for folder in cgroups.folders("cpu", root, membership):
        numbers = _numbers(folder / "cpu.max")
        if not numbers:
            quota, period = (
                _numbers(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")
            )
            numbers = quota + period
        if len(numbers) == 2 and min(numbers) > 0:
            yield numbers[0] / numbers[1]


def memory(root: Path = cgroups.ROOT, membership: Path = cgroups.MEMBERSHIP) -> int:
    """Bytes of memory available to this job: the host's, or a lower cgroup limit."""
    lines = _text(MEMORY).splitlines()
    limits = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")]
    for folder in cgroups.folders("memory", root, membership):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [limit for limit in _numbers(folder / name) if limit > 0]
    return min(limits)


def free_memory(root: Path = cgroups.ROOT, membership: Path = cgroups.MEMBERSHIP) -> float:
    """The share of free or reclaimable memory of the host, or a cgroup with less."""
    host = _fields(MEMORY)
    shares = [host["MemAvailable:"] / host["MemTotal:"]] if "MemAvailable:" in host else []
    for folder in cgroups.folders("memory", root, membership):
        cache = _fields(folder / "memory.stat").get("inactive_file", 0)
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            for limit in filter(None, _numbers(folder / most)):
                shares += [1 - (usage - cache) / limit for usage in _numbers(folder / used)]
    return min(shares, default=1.0)


def _numbers(path: Path) -> list[int]:
    """The numbers in a file; empty if any word isn't a number, e.g. `max 100000`."""
    words = _text(path).split()
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else []


def _fields(path: Path) -> dict[str, int]:
    """The named numbers in a file."""
    lines = [line.split() for line in _text(path).splitlines()]
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def make_room(descriptors: int) -> int:
    """Raises the limit of open descriptors if needed; returns the limit.

    Raises the soft limit as needed, at most to the hard limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        most = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return descriptors


def interface_of(address: str) -> str | None:
    """Name of the network interface with an address, if any."""
    import psutil

    return next(
        (
            str(name)
            for name, addresses in psutil.net_if_addrs().items()
            if any(entry.address.partition("%")[0] == address for entry in addresses)
        ),
        None,
    )


def is_known_as_loopback() -> bool:
    """Whether this host's name resolves to a loopback address, or not at all.

    Debian's installer writes `127.0.1.1 NAME` into /etc/hosts.
    """
    try:
        addresses = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return True
    return ipaddress.ip_address(str(addresses[0][4][0]).partition("%")[0]).is_loopback


def oom_kills() -> int:
    """Number of out-of-memory kills on this host, including cgroup limits.

    0 if the kernel doesn't count them (before Linux 4.13).
    """
    lines = _text(Path("/proc/vmstat")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def physical_cores(topology: Path = Path("/sys/devices/system/cpu")) -> tuple[int, ...]:
    """CPU cores available to this process, each by its first thread's number."""
    allowed = sorted(os.sched_getaffinity(0))
    first: dict[str, int] = {}
    for number in allowed:
        siblings = _text(topology / f"cpu{number}" / "topology" / "thread_siblings_list").strip()
        first.setdefault(siblings or str(number), number)
    return tuple(sorted(first.values()))
