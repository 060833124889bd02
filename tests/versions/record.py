"""The record of what was run: docs/measured/versions.json, a value for each combination."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from support.stacks import ROOT

PATH = ROOT / "docs" / "measured" / "versions.json"


@dataclass(frozen=True)
class Record:
    """What a combination's last run has shown.

    Attributes:
        name: the combination's.
        date: of the run.
        commit: safe-launch's, with `+` where files had been changed.
        versions: of the interpreter and the packages, by name.
        results: by check; `ok` or what differed.
        seconds: of all checks.
    """

    name: str
    date: str
    commit: str
    versions: Mapping[str, str]
    results: Mapping[str, str]
    seconds: int


def read() -> dict[str, Record]:
    """All records, by the combination's name."""
    if not PATH.exists():
        return {}
    return {one["name"]: Record(**one) for one in json.loads(PATH.read_text(encoding="utf-8"))}


def keep(record: Record) -> None:
    """Puts a record in the place of the combination's last one."""
    records = {**read(), record.name: record}
    text = json.dumps([asdict(records[name]) for name in sorted(records)], indent=1)
    PATH.write_text(text + "\n", encoding="utf-8")
