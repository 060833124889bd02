"""Reading and replacing files named by the user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from safe_launch.core.errors import hint_of
from safe_launch.system import regular_files


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Its target is replaced and keeps its permissions; no other file changes."""
    (target := tmp_path / "target").write_text("old")
    target.chmod(0o4751)
    (link := tmp_path / "link").symlink_to("target")
    (tmp_path / "target.new").write_text("the user's")
    assert regular_files.overwrite(link, b"new") == target
    assert (link.readlink(), target.read_text()) == (Path("target"), "new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o4751
    assert {*os.listdir(tmp_path)} == {"link", "target", "target.new"}


def test_a_new_file_has_the_users_permissions(tmp_path: Path) -> None:
    """They follow the umask."""
    before = os.umask(0o027)
    try:
        regular_files.overwrite(tmp_path / "new", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_regular_files(tmp_path: Path, kind: str) -> None:
    """Others stay unchanged, and reads don't block."""
    path = tmp_path / kind
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    mode = path.stat().st_mode
    for action in (regular_files.read, lambda path: regular_files.overwrite(path, b"")):
        with pytest.raises(OSError, match="it isn't a regular file"):
            action(path)
    assert path.stat().st_mode == mode


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    """The limit isn't the process's own, so no hint on system limits is given."""
    (path := tmp_path / "large").write_bytes(b"12345")
    assert regular_files.read(path, 5) == b"12345"
    with pytest.raises(OSError, match="it is larger than") as caught:
        regular_files.read(path, 4)
    assert hint_of(caught.value) == ""


def test_files_and_folders(tmp_path: Path) -> None:
    """A named file counts anywhere; links to folders aren't followed."""
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("b/c/two", "b/one", "alone"):
        (tmp_path / name).write_text("")
    (tmp_path / "b" / "c" / "up").symlink_to(tmp_path)
    found = regular_files.files_below([tmp_path / "alone", tmp_path / "b"])
    names = [str(path.relative_to(tmp_path)) for path in found.files]
    assert names == ["alone", "b/c/two", "b/c/up", "b/one"]
    assert found.left_out == ()


def test_how_deep(tmp_path: Path) -> None:
    """Deeper folders are reported."""
    (tmp_path / "1" / "2" / "3").mkdir(parents=True)
    (tmp_path / "1" / "2" / "near").write_text("")
    (tmp_path / "1" / "2" / "3" / "far").write_text("")
    found = regular_files.files_below([tmp_path], deepest=2)
    assert found.files == (tmp_path / "1" / "2" / "near",)
    assert found.left_out == (f"{tmp_path}/1/2/3 is left out: deeper than 2 folders",)
    (tmp_path / "1" / "2" / "4").mkdir()
    (said,) = regular_files.files_below([tmp_path], deepest=2).left_out
    assert said.endswith(" and 1 other folder are left out: deeper than 2 folders")


def test_how_many(tmp_path: Path) -> None:
    """The nearest files count; the others aren't even listed."""
    (tmp_path / "below").mkdir()
    for number in range(3):
        (tmp_path / str(number)).write_text("")
        (tmp_path / "below" / str(number)).write_text("")
    found = regular_files.files_below([tmp_path], most=5)
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
    found = regular_files.files_below([tmp_path])
    assert found.files == (tmp_path / "open" / "log",)
    assert found.left_out == (f"{tmp_path}/closed is left out: not readable",)
