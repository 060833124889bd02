"""`safe-launch completion`: the script with which a shell completes our command line."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Any

from ..core.errors import ExitCode, LaunchError
from ..core.private_names import ACTIONS
from ..options.parser import Parser, parser
from ..system import terminal
from .registry import COMMANDS

SHELLS = ("bash", "zsh", "fish", "tcsh")
FIRST = "_safe_launch_first"
"""The shell function that completes a command or a script."""


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    parser.epilog = (
        'bash: eval "$(safe-launch completion bash)" in ~/.bashrc; zsh: the same with zsh in\n'
        "~/.zshrc, after compinit; fish: safe-launch completion fish | source in\n"
        "~/.config/fish/config.fish"
    )
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    """Prints the script for a shell; returns the exit code.

    Raises:
        LaunchError: shtab is missing.
    """
    return show(options.shell)


def show(shell: str) -> int:
    """Prints the script for a shell; returns the exit code.

    Raises:
        LaunchError: shtab is missing, or the shell is unknown.
    """
    if shell not in SHELLS:
        problem = f"--print-completion {shell!r}: there is no such shell"
        raise LaunchError(problem, f"one of {', '.join(SHELLS)}")
    if find_spec("shtab") is None:
        problem = "completion needs shtab, which isn't installed"
        raise LaunchError(problem, "pip install 'safe-launch[completion]'")
    import shtab

    functions: Any = _functions(" ".join(COMMANDS))  # a mapping, unlike its annotation
    terminal.show(shtab.complete(_with_places(), shell, preamble=functions).rstrip())
    return ExitCode.SUCCESS


def _with_places() -> argparse.ArgumentParser:
    """The launch's options and arguments, with the kind of words that each takes."""
    import shtab

    known = parser()
    for action in ACTIONS.of(known):
        metavar = str(action.metavar or "")
        if action.nargs != 0 and ("FOLDER" in metavar or "FILE" in metavar):
            kind = shtab.DIRECTORY if "FOLDER" in metavar else shtab.FILE
            action.complete = kind
    first = known.add_argument("script", nargs="?", help="a command, or the script")
    fish = "(__fish_complete_path (commandline -ct))"
    first.complete = {"bash": FIRST, "zsh": FIRST, "fish": f"({FIRST}) {fish}"}  # type: ignore[attr-defined]
    rest = known.add_argument("arguments", nargs="*", help="the script's own")
    rest.complete = shtab.FILE  # type: ignore[attr-defined]
    return known


def _functions(names: str) -> dict[str, str]:
    """The function `FIRST` in each shell."""
    return {
        "bash": f'{FIRST}() {{\n  compgen -W "{names}" -- "$1"\n  compgen -f -- "$1"\n}}\n',
        "zsh": f"{FIRST}() {{\n  _alternative 'commands:command:({names})' 'files::_files'\n}}\n",
        "fish": f"function {FIRST}\n  string split ' ' '{names}'\nend\n",
    }
