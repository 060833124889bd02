"""Which version of a package is installed."""

from __future__ import annotations

import re

from ...core.workload import Workload


def is_at_least(workload: Workload, name: str, major: int, minor: int) -> bool:
    """Whether a package is known to be installed in this version or a later one."""
    found = re.match(r"(\d+)\.(\d+)", workload.versions.get(name, ""))
    return found is not None and (int(found[1]), int(found[2])) >= (major, minor)
