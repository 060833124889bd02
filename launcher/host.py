"""What the host has for this job: processor cores and memory, within its cgroup's limits."""

from __future__ import annotations

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def cores(root: Path = CGROUPS) -> int:
    """Processor cores that this process may use: by its affinity, and by its cgroup's quota."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(root)
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _quota(root: Path) -> float | None:
    """Cores' worth of time that the cgroup may use; None without a limit."""
    second = _words(root / "cpu.max")
    if len(second) == 2 and second[0] != "max":
        return int(second[0]) / int(second[1])
    quota, period = (_words(root / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if quota and period and int(quota[0]) > 0:
        return int(quota[0]) / int(period[0])
    return None


def memory(root: Path = CGROUPS) -> int:
    """Bytes of memory that this job may use: the host's, or its cgroup's limit if that is less."""
    import psutil

    total = int(psutil.virtual_memory().total)
    limits = [
        int(words[0])
        for path in (root / "memory.max", root / "memory" / "memory.limit_in_bytes")
        if (words := _words(path)) and words[0].isdecimal()
    ]
    return min([total, *limits])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def oom_kills(statistics: Path = Path("/proc/vmstat")) -> int:
    """How often the out-of-memory killer has struck on this host, cgroups' limits included.

    0 where the kernel doesn't count (before Linux 4.13).
    """
    try:
        lines = statistics.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
