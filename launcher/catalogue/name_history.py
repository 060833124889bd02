"""Versions in which packages added or removed names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("name_history.txt")
"""Results of scripts/name-history from archives on PyPI."""
MODULES = "."
"""The owner of modules' paths."""
SAME_NAMES = {"lightning": "pytorch_lightning"}
"""Packages with the names and versions of another."""


@dataclass(frozen=True, slots=True)
class History:
    """The two releases between which a package permanently added or removed a name.

    Attributes:
        has: a release with the name.
        lacks: a release without the name.
        is_gone: whether it was removed, so only older releases have it.
    """

    has: str
    lacks: str
    is_gone: bool


def history_of(package: str, name: str, owner: str = "") -> History | None:
    """When a package added or removed a name, if known.

    Args:
        package: import name.
        name: name of a submodule, class, function, attribute or argument.
        owner: path of the module below the package (the package's name for itself), class, or
            function that lacks it; `CLASS()` for an argument of a class, `MODULES` for a module.
    """
    known = _histories(SAME_NAMES.get(package, package))
    keys = (f"{owner}:{name}", f"{owner}():{name}", name)
    return next((known[key] for key in keys if key in known), None)


def owners_of(name: str) -> tuple[str, ...]:
    """Packages that added or removed a name."""
    return tuple(
        package
        for package, changes in _packages().items()
        if any(name in names for _, names in changes) and name in _histories(package)
    )


@cache
def _packages() -> Mapping[str, list[tuple[History, str]]]:
    """The changes of each package, with the names after each still as text."""
    changes: dict[str, list[tuple[History, str]]] = defaultdict(list)
    text = FILE.read_text(encoding="utf-8")
    for section in re.split(r"\n(?=\w)", text)[1:]:
        line, _, names = section.partition("\n")
        package, kind, before, after = line.split()
        is_gone = kind == "gone"
        has, lacks = (before, after) if is_gone else (after, before)
        changes[package].append((History(has, lacks, is_gone=is_gone), names))
    return changes


@cache
def _histories(package: str) -> Mapping[str, History]:
    """The histories of a package's names, `OWNER:NAME` for those of an owner."""
    histories: dict[str, History] = {}
    for history, names in _packages().get(package, ()):
        owner = ""
        for word in names.split():
            if word.endswith(":"):
                owner = word
            else:
                histories[owner + word] = history
    return histories
