"""Finds log files below a path, and their run."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import LaunchError, reason_of
from ..core.quantities import count_of
from ..system import regular_files
from .sources import BOMS, STDIN

ATTEMPT = re.compile(r"attempt[-_]\d+")
"""torchrun's folder of an attempt is `attempt_0`, safe-launch's is `attempt-1`."""
NO_LOGS = (
    *(".json", ".jsonl", ".yaml", ".yml", ".toml", ".md", ".csv", ".tsv", ".html", ".ipynb"),
    *(".py", ".pyc", ".js", ".css", ".sh", ".so", ".o", ".cu", ".cpp", ".h"),
    *(".pt", ".pth", ".bin", ".npy", ".npz", ".safetensors", ".gguf", ".model", ".ckpt", ".pkl"),
    *(".parquet", ".arrow", ".png", ".jpg", ".jpeg", ".pdf", ".zip", ".tar", ".tgz", ".zst"),
    *(".lock", ".pid", ".wandb", ".db", ".sqlite"),
)
"""Suffixes of files that are skipped in folders."""
NAMES_OF_NO_LOGS = ("events.out.tfevents", ".")
PEEK = 4096
MOST = 20_000
"""Maximum logs to read from folders, newest first: stdout and stderr of 10,000 ranks."""

RANK_IN_PATH = re.compile(
    r"(?:^|/)(?:rank[-_]?(\d+)\D?[^/]*|(\d+)/std(?:out|err)(?:\.log)?|[^/]*_rank(\d+)\.\w+)$"
)
ATTEMPT_IN_PATH = re.compile(r"(?:^|/)attempt(?:_(\d+)|-(\d+))/")


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Files to read.

    Attributes:
        paths: in reading order; `-` is the standard input.
        notes: skipped files, with the reasons.
    """

    paths: tuple[str, ...]
    notes: tuple[str, ...]


def find_logs(paths: Sequence[str], besides: Collection[Path] = ()) -> LogFiles:
    """The log files for the given paths.

    Reads a file of any name, but in folders only files that look like logs. Of several runs in
    folders (torchrun's or safe-launch's, with a folder per attempt), takes the newest.

    Args:
        paths: files and folders.
        besides: files read elsewhere; with any, logs may be missing.

    Raises:
        LaunchError: a path doesn't exist, or nothing in it looks like a log.
    """
    named: list[str] = []
    logs: list[Path] = []
    notes: list[str] = []
    for path in paths:
        if Path(path) in besides:
            continue
        if path == STDIN:
            named.append(path)
        elif os.path.isdir(path):  # noqa: PTH112
            below = regular_files.files_below([Path(path)])
            unread: dict[Path, str] = {}
            for file in below.files:
                try:
                    if file not in besides and _looks_like_log(file):
                        logs.append(file)
                except (OSError, EOFError, zlib.error) as error:
                    unread[file] = reason_of(error)
            notes += below.left_out
            notes += _unread(unread)
        elif os.path.exists(path):  # noqa: PTH110
            named.append(path)
        elif not path:
            raise LaunchError("the path of the log is empty", "is a variable unset?")
        else:
            raise LaunchError(f"{path}: no such file or folder", "- reads the standard input")
    runs: dict[Path, float] = {}
    for log in logs:
        if (run := _run_of(log)) is not None:
            runs[run] = max(runs.get(run, 0.0), _changed(log))
    newest = max(runs, key=lambda run: runs[run], default=None)
    kept = [path for path in logs if _run_of(path) in (None, newest)]
    if len(runs) > 1:
        notes.append(f"of {count_of(len(runs), 'run')} the newest is read, {newest}")
    if len(kept) > MOST:
        notes.append(f"of {len(kept):,} logs the newest {MOST:,} are read")
        newest_logs = {*sorted(kept, key=_changed)[-MOST:]}
        kept = [path for path in kept if path in newest_logs]
    if not named and not kept and not besides:
        problem = "; ".join((f"{', '.join(paths)}: nothing in it looks like a log", *notes))
        raise LaunchError(problem, "name the file itself")
    return LogFiles((*named, *map(str, kept)), tuple(notes))


def _unread(reasons: Mapping[Path, str]) -> Iterator[str]:
    """A note on unreadable files, with the first one's reason."""
    if not reasons:
        return
    first, reason = next(iter(reasons.items()))
    others = f" and {count_of(len(reasons) - 1, 'other file')}" if len(reasons) > 1 else ""
    yield f"{first}{others} can't be read: {reason}"


def _looks_like_log(path: Path) -> bool:
    """Whether a file's name and first bytes may be a log's.

    Kernel files, with content but no size, don't count.

    Raises:
        OSError, EOFError, zlib.error: the file can't be read.
    """
    if path.suffix.lower() in NO_LOGS or path.name.startswith(NAMES_OF_NO_LOGS):
        return False
    if not path.is_file():
        return False
    head = _head(path)
    is_made_up = head and not path.stat().st_size
    return not is_made_up and not _is_binary(head)


def _head(path: Path) -> bytes:
    """A file's first bytes, unpacked."""
    with regular_files.opened(path) as file:
        source = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        return source.read1(PEEK)


def _is_binary(head: bytes) -> bool:
    return head[:2] not in BOMS and b"\0" in head


def _run_of(path: Path) -> Path | None:
    """The folder with the attempts of a file's run, if any."""
    return next((parent.parent for parent in path.parents if ATTEMPT.fullmatch(parent.name)), None)


def _changed(path: Path) -> float:
    """A file's modification time; 0 if it has disappeared."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def rank_of(path: str) -> int | None:
    """The rank in a file's name, if any."""
    return _number(RANK_IN_PATH, path)


def attempt_of(path: str) -> int:
    """The attempt number in a path; 0 if none."""
    return _number(ATTEMPT_IN_PATH, path) or 0


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    match = pattern.search(path.replace("\\", "/"))
    return next((int(group) for group in match.groups() if group), None) if match else None


def without_text(path: str) -> str:
    """Why a file has no text to read, as a verb; empty if it may have some, or can't be read."""
    if path == STDIN or not Path(path).is_file():
        return ""
    with suppress(OSError, EOFError, zlib.error):
        head = _head(Path(path))
        if not head:
            return "is empty"
        if _is_binary(head):
            return "is binary, not text"
    return ""
