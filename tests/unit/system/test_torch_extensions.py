"""Folders and locks of torch's extensions, in containers, on full disks and after killed builds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.system import torch_extensions
from safe_launch.system.torch_extensions import choose, clear_locks
from support.other_user import OTHER, needs_root

HOLDS = """
import os, sys
os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)  # as torch's FileBaton
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A folder that can't be created: its parent is a file."""
    (tmp_path / "file").write_text("")
    return str(tmp_path / "file" / "cache")


def chosen(variables: dict[str, str], log_dir: Path | None) -> tuple[dict[str, str], list[str]]:
    """The variables and the messages."""
    environment, told = dict(variables), list[str]()
    choose(environment, log_dir, told.append)
    return environment, told


def test_usual_folders_stay(tmp_path: Path) -> None:
    """If they can be written or created, no variable is set."""
    for variables in (
        {"XDG_CACHE_HOME": f"{tmp_path}/a/b"},
        {"TORCH_EXTENSIONS_DIR": f"{tmp_path}/c"},
    ):
        assert chosen(variables, tmp_path) == (variables, [])
    assert not (tmp_path / "a").exists()


def test_extensions_are_built_where_they_can_be(tmp_path: Path, nowhere: str) -> None:
    """Below --log-dir, else among temporary files; the user's variable is kept."""
    cache = {"XDG_CACHE_HOME": nowhere}
    found, told = chosen(cache, tmp_path / "runs")
    assert found["TORCH_EXTENSIONS_DIR"] == str(tmp_path / "runs" / ".torch_extensions")
    assert f"{nowhere}/torch_extensions can't be written" in told[0]
    found, _ = chosen(cache, None)
    assert Path(found["TORCH_EXTENSIONS_DIR"]).parent == Path(tempfile.gettempdir())
    own = {"TORCH_EXTENSIONS_DIR": nowhere}
    found, told = chosen(own, tmp_path)
    assert found == own
    assert told[0].startswith(f"TORCH_EXTENSIONS_DIR={nowhere} can't be written")


def test_nobody_can_plant_an_extension(
    tmp_path: Path, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built code is run later, so the temporary folder must be this user's."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    found, _ = chosen({"XDG_CACHE_HOME": nowhere}, None)
    folder = Path(found["TORCH_EXTENSIONS_DIR"])
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    found, told = chosen({"XDG_CACHE_HOME": nowhere}, None)
    assert "TORCH_EXTENSIONS_DIR" not in found
    assert "isn't a folder of this user's alone" in told[0]


@needs_root
def test_root_is_no_exception(
    tmp_path: Path, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root would load another user's build, so another folder is used."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    logs = tmp_path / "runs"
    for folder in (logs, tmp_path / ".torch_extensions-0", logs / ".torch_extensions"):
        folder.mkdir(mode=0o700)
        os.chown(folder, OTHER, OTHER)
    found, told = chosen({"XDG_CACHE_HOME": nowhere}, logs)
    assert "TORCH_EXTENSIONS_DIR" not in found
    assert told[0].count("isn't a folder of this user's alone") == 2
    (tmp_path / ".torch_extensions-0").rmdir()
    found, _ = chosen({"XDG_CACHE_HOME": nowhere}, logs)
    assert found["TORCH_EXTENSIONS_DIR"] == str(tmp_path / ".torch_extensions-0")


def test_temporary_files_go_to_the_log_folder(
    tmp_path: Path, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no other folder is writable; without one, torch can't be imported."""

    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    found, told = chosen(cache, tmp_path / "runs")
    assert found == {**cache, "TMPDIR": str(tmp_path / "runs")}
    assert told[0].startswith(f"temporary files go to {tmp_path}/runs")
    for log_dir in (None, Path(nowhere)):
        with pytest.raises(LaunchError, match="No usable temporary directory") as caught:
            chosen(cache, log_dir)
        assert caught.value.code == ExitCode.CANNOT_WRITE


@pytest.mark.parametrize("folder", [".", "./", ""])
def test_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Any name of it can be written like any other folder."""
    monkeypatch.chdir(tmp_path)
    variables = {"TORCH_EXTENSIONS_DIR": folder} if folder else {"XDG_CACHE_HOME": str(tmp_path)}
    assert chosen(variables, Path(folder)) == (variables, [])


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """The path of a build's lock."""
    (tmp_path / "fused_adam").mkdir()
    return tmp_path / "fused_adam" / "lock"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Sets the extensions' folder."""
    return {"TORCH_EXTENSIONS_DIR": str(tmp_path)}


@contextmanager
def running(*command: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that runs until its stdin closes."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_killed_build_leaves_a_lock_that_is_removed(
    lock: Path, environment: dict[str, str]
) -> None:
    """During the build the lock stays, without a message."""
    with running(sys.executable, "-c", HOLDS, str(lock)):
        assert [*clear_locks(environment)] == []
        assert lock.exists()
    (said,) = clear_locks(environment)
    assert said.startswith(f"removed {lock}, made 0 s ago")
    assert not lock.exists()
    assert [*clear_locks(environment)] == []


def test_a_compiler_that_was_left_behind_owns_it(lock: Path, environment: dict[str, str]) -> None:
    """It writes into the folder."""
    lock.touch()
    with running("sh", "-c", "echo; cat", cwd=lock.parent):
        assert [*clear_locks(environment)] == []
    assert lock.exists()


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "virtiofs", "gpfs"])
def test_a_folder_that_hosts_share(
    lock: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Another host may build: the lock is reported and stays."""
    lock.touch()
    os.utime(lock, (1, 1))
    monkeypatch.setattr(torch_extensions, "_file_system", lambda _device: kind)
    (said,) = clear_locks(environment)
    assert f"the folder is on {kind}, which other hosts may share" in said
    assert "days ago" in said
    assert lock.exists()


@pytest.mark.parametrize(("kind", "is_left"), [("overlay", True), ("ext4", False)])
def test_a_folder_in_a_container(
    lock: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    *,
    is_left: bool,
) -> None:
    """A mount may be shared with a container whose processes are hidden."""
    lock.touch()
    monkeypatch.setattr(torch_extensions, "ALL_PROCESSES", 0)
    monkeypatch.setattr(torch_extensions, "_file_system", lambda _device: kind)
    (said,) = clear_locks(environment)
    assert lock.exists() is not is_left
    assert ("mounted into this container" in said) is not is_left


def test_another_users_lock_stays(
    lock: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner may be hidden."""
    lock.touch()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    (said,) = clear_locks(environment)
    assert "another user's" in said
    assert lock.exists()


def test_the_default_folder(tmp_path: Path) -> None:
    """Below the user's cache, one for each Python and device."""
    folder = tmp_path / ".cache" / "torch_extensions" / "py311_cu128" / "cpu_adam"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    assert [*clear_locks({"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "other")})] == []
    assert len([*clear_locks({"HOME": str(tmp_path)})]) == 1


def test_file_systems_are_told_apart() -> None:
    """The kernel's mount table decides."""
    assert torch_extensions._file_system(Path("/proc").stat().st_dev) == "proc"
    assert torch_extensions._file_system(Path("/dev/shm").stat().st_dev) == "tmpfs"
    assert "unknown" in torch_extensions._file_system(os.makedev(4000, 1))
