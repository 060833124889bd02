"""The run directory: the plan, records and logs of each attempt."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from ..core.plain_json import plain
from . import private_files
from .redaction import redacted

SURROGATE = re.compile("[\ud800-\udfff]")
UNFIT = re.compile(r"[^\w.,=@%+-]")
"""Characters of a script's name that are replaced in a run's name, as they need quotes."""


def new_id() -> str:
    """The id of a new run."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def run_folder(log_dir: Path | None, script: str, run_id: str) -> Path:
    """Makes the directory of a run, in `log_dir` or the user's cache.

    Nodes that share a file system share it.

    Raises:
        LaunchError: it can't be created.
    """
    root = default_root() if log_dir is None else log_dir
    name = UNFIT.sub("_", Path(script).name.removesuffix(".py"))
    folder = root / f"{name}-{run_id}"
    try:
        private_files.make_folders(root)
        private_files.make_folder(folder)
    except OSError as error:
        raise _cannot(folder, error) from error
    return folder


def check_root(log_dir: Path | None) -> None:
    """Checks that a run directory can be made, before anything is planned or printed.

    Raises:
        LaunchError: it can't.
    """
    root = default_root() if log_dir is None else log_dir
    try:
        private_files.make_folders(root)
        Path(tempfile.mkdtemp(dir=root)).rmdir()
    except OSError as error:
        raise _cannot(root, error) from error


def default_root() -> Path:
    """The default folder of run directories (XDG base directory specification)."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "safe-launch" / "runs"


def named(folder: Path) -> str:
    """A run directory as commands accept it: its name, or its path if it is elsewhere."""
    is_default = folder.absolute().parent == default_root().absolute()
    return shlex.quote(folder.name if is_default else str(folder))


def attempt_folder(run: Path, number: int) -> Path:
    """The folder of an attempt; if it can't be created, its files aren't written."""
    folder = run / f"attempt-{number + 1}"
    with suppress(OSError):
        private_files.make_folder(folder)
    return folder


def error_file(folder: Path, rank: int) -> Path:
    """The file to which a script under torch elastic's `record` writes its error."""
    return folder.absolute() / f"rank-{rank}.error.json"


def write(path: Path, content: object) -> None:
    """Writes a value as JSON, without secrets.

    Raises:
        LaunchError: the file can't be written.
    """
    try:
        private_files.replace(path, f"{redacted(lines(content))}\n".encode())
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: Path, error: OSError) -> LaunchError:
    problem = f"the run directory can't be written: {path}"
    hint = "name another place with --log-dir"
    return LaunchError.because(error, problem, hint, code=ExitCode.CANNOT_WRITE)


def lines(content: object, depth: int = 2) -> str:
    """A value as JSON, with its members and their members on separate lines.

    Deeper levels are left to json's fast encoder, which adds no line breaks: there may be thousands
    of failed ranks.
    """
    content = plain(content) if is_dataclass(content) else content
    if depth and content and isinstance(content, Mapping):
        rows = [f"{_json(name)}: {lines(member, depth - 1)}" for name, member in content.items()]
        return "{\n" + ",\n".join(rows) + "\n}"
    if depth and content and isinstance(content, list | tuple):
        return "[\n" + ",\n".join(lines(member, depth - 1) for member in content) + "\n]"
    return _json(content)


def _json(value: object) -> str:
    """A value as valid JSON: lone surrogates, from arbitrary bytes in names, become escapes."""
    text = json.dumps(value, default=plain, ensure_ascii=False)
    return text if text.isascii() else SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):x}", text)
