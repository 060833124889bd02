"""The files below a folder, within limits; omitted ones are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safe_launch.system import files_below


def test_files_and_folders(tmp_path: Path) -> None:
    """A named file counts anywhere; links to folders aren't followed."""
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("b/c/two", "b/one", "alone"):
        (tmp_path / name).write_text("")
    (tmp_path / "b" / "c" / "up").symlink_to(tmp_path)
    found = files_below.find([tmp_path / "alone", tmp_path / "b"])
    names = [str(path.relative_to(tmp_path)) for path in found.files]
    assert names == ["alone", "b/c/two", "b/c/up", "b/one"]
    assert found.left_out == ()


def test_how_deep(tmp_path: Path) -> None:
    """Deeper folders are reported."""
    (tmp_path / "1" / "2" / "3").mkdir(parents=True)
    (tmp_path / "1" / "2" / "near").write_text("")
    (tmp_path / "1" / "2" / "3" / "far").write_text("")
    found = files_below.find([tmp_path], deepest=2)
    assert found.files == (tmp_path / "1" / "2" / "near",)
    assert found.left_out == (f"{tmp_path}/1/2/3 is left out: deeper than 2 folders",)
    (tmp_path / "1" / "2" / "4").mkdir()
    (said,) = files_below.find([tmp_path], deepest=2).left_out
    assert said.endswith(" and 1 other folder are left out: deeper than 2 folders")


def test_how_many(tmp_path: Path) -> None:
    """The nearest files count; the others aren't even listed."""
    (tmp_path / "below").mkdir()
    for number in range(3):
        (tmp_path / str(number)).write_text("")
        (tmp_path / "below" / str(number)).write_text("")
    found = files_below.find([tmp_path], most=5)
    assert len(found.files) == 4
    assert {tmp_path / str(number) for number in range(3)} < {*found.files}
    said = f"{tmp_path} holds more files and folders than 5: the others are left out"
    assert found.left_out == (said,)


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported, and the others are read."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "log").write_text("")
    scandir = os.scandir

    def refused(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    found = files_below.find([tmp_path])
    assert found.files == (tmp_path / "open" / "log",)
    assert found.left_out == (f"{tmp_path}/closed is left out: not readable",)
