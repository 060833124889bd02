"""Arguments behind the script are the script's, whatever they look like."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from safe_launch import cli
from test_processes import LAUNCHER, PROGRAMS, environment, launch, workshop

__all__ = ["workshop"]

BEHIND = (
    *("--in x", "--log 3", "--a 1", "--n 2", "--h", "-h", "--help", "--version", "-m x", "-mx"),
    *("--nnodes 2", "--nproc=2", "--no- 1", "-t3", "-1", "--", "-- --nproc 2", "a -- b", "- -q"),
    *("--autotuning run", "--set=1 --i", "--fix", "--tee", "plan", "--node-timeout soon"),
)
"""What argparse, the launcher's own options and torchrun would like to have a say in."""
FRONTS: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "train.py"),
    "options": (("--nproc", "2", "-t3", "--log_dir=logs", "-q"), "train.py"),
    "module": (("-qm",), "package.train"),
    "program": (("--no-python", "--launcher_args=-i key"), "bash"),
    "dashes": (("--fix", "once", "--"), "train.py"),
    "beginnings": (("--num_no", "-1", "--shutdown-t=3", "--no_py"), "train.py"),
}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("behind", BEHIND)
def test_what_stands_behind_the_script(front: str, behind: str) -> None:
    """It has no say in how the launcher's own options are read, and is left as it is."""
    own, script = FRONTS[front]
    given = cli.parsed([*own, script, *behind.split()])
    assert (given.script, given.arguments) == (script, behind.split())
    alone = cli.parsed([*own, script])
    alone.arguments = given.arguments
    assert given == alone


def test_what_stands_before_it() -> None:
    """Values that look like a script are values; a value that is missing is missed there."""
    given = cli.parsed(["--role", "a.py", "-t", "3", "-H", "hosts", "train.py"])
    assert (given.role, str(given.hostfile), given.script) == ("a.py", "hosts", "train.py")
    for words, problem in (
        (["--tee", "--nproc", "2", "train.py"], "-t/--tee: expected one argument"),
        (["--tee"], "-t/--tee: expected one argument"),
        (["--nprok", "2", "train.py", "--in"], "unrecognized arguments: --nprok"),
        (["-x", "train.py"], "unrecognized arguments: -x"),
    ):
        with pytest.raises(cli.LaunchError, match=problem):
            cli.parsed(words)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_they_reach_the_script(workshop: Path, method: str) -> None:
    """Through the launcher, the server that workers are forked from, and the worker's entry."""
    words = [word for one in BEHIND for word in one.split()]
    done = launch(workshop, "--nproc=1", "--start-method", method, PROGRAMS / "says.py", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads((workshop / "said-0").read_text())["argv"][1:] == words


@pytest.mark.parametrize("tool", ["torchrun", "deepspeed"])
def test_they_reach_it_below_a_tool(workshop: Path, tool: str) -> None:
    """The tool's own launcher would have refused some of them."""
    one = {"torchrun": "--nproc_per_node=1", "deepspeed": "--num_gpus=1"}[tool]
    words = ["--in", "x", "--n", "2", "--h", "--", "--nproc", "2"]
    command = [LAUNCHER, "wrap", "--", tool, one, str(PROGRAMS / "says.py"), *words]
    done = subprocess.run(
        command,
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((workshop / "said-0").read_text())["argv"][1:] == words


def test_a_template_leaves_them_alone(workshop: Path) -> None:
    """Its own options end at the script, or at `--` before ours."""
    for words in (["train.py", "--name", "mine", "--n", "2"], ["--", "--fix=once", "x.py", "--"]):
        done = launch(workshop, "template", "slurm", "--name", "job", *words, ours=False)
        assert f"training=(safe-launch {' '.join(words[words[0] == '--' :])})" in done.stdout
