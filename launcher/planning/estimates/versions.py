"""Compares installed versions of packages."""

from __future__ import annotations

import re

from ...core.workload import Workload


def is_at_least(workload: Workload, name: str, major: int, minor: int) -> bool:
    """Whether a package is known to have at least this version."""
    found = re.match(r"(\d+)\.(\d+)", workload.versions.get(name, ""))
    return found is not None and (int(found[1]), int(found[2])) >= (major, minor)
