"""Files readable only by their user, and links planted by others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from safe_launch.system import private_files, redaction, run_directory
from safe_launch.workers.output import Output
from support.other_user import OTHER, needs_root


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Sets an open umask, which must have no effect."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """A path's permission bits."""
    return path.stat().st_mode & 0o777


def test_files_and_folders_are_their_users_alone(tmp_path: Path) -> None:
    """The umask doesn't matter."""
    folder = tmp_path / "own"
    private_files.make_folder(folder)
    private_files.make_folder(folder)  # another launcher of the job
    private_files.create(folder / "log").close()
    private_files.replace(folder / "record", b"a")
    private_files.replace(folder / "record", b"b")
    assert (mode(folder), mode(folder / "log"), mode(folder / "record")) == (0o700, 0o600, 0o600)
    assert (folder / "record").read_bytes() == b"b"
    assert sorted(os.listdir(folder)) == ["log", "record"]


def test_planted_links_are_not_followed(tmp_path: Path) -> None:
    """A file is replaced or refused, a folder is refused; the targets stay."""
    treasure, folder = tmp_path / "treasure", tmp_path / "folder"
    treasure.write_text("mine")
    folder.mkdir()
    for name in ("log", "record", "record.new"):
        (tmp_path / name).symlink_to(treasure)
    (tmp_path / "run").symlink_to(folder)
    with pytest.raises(FileExistsError):
        private_files.create(tmp_path / "log")
    private_files.replace(tmp_path / "record", b"ours")
    with pytest.raises(OSError, match="isn't this user's"):
        private_files.make_folder(tmp_path / "run")
    assert treasure.read_text() == "mine"
    assert not (tmp_path / "record").is_symlink()


def test_another_users_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could read and replace files."""
    (tmp_path / "run").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OSError, match="isn't this user's"):
        private_files.make_folder(tmp_path / "run")


@needs_root
def test_root_takes_no_folder_of_another_user(tmp_path: Path) -> None:
    """A share may map root to another user, which a new folder shows."""
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", OTHER, OTHER)
    for make in (private_files.make_folder, private_files.make_unshared):
        with pytest.raises(OSError, match="it is there, and isn't"):
            make(tmp_path / "run")
    assert os.listdir(tmp_path) == ["run"]


@needs_root
def test_a_share_may_give_roots_folders_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With root_squash a job's launchers still use the same folders."""
    made = os.mkdir

    def squashed(path: str, mode: int = 0o777) -> None:
        made(path, mode)
        os.chown(path, OTHER, OTHER)

    monkeypatch.setattr(os, "mkdir", squashed)
    for _ in range(2):
        private_files.make_folder(tmp_path / "run")
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("bits", [0o755, 0o770, 0o777])
def test_what_is_executed_lies_in_no_open_folder(tmp_path: Path, bits: int) -> None:
    """Other users could add files."""
    folder = tmp_path / "built"
    private_files.make_unshared(folder)
    private_files.make_unshared(folder)
    folder.chmod(bits)
    with pytest.raises(OSError, match="isn't a folder of this user's alone"):
        private_files.make_unshared(folder)


def test_what_others_may_rename_holds_nothing_that_is_executed(tmp_path: Path) -> None:
    """A world-writable parent is safe only with the sticky bit, like /tmp."""
    (above := tmp_path / "open").mkdir(mode=0o755)
    built = above / "own" / "built"
    built.parent.mkdir(mode=0o755)
    private_files.make_unshared(built)
    assert private_files.open_above(built) is None
    above.chmod(0o777)
    assert private_files.open_above(built) == above
    assert not private_files.is_unshared(built)
    with pytest.raises(OSError, match=f"anyone can rename files in {above}: "):
        private_files.make_unshared(built)
    above.chmod(0o1777)
    private_files.make_unshared(built)
    (tmp_path / "link").symlink_to(above)
    above.chmod(0o777)
    assert private_files.open_above(tmp_path / "link" / "built") == above


def test_new_folders_of_runs_are_their_users_alone(tmp_path: Path) -> None:
    """So are new parent folders; existing ones stay unchanged."""
    (tmp_path / "given").mkdir(mode=0o755)
    run = run_directory.run_folder(tmp_path / "given" / "a" / "b", "train.py", "7")
    modes = [mode(folder) for folder in (tmp_path / "given", *reversed(run.parents[:2]), run)]
    assert modes == [0o755, 0o700, 0o700, 0o700]


def test_a_log_goes_beside_what_is_there(tmp_path: Path) -> None:
    """A link in a shared folder, even a dangling one, or another node's file."""
    (tmp_path / "rank-0.log").symlink_to(tmp_path / "treasure")
    (tmp_path / "2-rank-0.log").write_text("earlier")
    warnings: list[str] = []
    output = Output(tmp_path, warnings.append)
    output.open([0])
    output.start()
    output.finish(lambda: True)
    assert sorted(os.listdir(tmp_path)) == ["2-rank-0.log", "3-rank-0.log", "rank-0.log"]
    assert (tmp_path / "2-rank-0.log").read_text() == "earlier"
    assert warnings == []


def test_records_have_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known secrets are removed at any depth; short words are kept."""
    monkeypatch.setattr(redaction, "_known", frozenset())
    redaction.learn(["planted-1", "a"])
    run_directory.write(tmp_path / "a.json", {"b": [{"c": "a planted-1"}]})
    assert '"a ***"' in (tmp_path / "a.json").read_text()
