"""Finds versions of packages in a failure's evidence or installation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

from ..evidence.failure_record import FailureRecord
from .package_names import DISTRIBUTIONS, PACKAGES

IMPORTED_AS = {
    name.lower().replace("-", "_"): imported for imported, name in reversed(DISTRIBUTIONS.items())
} | {name: name for name in PACKAGES}
"""Import names, by distribution name in lower case."""
NAMES = "|".join(sorted((name.replace("_", "[-_]") for name in IMPORTED_AS), key=len, reverse=True))
NAMED = re.compile(
    rf"(?<![\w./-])(?P<name>{NAMES})(?:[\s:=,'\"`(]*(?:info|version|library)\b)*[\s:=,'\"`(v-]*"
    r"(?P<version>\d+\.\d+\.\d+(?:\.?(?:post|rc|dev|a|b)\d+)?)(?!\w|\.\d)",
    re.IGNORECASE,
)
"""A package followed by a version, as written by loggers, `pip list` and people."""
IN_PATH = re.compile(rf"/(?P<name>{NAMES})-(?P<version>\d+\.\d+(?:\.\d+)?)[^/]*/", re.IGNORECASE)
"""An egg's folder, or a source tree's with its version."""
SITE = re.compile(r"(?P<site>.*/(?:site|dist)-packages)/")


def versions_of(record: FailureRecord) -> Mapping[str, str]:
    """Known package versions, by import name.

    A worker's report counts most, then the installation in the traceback's folder (if on this
    machine), then the log.
    """
    texts = [*record.log_tail, record.message, *(frame.file for frame in record.frames)]
    in_log: dict[str, str] = {}
    for text in texts:
        for pattern in (IN_PATH, NAMED):
            for match in pattern.finditer(text):
                in_log[import_name(match["name"])] = match["version"]
    here = {import_name(name): dist.version for name, dist in installed(record).items()}
    versions = {import_name(name): version for name, version in record.versions.items()}
    return in_log | here | versions


def installed(record: FailureRecord) -> Mapping[str, Distribution]:
    """Known packages in the folder of the traceback's files; empty if it isn't here."""
    sites = {place["site"] for frame in record.frames if (place := SITE.match(frame.file))}
    distributions: dict[str, Distribution] = {}
    for site in sites:
        for info in sorted(Path(site).glob("*.dist-info")):
            name = import_name(info.name.partition("-")[0])
            if name in PACKAGES:
                distributions[name] = PathDistribution(info)
    return distributions


def import_name(distribution: str) -> str:
    """The import name of a distribution."""
    name = distribution.lower().replace("-", "_")
    return IMPORTED_AS.get(name, name)
