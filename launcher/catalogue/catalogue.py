"""The known failures of a launch, loaded lazily."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from . import reader
from .entry import KnownFailure


@dataclass(frozen=True)
class Catalogue:
    """Known failures that affect the installed versions.

    Attributes:
        site_entries: a cluster's entries in addition to the shipped ones.
        versions: versions of installed packages, by name.
    """

    site_entries: Sequence[KnownFailure]
    versions: Mapping[str, str]

    @cached_property
    def on_plans(self) -> Sequence[KnownFailure]:
        """Entries that can apply to a plan before any failure, and the cluster's."""
        shipped = reader.read_catalogue(for_plan=True)
        return self._concerning([*shipped, *self.site_entries])

    @cached_property
    def entries(self) -> Sequence[KnownFailure]:
        """All entries, the shipped ones and the cluster's."""
        return self._concerning([*reader.read_catalogue(), *self.site_entries])

    def named(self, name: str) -> KnownFailure | None:
        """An entry by name; None if missing or irrelevant to the versions."""
        matching = [entry for entry in self.site_entries if entry.id == name]
        shipped = reader.shipped(name)
        read = [] if shipped is None else [shipped]
        return next(iter(self._concerning(matching or read)), None)

    def _concerning(self, entries: Iterable[KnownFailure]) -> Sequence[KnownFailure]:
        return tuple(entry for entry in entries if reader.concerns(entry, self.versions))
