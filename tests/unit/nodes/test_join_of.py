"""A node's description of itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.core.request import LaunchRequest, Limits
from safe_launch.core.settings import Setting
from safe_launch.nodes.connection import encoded
from safe_launch.nodes.rendezvous import join_of
from support.worlds import HARDWARE


def digest(script: Path | str, *arguments: str) -> tuple[str, str]:
    """The digest of the script and its arguments."""
    joined = join_of(LaunchRequest(str(script), False, arguments, 2, "--nproc 2"), HARDWARE, {})
    return joined.script, joined.arguments


def test_a_folder_is_its_main(tmp_path: Path) -> None:
    """Python runs its `__main__.py`."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "__main__.py").write_text("pass\n")
    (tmp_path / "same.py").write_text("pass\n")
    assert digest(tmp_path / "one") == digest(tmp_path / "same.py")


def test_what_it_never_changes(tmp_path: Path) -> None:
    """Only the settings: paths aren't sent."""
    (tmp_path / "train.py").write_text("pass\n")
    limits = Limits(never_changed=((Setting.ZERO_STAGE, "never-change in /etc/safe-launch"),))
    script = str(tmp_path / "train.py")
    joined = join_of(LaunchRequest(script, False, (), 2, "", limits=limits), HARDWARE, {})
    assert joined.never_changed == (Setting.ZERO_STAGE,)
    assert b"/etc" not in encoded(joined)


@pytest.mark.parametrize("kind", ["pipe", "gone", "device"])
def test_a_script_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    """A pipe without a writer doesn't block."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    with pytest.raises(LaunchError, match=f"{kind} can't be read: "):
        digest(tmp_path / kind)


@pytest.mark.skipif(sys.getfilesystemencoding() != "utf-8", reason="names are bytes here")
def test_names_and_arguments_of_any_bytes(tmp_path: Path) -> None:
    """The kernel allows any bytes."""
    (path := tmp_path / os.fsdecode(b"\xff.py")).write_text("pass\n")
    assert len({digest(path, os.fsdecode(b"--a=\xff")), digest(path, "--a=b")}) == 2
