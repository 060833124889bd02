"""Where metrics may go: a port, or a file that we may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.session import metrics_process


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("content", ["# HELP safe_launch_x\n", '{"time": 1}\n', ""])
def test_a_file_of_ours_is_written_anew(content: str) -> None:
    """A file of an earlier launch, or an empty one."""
    Path("run.prom").write_text(content)
    assert metrics_process.opened("run.prom") == Path("run.prom")
    assert metrics_process.opened("new.prom") == Path("new.prom")


def test_a_file_of_the_users_stays() -> None:
    """For example the script, given by mistake."""
    Path("train.py").write_text("import torch\n")
    with pytest.raises(LaunchError, match=r"train\.py: it holds something other than metrics"):
        metrics_process.opened("train.py")


@pytest.mark.parametrize("name", ["pipe", "folder", "/dev/null"])
def test_only_regular_files(name: str) -> None:
    """As root, a device would be replaced by a file."""
    os.mkfifo("pipe")
    Path("folder").mkdir()
    with pytest.raises(LaunchError, match="can't be written: it isn't a regular file"):
        metrics_process.opened(name)


@pytest.mark.parametrize("target", [":80x", ":-1", ":", ":65536", ":99999999", "host:70000"])
def test_mistyped_ports_become_no_files(target: str) -> None:
    """They are meant as ports."""
    with pytest.raises(LaunchError, match="isn't a port: a number from 0 to 65535"):
        metrics_process.opened(target)


def test_a_free_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Its number can't be known otherwise."""
    listener = metrics_process.opened("127.0.0.1:0")
    assert not isinstance(listener, Path | None)
    with listener:
        port = listener.getsockname()[1]
    assert f"http://127.0.0.1:{port}/metrics" in capsys.readouterr().err
