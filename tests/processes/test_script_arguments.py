"""Arguments after the script reach it, whatever they look like."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.processes import LAUNCHER, PROGRAMS, environment, launch
from support.script_arguments import BEHIND


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_they_reach_the_script(workshop: Path, method: str) -> None:
    """Through the launcher, the fork server and the worker's entry."""
    words = [word for one in BEHIND for word in one.split()]
    done = launch(workshop, "--nproc=1", "--start-method", method, PROGRAMS / "says.py", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads((workshop / "said-0").read_text())["argv"][1:] == words


@pytest.mark.parametrize("tool", ["torchrun", "deepspeed"])
def test_they_reach_it_below_a_tool(workshop: Path, tool: str) -> None:
    """The tool's own launcher would have rejected some of them."""
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
    """The template's options end at the script, or at `--` before ours."""
    for words in (["train.py", "--name", "mine", "--n", "2"], ["--", "--fix=once", "x.py", "--"]):
        done = launch(workshop, "template", "slurm", "--name", "job", *words, ours=False)
        assert f"training=(safe-launch {' '.join(words[words[0] == '--' :])})" in done.stdout


@pytest.mark.parametrize("command", [(), ("plan",)], ids=["launch", "plan"])
def test_the_user_is_told_once(workshop: Path, command: tuple[str, ...]) -> None:
    """One line names the option and its place; the script still gets it."""
    (workshop / "train.py").write_text("import sys\nprint('got', sys.argv[1:])\n")
    done = launch(workshop, *command, "train.py", "--nproc", "2", ours=False)
    (told,) = [one for one in done.stderr.splitlines() if "precede the script" in one]
    assert told == (
        "[safe-launch] --nproc: handed to train.py, which doesn't know it; "
        "safe-launch's own options must precede the script"
    )
    if not command:
        assert done.stdout == "got ['--nproc', '2']\n"
    (workshop / "train.py").write_text("'--nproc'\n")
    done = launch(workshop, *command, "train.py", "--nproc", "2", ours=False)
    assert "precede the script" not in done.stderr
    assert done.returncode == 0
