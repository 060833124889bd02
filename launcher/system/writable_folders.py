"""Folders for libraries whose usual ones can't be written, as in a read-only container."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path

from ..core.errors import ExitCode, LaunchError, reason_of
from . import private_files

EXTENSIONS = "TORCH_EXTENSIONS_DIR"


def choose(
    environment: MutableMapping[str, str], log_dir: Path | None, tell: Callable[[str], None]
) -> None:
    """Sets the variables of folders that can be written, if the usual ones can't.

    Without a folder for temporary files torch can't be imported. Without one for extensions
    DeepSpeed's operations can't be built: the first ZeRO stage that needs one fails.

    Raises:
        LaunchError: there is no folder for temporary files.
    """
    spare = log_dir if log_dir is not None and _can_be_written(log_dir) else None
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        if spare is None:
            problem = "no folder for temporary files can be written"
            hint = "set TMPDIR or --log-dir to a writable folder"
            raise LaunchError.because(error, problem, hint, code=ExitCode.CANNOT_WRITE) from error
        temporary = spare
        environment["TMPDIR"] = str(temporary.absolute())
        tell(f"temporary files go to {temporary}: TMPDIR isn't set, and /tmp can't be written")
    usual = Path(environment.get(EXTENSIONS) or _cache(environment) / "torch_extensions")
    if _can_be_written(usual):
        return
    if EXTENSIONS in environment:
        tell(f"{EXTENSIONS}={usual} can't be written: DeepSpeed's operations can't be built there")
        return
    # Libraries built there are executed, so the folder must be this user's.
    places = [spare.absolute() / ".torch_extensions"] if spare else []
    problems = []
    for folder in (*places, temporary.absolute() / f".torch_extensions-{os.geteuid()}"):
        try:
            private_files.make_folders(folder.parent)
            private_files.make_unshared(folder)
        except OSError as error:
            problems.append(f"{folder}: {reason_of(error)}")
            continue
        environment[EXTENSIONS] = str(folder)
        tell(f"torch's extensions are built in {folder}: {usual} can't be written")
        return
    tell(f"{usual} can't be written: DeepSpeed's operations can't be built ({'; '.join(problems)})")


def _cache(environment: MutableMapping[str, str]) -> Path:
    """The user's cache, as torch finds it (`user_cache_dir` in torch/_appdirs.py)."""
    return Path(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111


def _can_be_written(folder: Path) -> bool:
    """Whether a folder can be written or made; not one below an unknown home."""
    above = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    return folder.parts[:1] != ("~",) and above.is_dir() and os.access(above, os.W_OK | os.X_OK)
