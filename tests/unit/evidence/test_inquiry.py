"""The folder of the workers' sockets."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest
from safe_launch.evidence import inquiry


def test_a_folder_of_this_user(tmp_path: Path) -> None:
    """However long its path is, a socket can be made there; nothing is left."""
    attempt = tmp_path / ("a-long-name-" * 12)
    attempt.mkdir()
    with inquiry.socket_folder(attempt, 3) as folder:
        assert folder.parent == attempt
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(folder.iterdir()) == []
        with inquiry.at_folder(folder, 5) as path, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            assert (folder / "rank-5").is_socket()
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
    assert list(attempt.iterdir()) == []


def test_a_file_system_without_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary folder has them; the attempt's has nothing of it."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with inquiry.socket_folder(Path("/proc"), 0) as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_no_folder_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch goes on without."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with inquiry.socket_folder(Path("/proc"), 0) as folder:
        assert not folder.exists()


def test_names_of_memory() -> None:
    """As /proc shows them; no other memory is taken for it."""
    assert inquiry.thread_of(f"/memfd:{inquiry.stack_of(412)} (deleted)") == 412
    assert inquiry.thread_of("/memfd:safe-launch-board (deleted)") is None
    assert inquiry.thread_of("/job/safe-launch-stack-412") is None
