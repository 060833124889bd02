"""A launcher's record in its run directory: whether the launcher still runs."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from safe_launch.core.errors import Refused
from safe_launch.system.kept_runs import LauncherRecord, State, recorded, records


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LauncherRecord:
    """This process's own record while it runs; it began at 7."""
    monkeypatch.setattr(time, "time", lambda: 7.0)
    with recorded(tmp_path, 0, "train.py --lr 1"):
        (found,) = records(tmp_path)
    assert isinstance(found, LauncherRecord)
    return found


def test_it_says_where_and_since_when(own: LauncherRecord) -> None:
    """The record has host and start time while the launcher runs."""
    assert (own.node, own.pid, own.command) == (0, os.getpid(), "train.py --lr 1")
    assert own.host == os.uname().nodename
    assert own.begun == 7.0
    assert own.state is State.RUNNING


def test_an_end_is_recorded_whatever_it_is(tmp_path: Path) -> None:
    """After a launcher's error, too; no temporary file is left."""
    with pytest.raises(KeyError), recorded(tmp_path, 3, "train.py"):
        raise KeyError
    (found,) = records(tmp_path)
    assert isinstance(found, LauncherRecord)
    assert found.state is State.ENDED
    assert [path.name for path in tmp_path.iterdir()] == ["launcher-3.json"]


def test_an_end_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is still recorded, so the launcher doesn't count as killed."""

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with recorded(tmp_path, 0, "train.py"):
        size = (tmp_path / "launcher-0.json").stat().st_size
        monkeypatch.setattr("safe_launch.system.private_files.create", no_room)
    (found,) = records(tmp_path)
    assert isinstance(found, LauncherRecord)
    assert found.state is State.ENDED
    assert (tmp_path / "launcher-0.json").stat().st_size == size


def test_a_launcher_that_is_gone(own: LauncherRecord) -> None:
    """Its process ended, its pid was reused, or the host restarted."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert replace(own, pid=ended.pid).state is State.GONE
    assert replace(own, started=own.started + 1).state is State.GONE
    assert replace(own, place="another-boot pid:[1]").state is State.GONE


def test_a_launcher_that_isnt_seen_from_here(own: LauncherRecord) -> None:
    """It is on another host or in another container."""
    assert replace(own, place="another-boot pid:[1]", host="node7").state is State.ELSEWHERE
    assert replace(own, place=f"{own.boot} pid:[1]").state is State.ELSEWHERE


def test_records_are_by_node_and_what_cant_be_read_is_said(
    tmp_path: Path, own: LauncherRecord
) -> None:
    """Sorted by number; truncated files and other versions are reported."""
    for node in (2, 10):
        path = tmp_path / f"launcher-{node}.json"
        path.write_bytes(msgspec.json.encode(replace(own, node=node)))
    (tmp_path / "launcher-3.json").write_text('{"node": 3, "ho')
    (tmp_path / "launcher-x.json").write_text("{}")
    found = records(tmp_path)
    kinds = [one.sentence[-12:] if isinstance(one, Refused) else one.node for one in found]
    assert kinds == ["or is cut off"[-12:], 0, 2, "or is cut off"[-12:], 10]


def test_without_room_the_launcher_goes_on(tmp_path: Path) -> None:
    """A record that can't be written doesn't end a training."""
    with recorded(tmp_path / "gone", 0, "train.py"):
        pass
    assert records(tmp_path / "gone") == ()


def test_a_container_may_hide_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch continues, and the record shows whether its process runs."""

    def hidden(*_path: object, **_how: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", hidden)
    monkeypatch.setattr(Path, "readlink", hidden)
    with recorded(tmp_path, 0, "train.py"):
        (found,) = records(tmp_path)
        assert isinstance(found, LauncherRecord)
        assert found.state is State.RUNNING
