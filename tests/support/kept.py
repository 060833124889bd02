"""What the reproductions' workers sent when they last failed, kept for every later catalogue.

A file each in `tests/records/STACK/`: the versions, what each failed rank sent, and the end of what
every rank printed.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from safe_launch.evidence.failure_record import FailureRecord

from support.stacks import ROOT
from support.warm_python import Ended

FOLDER = ROOT / "tests" / "records"
LINES = 60
"""Of what a rank has printed, so many of the last lines."""
PLACES = {
    str(ROOT): "/job",
    sys.base_prefix: "/usr",
    str(Path.home()): "/home/user",
    socket.gethostname(): "node",
}
"""What of this machine isn't kept, and what stands for it."""


@dataclass(frozen=True)
class Kept:
    """What became of a reproduction.

    Attributes:
        id: the known failure that it provokes.
        stack: the environment that it ran in.
        versions: of the frameworks there.
        records: of the ranks that failed.
    """

    id: str
    stack: str
    versions: Mapping[str, str]
    records: tuple[FailureRecord, ...]


def path_of(name: str, stack: str) -> Path:
    """Where the record of a reproduction is."""
    return FOLDER / stack / f"{name}.json"


def write(name: str, stack: str, ended: Ended) -> None:
    """Keeps what became of a reproduction."""
    records = [{**told, "log_tail": ()} for told in ended.records]
    printed = [output.splitlines()[-LINES:] for output in ended.outputs]
    document = {"versions": ended.versions, "records": records, "printed": printed}
    text = json.dumps(document, indent=1, ensure_ascii=False)
    for place, other in PLACES.items():
        text = text.replace(place, other)
    path = path_of(name, stack)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def read(path: Path) -> Kept:
    """A record that was written."""
    document = json.loads(path.read_text())
    printed = document["printed"]
    told = [{**each, "log_tail": printed[each["rank"]]} for each in document["records"]]
    records = msgspec.convert(told, tuple[FailureRecord, ...])
    return Kept(path.stem, path.parent.name, document["versions"], records)


def read_all() -> Iterator[Kept]:
    """All records."""
    return (read(path) for path in sorted(FOLDER.glob("*/*.json")))
