"""The corpus of logs: the right root cause for each, none for healthy ones, no guesses."""

from __future__ import annotations

import csv
from pathlib import Path

from safe_launch.catalogue.reader import read_catalogue
from safe_launch.commands.diagnose import read
from safe_launch.logs import files
from safe_launch.logs.judgement import Judgement, Verdict
from safe_launch.logs.verdict import decisive
from support.stacks import TESTS
from support.tables import table

FOLDER = TESTS / "logs"
CATALOGUE = read_catalogue()
with (FOLDER / "index.csv").open(encoding="utf-8", newline="") as index:
    ROWS = list(csv.DictReader(index))


def judged(path: Path) -> Judgement:
    """The diagnosis of a log or of a folder of logs."""
    return decisive(read(files.find_logs([str(path)]).paths, CATALOGUE))


@table("row", ROWS, name=lambda row: row["file"], parts=4)
def test_the_root_cause(row: dict[str, str]) -> None:
    """It is the cause in the index, which a person wrote."""
    judgement = judged(FOLDER / row["file"])
    match row["root"]:
        case "none":
            assert judgement.verdict is Verdict.HEALTHY
        case "unknown" | "unfinished" as verdict:
            assert judgement.verdict is Verdict(verdict)
        case name:
            assert judgement.root is not None
            assert judgement.root.finding.entry is not None, judgement.root.finding.record.message
            assert judgement.root.finding.entry.id == name


def test_the_index_is_of_these_logs() -> None:
    """Every log has a row, and all kinds are represented."""
    assert {row["file"] for row in ROWS} == {
        path.name for path in FOLDER.iterdir() if path.suffix == ".log" or path.is_dir()
    }
    assert len(ROWS) >= 80
    known = {entry.id for entry in CATALOGUE}
    assert {row["root"] for row in ROWS} <= known | {"none", "unknown", "unfinished"}
    assert sum(row["root"] in ("none", "unknown") for row in ROWS) >= 12
    assert sum(row["loudest_is_root"] == "no" for row in ROWS) >= len(ROWS) / 4
