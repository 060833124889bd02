"""Workers' records of provoked failures are still diagnosed correctly."""

from __future__ import annotations

from safe_launch.catalogue.entry import KnownFailure
from safe_launch.catalogue.reader import concerns, read_catalogue
from safe_launch.diagnosis.root_cause import diagnose
from support import kept, reproduce

CATALOGUE = read_catalogue()


def test_every_record_is_diagnosed_as_its_entry() -> None:
    """Today's catalogue is used with the versions of the recording."""
    concerned: dict[str, tuple[KnownFailure, ...]] = {}
    wrong = []
    for record in kept.read_all():
        versions = str(sorted(record.versions.items()))
        if versions not in concerned:
            found = (entry for entry in CATALOGUE if concerns(entry, record.versions))
            concerned[versions] = tuple(found)
        entry = diagnose(record.records, concerned[versions]).root.entry
        if entry is None or entry.id != record.id:
            wrong.append((record.stack, record.id, entry and entry.id))
    assert wrong == []


def test_every_reproduction_has_its_records() -> None:
    """`scripts/test --training` writes new records; no others exist."""
    wanted = {(script.id, stack) for script in reproduce.scripts() for stack in script.stacks}
    assert {(record.id, record.stack) for record in kept.read_all()} == wanted
