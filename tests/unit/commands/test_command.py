"""Which command a command line runs, and each command's help."""

from __future__ import annotations

import subprocess

import pytest
from safe_launch.commands import registry
from safe_launch.commands.registry import COMMANDS, split
from safe_launch.core.errors import LaunchError
from support.stacks import CURRENT
from support.tables import table

SHELLS_OWN = {"bash": "complete -", "zsh": "#compdef safe-launch", "tcsh": "complete safe-launch"}
"""A word of every shell's completion."""


@table(
    ("words", "expected"),
    [
        ("plan x.py", ("plan", "x.py")),
        ("-v plan x.py", ("plan", "-v x.py")),
        ("--nproc 2 --hardware=A100 plan x.py -v", ("plan", "--nproc 2 --hardware=A100 x.py -v")),
        ("-v explain node-lost", ("explain", "node-lost")),
        ("-q status", ("status", "")),
        ("--nproc=2 x.py plan", ("", "--nproc=2 x.py plan")),
        ("-m plan x.py", ("", "-m plan x.py")),
        ("--no-python status", ("", "--no-python status")),
        ("--nproc plan", ("", "--nproc plan")),
        ("", ("", "")),
    ],
)
def test_a_command_after_options(words: str, expected: tuple[str, str]) -> None:
    """`-v plan` is `plan -v`; modules, programs, values and script arguments are no commands."""
    command, rest = split(words.split())
    assert (command.name, rest) == (expected[0], expected[1].split())


def said(*words: str) -> subprocess.CompletedProcess[str]:
    """A command line's output."""
    command = [str(CURRENT.bin / "safe-launch"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@table(("name",), [(name,) for name in ("", *COMMANDS)])
def test_every_command_takes_help(name: str) -> None:
    """Help goes to stdout with exit code 0; the usage names every positional."""
    done = said(*filter(None, [name]), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    usage, _, rest = done.stdout.partition("\n")
    assert usage.startswith(f"usage: safe-launch {name}".rstrip())
    assert "\nmore: https://" in rest
    if name and not COMMANDS[name].before_script:
        for action in COMMANDS[name].parser()._get_positional_actions():
            taken = "|".join(action.choices) if action.choices else str(action.metavar)
            assert taken in usage


def test_torchruns_completion() -> None:
    """--print-completion prints the same as the command, for each of torchrun's shells."""
    for shell, words in SHELLS_OWN.items():
        done = said("--print-completion", shell)
        assert (done.returncode, done.stdout) == (0, said("completion", shell).stdout)
        assert words in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--hostfile=", "train.py"),
        ("plan", "--accelerate-config=", "train.py"),
        ("plan", "--secret-file=", "train.py"),
        ("plan", "--catalogue=", "train.py"),
        ("report", "-o", ""),
        ("template", "slurm", "-o", "", "train.py"),
    ],
)
def test_an_empty_path_is_refused(words: tuple[str, ...]) -> None:
    """An unset variable doesn't silently mean the current folder or no value."""
    with pytest.raises(LaunchError, match=r"the path is empty: is a variable unset\?"):
        registry.run(words)
