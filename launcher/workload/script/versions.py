"""Installed versions of packages."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def installed(names: Iterable[str]) -> dict[str, str]:
    """Installed versions by distribution name, without importing anything."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
