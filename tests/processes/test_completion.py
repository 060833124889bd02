"""Completion in real shells: commands, options, values, and files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.stacks import CURRENT

BASH = """
source {script}
try() {{
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  $(complete -p safe-launch | sed 's/.*-F \\([^ ]*\\).*/\\1/')
  echo "${{COMPREPLY[@]}}"
}}
try safe-launch pl
try safe-launch --hang-r
try safe-launch --fix o
try safe-launch tr
"""
FISH = """
source {script}
for line in pl --hang-r '--fix o' tr
  complete -C "safe-launch $line" | string split -f1 \\t
end
true
"""


@pytest.mark.parametrize(("shell", "program"), [("bash", BASH), ("fish", FISH)])
def test_a_shell_completes(shell: str, program: str, tmp_path: Path) -> None:
    """Each prefix completes to a command, an option, a choice or a file."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} isn't installed")
    (tmp_path / "train.py").touch()
    script = CURRENT.run("safe-launch", "completion", shell, cwd=tmp_path)
    assert script.returncode == 0, script.stderr
    (tmp_path / "completion").write_text(script.stdout)
    done = subprocess.run(
        [shell, "-c", program.format(script="completion")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["plan", "--hang-report", "once", "train.py"]


def test_zsh_takes_it(tmp_path: Path) -> None:
    """It registers the function for our command."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh isn't installed")
    script = CURRENT.run("safe-launch", "completion", "zsh", cwd=tmp_path)
    (tmp_path / "completion").write_text(script.stdout)
    register = 'autoload -U compinit && compinit -u -d dump && eval "$(cat completion)"'
    done = subprocess.run(
        [
            "zsh",
            "-f",
            "-c",
            f"{register} && print $_comps[safe-launch]; whence -w _safe_launch_first",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["_shtab_safe_launch", "_safe_launch_first:", "function"]
    wrong = CURRENT.run("safe-launch", "completion", "csh", cwd=tmp_path)
    assert wrong.returncode == 64
