"""Which launches may share preloaded imports."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.core.placement import Placement
from safe_launch.core.request import LaunchRequest, WorkerOptions
from safe_launch.workers import start
from safe_launch.workers.forkserver.handover import warm_key

REQUEST = LaunchRequest(
    script="train.py",
    is_module=False,
    arguments=("--lr", "1"),
    nproc=2,
    nproc_source="",
    worker_options=WorkerOptions(keep_warm=60.0),
)


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell's session in which this process isn't the first."""
    monkeypatch.setattr(os, "getsid", lambda _pid: 4711)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def key_of(request: LaunchRequest = REQUEST) -> str:
    """The key of a launch from here."""
    return warm_key(request, start.command(request))


def test_arguments_and_workers_dont_matter() -> None:
    """Imports don't depend on them."""
    assert key_of() == key_of(replace(REQUEST, arguments=("--lr", "2"), nproc=4))
    assert len(key_of()) == 16


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, script="other.py"),
        replace(REQUEST, is_module=True),
        replace(REQUEST, worker_options=replace(REQUEST.worker_options, interpreter="/bin/python")),
    ],
)
def test_another_script_or_interpreter_has_another_key(other: LaunchRequest) -> None:
    """So does a script of the same name in another folder."""
    assert key_of() != key_of(other)


def test_what_a_process_inherits_decides(tmp_path: Path) -> None:
    """Limits, priority, umask and folder, which imports may use unseen."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from test_forkserver_handover import *; "
    code += "os.getsid = lambda _: 4711; print(key_of())"
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]

    def key_in(*before: str, cwd: Path = tmp_path) -> str:
        return subprocess.check_output([*before, *command], cwd=cwd, text=True)

    plain = key_in()
    assert key_in() == plain
    assert key_in("chrt", "--batch", "0") != plain
    if os.getpriority(os.PRIO_PROCESS, 0) < 19:  # 19 is the maximum
        assert key_in("nice", "-n1") != plain
    assert key_in("sh", "-c", 'umask 077; exec "$@"', "-") != plain
    assert key_in("sh", "-c", 'trap "" USR1; exec "$@"', "-") != plain
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert key_in("sh", "-c", f'ulimit -n {most - 1}; exec "$@"', "-") != plain
    (tmp_path / "elsewhere").mkdir()
    assert key_in(cwd=tmp_path / "elsewhere") != plain


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            replace(REQUEST, worker_options=WorkerOptions(start_method="spawn")),
            "such workers do their imports themselves",
        ),
        (replace(REQUEST, is_program=True), "such workers do their imports themselves"),
        (replace(REQUEST, placement=Placement(nodes=2, least=2)), "a job of several launchers"),
    ],
)
def test_where_nothing_can_be_kept_it_is_told(
    other: LaunchRequest, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The launch continues without it."""
    assert key_of(other) == ""
    assert said in capsys.readouterr().err


def test_neither_in_a_job_nor_at_the_end_of_a_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kept server would outlive them, or end at once."""
    monkeypatch.setattr(os, "getsid", lambda _pid: os.getpid())
    assert key_of() == ""
    assert "the session ends with this launch" in capsys.readouterr().err
    monkeypatch.setattr(os, "getsid", lambda _pid: 4711)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert key_of() == ""
    assert "this is a job of several launchers, or of a cluster" in capsys.readouterr().err
