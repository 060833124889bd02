"""Installed packages: their versions and folders, without importing them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def package_folders(name: str) -> Iterator[Path]:
    """The folders of a package on the interpreter's path, without importing it."""
    folders = (Path(folder, name) for folder in ("", *sys.path))
    return (folder for folder in folders if (folder / "__init__.py").is_file())


def installed(names: Iterable[str]) -> dict[str, str]:
    """Installed versions by distribution name, without importing anything.

    Reads the folder names `NAME-VERSION.dist-info`, or `.egg-info` of old
    (packaging.python.org, "Recording installed projects"), as parsing the metadata takes 20 ms.
    """
    versions: dict[str, str] = {}
    for folder in sys.path:
        with suppress(OSError):
            for file in os.listdir(folder or "."):  # noqa: PTH208 - half the time
                stem, kind = os.path.splitext(file)  # noqa: PTH122
                if kind in (".dist-info", ".egg-info"):
                    name, _, version = stem.partition("-")
                    versions.setdefault(_normalized(name), version.partition("-")[0])
    present = [name for name in names if _normalized(name) in versions]
    return {name: versions[_normalized(name)] or _described(name) for name in present}


def _normalized(name: str) -> str:
    """Normalizes a distribution's name (packaging.python.org, "Names")."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _described(name: str) -> str:
    """The version in a distribution's metadata, for folder names without one."""
    from importlib import metadata

    return metadata.version(name)
