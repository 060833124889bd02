"""Stores an attempt's findings in its folder: `checks.json`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from ..core.errors import Refused
from ..system import private_files, typed_files
from ..system.redaction import redacted
from .between_attempts import Begun
from .finding import MOST, Check, Finding
from .resumed import Noted

FILE = "checks.json"
BEGUN = "begun.json"
"""Record to compare with a later attempt of the run."""
SAVES = "saves.json"
"""Record to compare with a later run that resumes."""
RUNS = 200
"""Maximum attempt files to search for a save."""


class Document(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        findings: in order of arrival.
        skipped: reasons by name of the skipped check.
    """

    findings: tuple[Finding, ...] = ()
    skipped: dict[Check, tuple[str, ...]] = {}


class Kept:
    """Distinct findings so far with their ranks, bounded in number."""

    def __init__(self) -> None:
        self._findings: dict[tuple[object, ...], Finding] = {}
        self._skipped: dict[Check, tuple[str, ...]] = {}

    def add(self, finding: Finding) -> bool:
        """Adds a finding; returns whether it is new."""
        held = self._findings.get(finding.identity)
        if held is not None:
            ranks = tuple(sorted({*held.ranks, *finding.ranks}))
            self._findings[finding.identity] = replace(held, ranks=ranks)
            return False
        if len(self._findings) >= MOST:
            return False
        self._findings[finding.identity] = finding
        return True

    def has(self, check: Check) -> bool:
        """Whether a check has any finding."""
        return any(finding.check is check for finding in self._findings.values())

    def __getitem__(self, identity: tuple[object, ...]) -> Finding:
        return self._findings[identity]

    def skip(self, check: Check, why: str) -> bool:
        """Adds the reason to skip a check; returns whether it is new."""
        known = self._skipped.get(check, ())
        if why in known or len(known) >= MOST:
            return False
        self._skipped[check] = (*known, why)
        return True

    def skipped(self, check: Check) -> tuple[str, ...]:
        """Reasons to skip a check; empty if it runs."""
        return self._skipped.get(check, ())

    @property
    def document(self) -> Document:
        """The findings and skipped checks."""
        return Document(tuple(self._findings.values()), dict(self._skipped))


def write(folder: Path, kept: Kept) -> None:
    """Writes the findings into an attempt's folder.

    Raises:
        OSError: the write failed, e.g. the disk is full; the old file stays.
    """
    text = msgspec.json.format(msgspec.json.encode(kept.document), indent=1).decode()
    private_files.replace(folder / FILE, f"{redacted(text)}\n".encode())


def read(folder: Path) -> Document:
    """Reads an attempt's findings; none if the file is missing or unreadable."""
    document = typed_files.read_json(folder / FILE, Document)
    return Document() if isinstance(document, Refused) else document


def reported_before(folder: Path) -> set[tuple[object, ...]]:
    """Identities of the findings of a run's other attempts, which an attempt doesn't repeat."""
    others = (other for other in folder.parent.glob("attempt-*") if other != folder)
    return {finding.identity for other in others for finding in read(other).findings}


def write_begun(folder: Path, begun: Begun) -> None:
    """Writes the record of an attempt's first steps into its folder.

    Raises:
        OSError: as `write`.
    """
    private_files.replace(folder / BEGUN, msgspec.json.encode(begun))


def read_begun(folder: Path) -> Begun:
    """Reads the record of an attempt's first steps; empty if missing or unreadable."""
    begun = typed_files.read_json(folder / BEGUN, Begun)
    return Begun() if isinstance(begun, Refused) else begun


def write_saves(folder: Path, saves: Mapping[str, Noted]) -> None:
    """Writes an attempt's last saves by path into its folder.

    Raises:
        OSError: as `write`.
    """
    last = dict(list(saves.items())[-MOST:])
    private_files.replace(folder / SAVES, msgspec.json.encode(last))


def find_save(runs: Path, path: str) -> Noted | None:
    """The last recorded save to a path in any of these runs."""
    times: list[tuple[float, Path]] = []
    for file in runs.glob(f"*/attempt-*/{SAVES}"):
        with suppress(OSError):
            times.append((file.stat().st_mtime, file))
    for _, file in sorted(times, reverse=True)[:RUNS]:
        saves = typed_files.read_json(file, dict[str, Noted])
        if not isinstance(saves, Refused) and path in saves:
            return saves[path]
    return None
