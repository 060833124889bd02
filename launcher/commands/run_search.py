"""Finds runs: those that run on this host, and those whose run directories are kept."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ..checks import kept as kept_checks
from ..core.errors import LaunchError, Refused
from ..core.nearest import near
from ..evidence.failure_record import title_of
from ..progress import board, snapshot
from ..report import throughput
from ..report.run_status import PastRun, RankStatus, RunStatus
from ..system import kept_runs, typed_files
from ..system.kept_runs import LauncherRecord, State, is_run, kept
from .arguments import meant


def running_here() -> Iterator[Path]:
    """The run directories of this user's launchers on this host, wherever they are.

    A launcher holds its node's board, and the logs of its ranks in the attempt's folder.
    """
    for process in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            if not process.name.isdecimal() or process.stat().st_uid != os.getuid():
                continue
            if board.board_of(int(process.name)) is None:
                continue
            files = filter(None, map(_opened, (process / "fd").iterdir()))
            logs = [file for file in files if file.match("attempt-*/rank-*.log")]
            yield from {log.parent.parent for log in logs}


def _opened(descriptor: Path) -> Path | None:
    """The target of a descriptor in /proc; None if it has been closed meanwhile."""
    with suppress(OSError):
        return descriptor.readlink()
    return None


def named(text: str, root: Path) -> Path:
    """The run directory that a user means: its path, its name, or a part of its name.

    The part must identify one run, or one of those that run.

    Raises:
        LaunchError: there is none, or there are several.
    """
    path = Path(text)
    if text and path.is_dir():
        if is_run(path):
            return path
        if is_run(path.parent) and path.name.startswith("attempt-"):
            return path.parent
    running = {path.name: path for path in running_here()}
    known = {path.name: path for path in kept(root)} | running
    if name := meant(text, known, "run", running):
        return known[name]
    scripts = [name.rsplit("-", 3)[0] for name in known]
    hint = near(text, [*scripts, *known])
    if not known:
        hint = "--log-dir FOLDER looks in another folder"
    raise LaunchError(f"there is no run `{text}` in {root}", hint)


def named_or_latest(text: str | None, root: Path) -> Path:
    """The run directory that a user means; the latest if none is named.

    Raises:
        LaunchError: there is none, or the name is ambiguous.
    """
    if text is not None:
        return named(text, root)
    for latest in kept(root):
        return latest
    raise LaunchError(f"no run is kept in {root}", "name a run directory")


def status_of(run: Path) -> RunStatus:
    """The status of a run; unreadable files become notes."""
    notes: list[str] = []
    launchers: list[LauncherRecord] = []
    for record in kept_runs.records(run):
        if isinstance(record, Refused):
            notes.append(record.sentence)
        else:
            launchers.append(record)
    outcome = _outcome(run / "outcome.json", notes)
    attempts = sorted(filter(None, map(_number, run.glob("attempt-*"))))
    failures = {number: _failure(run / f"attempt-{number}", notes) for number in attempts}
    ranks: list[RankStatus] = []
    if attempts:
        for launcher in launchers:
            ranks += _ranks(launcher, run / f"attempt-{attempts[-1]}", notes)
    by_rank = {rank.progress.rank: rank for rank in ranks}
    return RunStatus(
        run.absolute(),
        tuple(launchers),
        failures,
        tuple(by_rank[rank] for rank in sorted(by_rank)),
        outcome,
        tuple(notes),
        kept_checks.read(run / f"attempt-{max(attempts, default=0)}"),
    )


def _outcome(path: Path, notes: list[str]) -> dict[str, Any] | None:
    """The run's end; malformed parts are left out and noted."""
    outcome = _mapping(path, notes)
    if outcome is None:
        return None
    code = outcome.get("exit_code")
    if type(code) is not int or code not in range(256):
        notes.append(f"{path} has no valid exit code of the run")
        return None
    if "throughput" in outcome:
        try:
            msgspec.convert(outcome["throughput"], throughput.Throughput)
        except msgspec.ValidationError as error:
            notes.append(f"{path}: the throughput isn't one: {error}")
            return {name: value for name, value in outcome.items() if name != "throughput"}
    return outcome


def past(run: Path) -> PastRun:
    """A run as it is listed."""
    return PastRun(status_of(run), _changes(run))


def _changes(run: Path) -> tuple[str, ...]:
    """The changes of the last attempt's plan, as in `zero_stage: 3 -> 2`."""
    numbers = [number for path in run.glob("attempt-*") if (number := _number(path))]
    plan = _mapping(run / f"attempt-{max(numbers, default=0)}" / "plan.json", []) or {}
    changes = plan.get("changes")
    return tuple(
        f"{each.get('setting')}: {each.get('old')} -> {each.get('new')}"
        for each in (changes if isinstance(changes, list) else ())
        if isinstance(each, dict)
    )


def _ranks(launcher: LauncherRecord, attempt: Path, notes: list[str]) -> list[RankStatus]:
    """The ranks of a node: from its board if that is on this host, else as last written."""
    if launcher.state is State.RUNNING:
        link = board.board_of(launcher.pid)
        with suppress(OSError, ValueError):
            rows = () if link is None else board.rows(link)
            return [RankStatus(row, launcher.host, _letter(row.pid)) for row in rows]
    stored = snapshot.read(attempt, launcher.node)
    if isinstance(stored, Refused):
        if launcher.state is State.ELSEWHERE:
            notes.append(stored.sentence)
        return []
    age = max(time.time() - stored.written, 0.001)
    return [RankStatus(row, stored.host, None, age) for row in stored.rows]


def _letter(pid: int) -> str | None:
    """The state of a process in /proc; empty if it is gone, None if it hasn't begun."""
    if not pid:
        return None
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        letter = stat.rpartition(b")")[2].split()[0].decode()
        return "" if letter in "ZX" else letter
    return ""


def _failure(attempt: Path, notes: list[str]) -> str:
    """The first failure of an attempt: a known failure's id, or the exception; empty for none."""
    failures = _mapping(attempt / "failures.json", notes) or {}
    findings = failures.get("findings")
    root: Any = findings[0] if isinstance(findings, Sequence) and findings else None
    record = root.get("record") if isinstance(root, dict) else None
    if not isinstance(record, dict):
        return ""
    rank = record.get("rank")
    who = "" if rank is None else f"rank {rank}: "
    return f"{who}{root.get('entry') or ' '.join(title_of(record).split())[:100]}"


def _mapping(path: Path, notes: list[str]) -> dict[str, Any] | None:
    """A JSON file of the run directory; None if there is none, or none that can be read."""
    document = typed_files.read_json(path, dict[str, Any]) if path.exists() else None
    if isinstance(document, Refused):
        notes.append(document.sentence)
        return None
    return document


def _number(attempt: Path) -> int:
    number = attempt.name.partition("-")[2]
    return int(number) if number.isdecimal() and attempt.is_dir() else 0
