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
