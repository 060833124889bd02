"""Finds and parses the user's source files without importing anything.

Refuses as a script only files that Python can't run: torchrun accepts any file name.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import sysconfig
import tokenize
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ...core.errors import LaunchError, reason_of
from ...core.request import LaunchRequest
from ...system import regular_files

STANDARD = sysconfig.get_path("stdlib")
"""Folder of the standard library."""
SHELLS = (b"sh", b"bash", b"dash", b"zsh", b"ksh", b"csh", b"tcsh", b"fish")
STDIN = ("-", "/dev/stdin")


def user_files(request: LaunchRequest) -> Iterator[Path]:
    """The script and the modules it imports from its folder; empty for framework programs."""
    if not request.is_program:
        yield from files_of(request.script, is_module=request.is_module)


def files_of(script: str, *, is_module: bool) -> Iterator[Path]:
    """Source files of a script, or of a module by name."""
    path = module_file(script) if is_module else Path(script)
    if path is None or not path.is_file() or is_installed(path):
        return
    yield path
    tree = tree_of(path)
    if tree is None:
        return
    roots = (path.parent, Path()) if is_module else (path.parent,)
    for name in imported(tree):
        for root in roots:
            stem = root.joinpath(*name.split("."))
            yield from filter(Path.is_file, (stem.with_suffix(".py"), stem / "__init__.py"))


def tree_of(path: Path) -> ast.Module | None:
    """A file's syntax tree; None if it is missing or isn't Python."""
    try:
        return _parsed_text(regular_files.read(path))
    except OSError:
        return None


@cache
def _parsed_text(source: str | bytes) -> ast.Module | None:
    """The cached, read-only syntax tree of a source; None if it isn't Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of imported modules, including names that may be submodules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level < 2:
            head = [node.module] if node.module else []
            yield from head
            yield from (".".join([*head, alias.name]) for alias in node.names)


def module_file(name: str) -> Path | None:
    """The file of a module; None if it isn't on `sys.path`."""
    parts = name.split(".")
    if not all(parts) or any("/" in part or "\0" in part for part in parts):
        return None  # of no module
    stem = Path(*parts)
    for folder in ("", *sys.path):
        for path in (Path(folder, stem).with_suffix(".py"), Path(folder, stem, "__main__.py")):
            if path.is_file():
                return path
    return None


def is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package or Python, not to the user."""
    return any("-packages" in part for part in path.parts) or path.is_relative_to(STANDARD)


def script_file(script: str) -> Path | None:
    """The file of a script, or a folder's `__main__.py`; None for a zip archive."""
    path = Path(script)
    main = path / "__main__.py"
    if path.is_file() and zipfile.is_zipfile(path):
        return None
    return main if main.is_file() else path


def parsed(path: Path) -> ast.Module:
    """Parses a script.

    Raises:
        LaunchError: the file doesn't exist, can't be read or isn't Python.
    """
    refused = _refusal_unread(path)
    if refused is not None:
        raise refused
    try:
        content = io.BytesIO(regular_files.read(path))
        encoding, _ = tokenize.detect_encoding(content.readline)
        content.seek(0)
        return ast.parse(io.TextIOWrapper(content, encoding).read(), filename=str(path))
    except FileNotFoundError:
        raise LaunchError(f"there is no script `{path}`", f"looked in {Path.cwd()}") from None
    except OSError as error:
        raise LaunchError.because(error, f"{path} can't be read") from error
    except (RecursionError, MemoryError) as error:  # raised by Python's parser
        problem = "it is nested too deeply"
        raise _refusal_of_syntax(path, None, problem, "") from error
    except SyntaxError as error:
        line = (error.text or "").strip()
        hint = f"the line is: {line}" if line else ""
        raise _refusal_of_syntax(path, error.lineno, error.msg, hint) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise _refusal_of_syntax(path, None, reason_of(error), "") from error


def _refusal_unread(path: Path) -> LaunchError | None:
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


def _refusal_of_syntax(path: Path, line: int | None, problem: str, hint: str) -> LaunchError:
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
