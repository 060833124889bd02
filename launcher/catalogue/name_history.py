"""Versions in which packages added or removed names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .removed_names import ADDED, gone_since

FILE = Path(__file__).with_name("name_history.txt")
"""Results of scripts/name-history from wheels."""


@dataclass(frozen=True, slots=True)
class History:
    """The two releases between which a package permanently added or removed a name.

    Attributes:
        has: a release with the name; empty if only the first without it is known.
        lacks: a release without the name.
        is_gone: whether it was removed, so only older releases have it.
    """

    has: str
    lacks: str
    is_gone: bool


def history_of(package: str, name: str) -> History | None:
    """When a package added or removed a name, if known.

    Args:
        package: import name.
        name: name of a submodule, class, function, attribute or argument.
    """
    if (gone := gone_since(package, name)) is not None:
        return History("", gone, is_gone=True)
    for row in ADDED:
        if row.package == package and name in row.names:
            return History(row.since, row.before, is_gone=False)
    return _histories(package).get(name)


def owners_of(name: str) -> tuple[str, ...]:
    """Packages that added or removed a name; only the owner, if known."""
    added = tuple(row.package for row in ADDED if name in row.names)
    return added or tuple(package for package in _packages() if name in _histories(package))


@cache
def _packages() -> tuple[str, ...]:
    """The packages of the file."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return tuple(dict.fromkeys(line.split()[0] for line in lines if line[0] not in "# "))


@cache
def _histories(package: str) -> Mapping[str, History]:
    """The histories of a package's names."""
    found: dict[str, History] = {}
    history: History | None = None
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            owner, *row = line.split()
            history = _history(row) if owner == package else None
        elif history is not None:
            found |= dict.fromkeys(line.split(), history)
    return found


def _history(row: list[str]) -> History:
    """Parses a line: gone or came, the release before, the release after."""
    kind, before, after = row
    is_gone = kind == "gone"
    has, lacks = (before, after) if is_gone else (after, before)
    return History(has, lacks, is_gone=is_gone)
