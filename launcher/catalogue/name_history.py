"""Since which version a package has a name, or has it no more."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .removed_names import gone_since


@dataclass(frozen=True, slots=True)
class History:
    """When a name came or went; one of the two is empty.

    Attributes:
        came: the first version that has it.
        gone: the first version that has it no more.
    """

    came: str = ""
    gone: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """Names that came with a version, and that older ones lack."""

    package: str
    since: str
    names: str
    source: str


ADDED: tuple[Added, ...] = ()


def history_of(package: str, name: str) -> History | None:
    """When a name of a package came or went; None where that isn't known.

    Args:
        package: import name.
        name: of a module below the package, a class, a function, an attribute, an argument.
    """
    if (gone := gone_since(package, name)) is not None:
        return History(gone=gone)
    for row in ADDED:
        if row.package == package and re.fullmatch(row.names, name):
            return History(came=row.since)
    return None
