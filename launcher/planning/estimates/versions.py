"""Compares installed versions of packages."""

from __future__ import annotations

import re

from ...core.workload import Workload


def is_at_least(workload: Workload, name: str, major: int, minor: int) -> bool:
    """Whether a package is known to have at least this version."""
    version = re.match(r"(\d+)\.(\d+)", workload.versions.get(name, ""))
    return version is not None and (int(version[1]), int(version[2])) >= (major, minor)
