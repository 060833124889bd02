"""The folder of the sockets between a launcher and its workers."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.evidence.worker_receiver import Receiver
from safe_launch.system import unix_sockets
from safe_launch.system.unix_sockets import at_folder

NOBODY = 65534


def test_a_folder_of_this_user(tmp_path: Path) -> None:
    """Sockets work however long the path is; the folder is removed."""
    attempt = tmp_path / ("a-long-name-" * 12)
    attempt.mkdir()
    with unix_sockets.socket_folder(attempt, 3) as folder:
        assert folder.parent == attempt
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(folder.iterdir()) == []
        with at_folder(folder, "rank-5") as path, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            assert (folder / "rank-5").is_socket()
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
    assert list(attempt.iterdir()) == []


def test_where_others_may_rename_the_runs_folder(tmp_path: Path) -> None:
    """The sockets go elsewhere: another user could replace the folder."""
    (attempt := tmp_path / "run" / "attempt-1").mkdir(parents=True)
    tmp_path.chmod(0o777)
    with unix_sockets.socket_folder(attempt, 0) as folder:
        assert not folder.is_relative_to(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_connect() -> None:
    """Access is denied even if all parent folders are open to everybody."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o777)
    with unix_sockets.socket_folder(place, 0) as folder, closing(Receiver(folder)) as receiver:
        assert _problem_of(os.getuid(), receiver.path) == 0
        assert _problem_of(NOBODY, receiver.path) == errno.EACCES
    place.rmdir()


def _problem_of(user: int, path: str) -> int:
    """The errno of a user's connection; 0 for success."""
    child = os.fork()
    if not child:
        try:
            os.setuid(user)
            socket.socket(socket.AF_UNIX).connect(path)
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("has_temporary", [True, False])
def test_a_file_system_without_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_temporary: bool
) -> None:
    """The temporary folder or shared memory is used; the attempt's folder stays empty."""
    temporary, shared = tmp_path / "tmp", tmp_path / "shared"
    shared.mkdir()
    if has_temporary:
        temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(unix_sockets, "SHARED", str(shared))
    with unix_sockets.socket_folder(Path("/proc"), 0) as folder:
        assert folder.parent == (temporary if has_temporary else shared)
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(shared.iterdir()) == []


def test_no_folder_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch is refused: failures couldn't be reported."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    monkeypatch.setattr(unix_sockets, "SHARED", str(tmp_path / "none"))
    with pytest.raises(LaunchError) as told, unix_sockets.socket_folder(Path("/proc"), 0):
        pass
    assert told.value.code == ExitCode.CANNOT_WRITE
