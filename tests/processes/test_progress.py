"""A run seen from another shell: steps, phases, stragglers, and the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from safe_launch.progress import board
from support.processes import LAUNCHER, PROGRAMS, begin, environment, gone, launch
from support.waiting import wait_for

PAUSE = 0.25
"""Extra seconds of the slow rank for every two samples: far more than a step takes."""


def shown(folder: Path) -> dict[str, Any]:
    """`safe-launch status` of the run in the folder."""
    (path,) = (folder / "runs").iterdir()
    done = launch(folder, "status", "--json", path, ours=False)
    assert (done.returncode, done.stderr) == (0, "")
    (run,) = json.loads(done.stdout)["runs"]
    return dict(run)


def phases(folder: Path) -> list[str]:
    """The ranks' phases."""
    return [rank["phase"] for rank in shown(folder)["ranks"]]


def test_phases_steps_and_the_slow_rank(workshop: Path) -> None:
    """During training, evaluation and saving; then the throughput, and no leftovers."""
    _clean(workshop)
    training = begin(workshop, "--nproc=2", PROGRAMS / "trains_ddp.py", workshop, PAUSE)
    wait_for(lambda: any((workshop / "runs").glob("*/launcher-0.json")))
    wait_for(lambda: bool(shown(workshop)["stragglers"]))
    run = shown(workshop)
    assert run["is_running"]
    slow, steps = run["stragglers"][0], [rank["step"] for rank in run["ranks"]]
    assert slow["rank"] == 1
    assert slow["factor"] > 3
    assert slow["seconds"] == pytest.approx(2 * PAUSE, rel=0.5)
    assert abs(steps[0] - steps[1]) <= 1
    fast, late = run["ranks"]
    assert fast["step_time"] == pytest.approx(late["step_time"], rel=0.5)
    assert fast["own_time"] < PAUSE < late["own_time"]
    wait_for(lambda: phases(workshop) == ["training", "training"])
    everything = launch(workshop, "status", ours=False).stdout  # all of this user's runs
    assert f"{run['run']} has run on" in everything
    assert "rank 1 on" in everything
    (workshop / "train").touch()
    wait_for(lambda: phases(workshop) == ["evaluation", "evaluation"])
    (workshop / "evaluate").touch()
    wait_for(lambda: phases(workshop) == ["saving", "evaluation"])
    (workshop / "save").touch()
    _, told = training.communicate()
    assert training.returncode == 0
    assert " steps/s" in told
    ended = shown(workshop)
    assert ended["outcome"]["exit_code"] == 0
    assert ended["outcome"]["throughput"]["steps_per_second"] == pytest.approx(
        1 / (2 * PAUSE), rel=0.5
    )
    assert [rank["phase"] for rank in ended["ranks"]] == ["ended", "ended"]
    assert not list(workshop.glob("runs/*/attempt-1/*.new"))


def test_a_killed_launcher_leaves_nothing(workshop: Path) -> None:
    """The board ends with its processes; `status` reports the kill."""
    _clean(workshop)
    training = begin(workshop, "--nproc=2", PROGRAMS / "trains_ddp.py", workshop)
    wait_for(lambda: any((workshop / "runs").glob("*/launcher-0.json")))
    wait_for(lambda: phases(workshop) == ["training", "training"])
    link = board.board_of(training.pid)
    assert link is not None
    ranks = [row.pid for row in board.rows(link)]
    assert all(os.path.exists(f"/proc/{pid}") for pid in ranks)
    training.send_signal(signal.SIGKILL)
    training.communicate()
    wait_for(lambda: gone(workshop))
    assert board.board_of(training.pid) is None
    assert "ended without a word" in shown(workshop)["state"]


def test_a_program_has_no_progress(workshop: Path) -> None:
    """`--no-python` programs can't be observed, and nothing is reported."""
    done = launch(workshop, "--nproc=2", "--no-python", "true")
    assert done.returncode == 0
    assert "steps" not in done.stderr
    ranks = shown(workshop)["ranks"]
    assert [(rank["phase"], rank["pid"], rank["step"]) for rank in ranks] == [
        ("starting", 0, None)
    ] * 2


def test_watching_ends_with_ctrl_c(workshop: Path) -> None:
    """With code 0 and without a traceback."""
    watching = subprocess.Popen(
        [LAUNCHER, "status", "--watch", "--log-dir=runs"],
        cwd=workshop,
        env=environment(workshop),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate()
    assert (watching.returncode, told) == (0, "")


def _clean(folder: Path) -> None:
    """Removes leftovers of an earlier try."""
    for name in ("train", "evaluate", "save"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "runs", ignore_errors=True)


def test_a_stranger_cannot_open_a_board() -> None:
    """Only the same user can: the path leads through the launcher's descriptors."""
    own = board.Board(0, 1)
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            board.rows(own.path)
            os._exit(1)
        except PermissionError:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    own.close()
