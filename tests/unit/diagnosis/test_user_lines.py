"""The user's lines that caused a failure, and the files that may be opened to find them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Finding, Role
from safe_launch.diagnosis.root_cause import spots_of
from safe_launch.evidence.failure_record import FailureRecord
from support.attempts import entry_of
from support.worlds import REQUEST

ENTRY = entry_of("zero3-device-map")
LINE = 'model = AutoModel.from_pretrained("x", device_map="auto")\n'


def lines(record: FailureRecord, script: Path) -> list[int]:
    """The line numbers."""
    request = replace(REQUEST, script=str(script))
    found = spots_of(Finding(record, Role.INITIATING, ENTRY), request)
    return [spot.line for spot in found]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A training with the fault in line 2, outside the working directory."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = tmp_path / "own" / "train.py"
    path.parent.mkdir()
    path.write_text(f"from transformers import AutoModel\n{LINE}")
    return path


def test_the_line_is_found(script: Path) -> None:
    """Only the files that the worker reported are searched."""
    record = FailureRecord(0, 1.0, user_files=(str(script),))
    assert lines(record, script) == [2]
    assert lines(replace(record, user_files=()), script) == []


def test_what_another_node_names_is_opened_only_if_it_is_the_trainings(
    script: Path, tmp_path: Path
) -> None:
    """The record comes over the network."""
    foreign, data = tmp_path / "foreign.py", script.with_name("data.txt")
    for path in (foreign, data):
        path.write_text(LINE)
    there = FailureRecord(0, 1.0, host="beta", user_files=(str(script), str(foreign), str(data)))
    assert lines(there, script) == [2]
    sneaking = replace(there, user_files=(str(script.parent / ".." / "foreign.py"), "\0"))
    assert lines(sneaking, script) == []


def test_what_nothing_points_at_has_no_lines(script: Path) -> None:
    """The failure is unknown, or its entry has no search."""
    record = FailureRecord(0, 1.0, user_files=(str(script),))
    for entry in (None, replace(ENTRY, points_at=None)):
        assert spots_of(Finding(record, Role.INITIATING, entry), REQUEST) == ()
