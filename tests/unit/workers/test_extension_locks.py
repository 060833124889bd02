"""Locks of extension builds: live owners, and other builders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safe_launch.workers import extension_locks
from safe_launch.workers.extension_locks import clear

HOLDS = """
import os, sys
os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)  # as torch's FileBaton
print("held", flush=True)
sys.stdin.read()
"""


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
        assert [*clear(environment)] == []
        assert lock.exists()
    (said,) = clear(environment)
    assert said.startswith(f"removed {lock}, made 0 s ago")
    assert not lock.exists()
    assert [*clear(environment)] == []


def test_a_compiler_that_was_left_behind_owns_it(lock: Path, environment: dict[str, str]) -> None:
    """It writes into the folder."""
    lock.touch()
    with running("sh", "-c", "echo; cat", cwd=lock.parent):
        assert [*clear(environment)] == []
    assert lock.exists()


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs", "virtiofs", "gpfs"])
def test_a_folder_that_hosts_share(
    lock: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Another host may build: the lock is reported and stays."""
    lock.touch()
    os.utime(lock, (1, 1))
    monkeypatch.setattr(extension_locks, "_file_system", lambda _device: kind)
    (said,) = clear(environment)
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
    monkeypatch.setattr(extension_locks, "ALL_PROCESSES", 0)
    monkeypatch.setattr(extension_locks, "_file_system", lambda _device: kind)
    (said,) = clear(environment)
    assert lock.exists() is not is_left
    assert ("mounted into this container" in said) is not is_left


def test_another_users_lock_stays(
    lock: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner may be hidden."""
    lock.touch()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    (said,) = clear(environment)
    assert "another user's" in said
    assert lock.exists()


def test_the_default_folder(tmp_path: Path) -> None:
    """Below the user's cache, one for each Python and device."""
    folder = tmp_path / ".cache" / "torch_extensions" / "py311_cu128" / "cpu_adam"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    assert [*clear({"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "other")})] == []
    assert len([*clear({"HOME": str(tmp_path)})]) == 1


def test_file_systems_are_told_apart() -> None:
    """The kernel's mount table decides."""
    assert extension_locks._file_system(Path("/proc").stat().st_dev) == "proc"
    assert extension_locks._file_system(Path("/dev/shm").stat().st_dev) == "tmpfs"
    assert "unknown" in extension_locks._file_system(os.makedev(4000, 1))
