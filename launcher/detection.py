"""What is there on this host, found without torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from .machine import Accelerator, Hardware
from .profiles import read_profile
from .settings import Precision

DEVICES = {
    "cuda": (r"nvidia\d+", "CUDA_VISIBLE_DEVICES"),
    "npu": (r"davinci\d+", "ASCEND_RT_VISIBLE_DEVICES"),
}
"""Device files of each accelerator, and the variable that hides some of them."""


def accelerators(environment: Mapping[str, str], devices: Path = Path("/dev")) -> tuple[str, int]:
    """Kind and number of the accelerators that this job may use; `cpu` and 0 without any."""
    try:
        names = [path.name for path in devices.iterdir()]
    except OSError:
        names = []
    for kind, (pattern, variable) in DEVICES.items():
        count = sum(re.fullmatch(pattern, name) is not None for name in names)
        if variable in environment:
            listed = [
                one for one in environment[variable].split(",") if one.strip() not in ("", "-1")
            ]
            count = min(count, len(listed))
        if count:
            return kind, count
    return "cpu", 0


def cores() -> int:
    """Processor cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def oom_kills(statistics: Path = Path("/proc/vmstat")) -> int:
    """How often the out-of-memory killer has struck on this host, cgroups' limits included.

    0 where the kernel doesn't count (before Linux 4.13).
    """
    try:
        lines = statistics.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def detect() -> Hardware:
    """This host."""
    import psutil

    kind, count = accelerators(os.environ)
    device = Accelerator(
        name=kind,
        kind=kind,
        memory=0,
        taken=0,
        precisions=frozenset(Precision),
        compute=1e11,
        bandwidth=2e10,
        link=1e10,
        node_link=1e9,
        host_link=1e10,
        environment=MappingProxyType(dict(read_profile(kind).environment)),
        measured=False,
    )
    return Hardware(device, count, cores(), int(psutil.virtual_memory().total))
