"""Refuses files passed as the script that aren't Python.

Refuses only files Python can't run: torchrun accepts any file name.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...core.errors import LaunchError
from ...system import regular_files

SHELLS = (b"sh", b"bash", b"dash", b"zsh", b"ksh", b"csh", b"tcsh", b"fish")
STDIN = ("-", "/dev/stdin")


def refusal_unread(path: Path) -> LaunchError | None:
    """The error for a file whose kind can't be a script; None if it may be one.

    A pipe can be read only once, but the launcher, every worker and every attempt read the script.
    """
    if str(path) in STDIN or path.is_fifo():
        problem = f"{path}: the script can't come through a pipe, since every worker reads it"
        return LaunchError(problem, "save it to a file, and give that")
    if path.is_char_device() or path.is_block_device():
        return LaunchError(f"{path} is a device, not a Python script")
    if path.is_dir():
        hint = "a folder can be run if it has a __main__.py"
        return LaunchError(f"{path} is a folder, not a Python script", hint)
    if path.suffix == ".ipynb" and _is_notebook(path):
        hint = f"jupyter nbconvert --to script {path} makes one of it"
        return LaunchError(f"{path} is a notebook, not a Python script", hint)
    return None


def _is_notebook(path: Path) -> bool:
    """Whether a file is notebook JSON, which Python may parse as an expression."""
    try:
        content = json.loads(regular_files.read(path))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "nbformat" in content


def refusal_of_syntax(path: Path, line: int | None, problem: str, hint: str) -> LaunchError:
    """The error for a file that Python can't compile."""
    with regular_files.opened(path) as file:
        first = file.readline(200)
    shell = first[2:].replace(b"/", b" ").split() if first.startswith(b"#!") else []
    where = f"{path}:{line}" if line else str(path)
    text = f"{where}: syntax error: {problem}"
    if path.suffix == ".sh" or set(shell) & set(SHELLS):
        text = f"{path} is a shell script, not a Python script"
        hint = f"safe-launch wrap -- bash {path} takes over what it launches"
    elif b"\0" in first or (first.startswith(b"#!") and b"python" not in first):
        text = f"{path} is a program, not a Python script"
        hint = f"safe-launch --no-python {path} runs it for each worker"
    elif path.suffix not in (".py", ""):
        text = f"{path} was taken for the script, as the first word that is no option: {text}"
    return LaunchError(text, hint)
