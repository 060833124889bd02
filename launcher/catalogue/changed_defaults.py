"""Defaults silently changed by releases, which affect old scripts after an upgrade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..core.constraint import Point, Term
from ..core.workload import Earlier
from ..system.regular_files import text_of
from ..system.typed_files import MISSING, read_document
from .conditions import Place
from .reader import read_terms

FILE = Path(__file__).with_name("changed_defaults.yaml")


class ChangedDefault(Struct, frozen=True, forbid_unknown_fields=True):
    """A default changed by a release.

    Attributes:
        package: the distribution.
        since: the first version with the new default.
        when: conditions of affected runs, which `changed_defaults` parses.
        before: the old default's effect, as a clause.
        now: the new default's effect, as a clause.
        keep: how a script keeps the old behaviour, as a clause.
        source: source of both effects.
    """

    package: str
    since: str
    when: dict[str, Any]
    before: str
    now: str
    keep: str
    source: str


@dataclass(frozen=True, slots=True)
class _Document:
    changes: list[ChangedDefault] = MISSING  # type: ignore[assignment]


@cache
def changed_defaults() -> tuple[tuple[ChangedDefault, tuple[Term, ...]], ...]:
    """All known changed defaults, with the conditions of affected runs."""
    text = text_of(FILE)
    place = Place(FILE, "changes", text)
    return tuple(
        (default, read_terms(place.item(number), default.when))
        for number, default in enumerate(read_document(FILE, text, _Document).changes)
    )


def upgrade_sentences(
    earlier: Earlier | None, versions: Mapping[str, str], point: Point
) -> tuple[str, ...]:
    """A sentence per default that changed since an earlier run and affects this one."""
    if earlier is None or earlier.versions == versions:
        return ()
    return tuple(
        f"{default.package} {versions[default.package]} "
        f"({earlier.versions[default.package]} in {earlier.source}): "
        f"before {default.since} {default.before}, now {default.now}; {default.keep}"
        for default, conditions in changed_defaults()
        if _is_between(
            default.since, earlier.versions.get(default.package), versions.get(default.package)
        )
        and all(term.holds(point) for term in conditions)
    )


def _is_between(since: str, before: str | None, now: str | None) -> bool:
    """Whether an upgrade reached a version; False if a version is unknown or invalid."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(before or "") < Version(since) <= Version(now or "")
    except InvalidVersion:
        return False
