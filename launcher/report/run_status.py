"""The status of a run, running or past, with its forms for a person and for programs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

import msgspec

from ..checks import kept
from ..core.errors import meaning
from ..core.quantities import count_of
from ..planning.budget import gib
from ..progress.board import Phase, RankProgress
from ..progress.stragglers import Straggler, stragglers
from ..system import terminal
from ..system.kept_runs import LauncherRecord, State
from .throughput import line_of

HEAD = ("rank", "host", "phase", "step", "last moved", "step time", "memory", "process")
RIGHT = {0, 3, 4, 5, 6}
"""Columns of numbers."""
OF_LAUNCHERS = ("node", "host", "pid", "state", "command", "begun", "ended")
"""Fields of a launcher in the JSON document."""
FRESH = 60.0
"""Seconds for which another host's last write is a sign of life: it writes every 10 s."""
STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a device or a disk",
    "T": "is stopped",
    "t": "is held by a debugger",
    "": "is gone",
}
"""The states of a process in proc_pid_stat(5), in words; empty if there is none."""
RUN_HEAD = ("begun", "took", "attempts", "ended", "run", "changed")
"""The columns of `cells`."""


@dataclass(frozen=True, slots=True)
class RankStatus:
    """The progress of a rank.

    Attributes:
        progress: its row of the board.
        state: its process's letter in /proc, empty if that is gone; None if it isn't here.
        age: seconds since the row was written; 0 for the board itself.
    """

    progress: RankProgress
    host: str
    state: str | None = None
    age: float = 0.0

    def document(self) -> dict[str, Any]:
        """As JSON values; times in seconds, memory in bytes."""
        row = self.progress
        return {
            "rank": row.rank,
            "host": self.host,
            "pid": row.pid,
            "phase": row.phase.name.lower(),
            "step": row.step,
            "quiet": row.quiet + self.age,
            "in_phase": row.in_phase + self.age,
            "step_time": fmean(row.whole) if row.whole else None,
            "own_time": fmean(row.own) if row.own else None,
            "peak": row.peak or None,
            "process": self.state,
            "age": self.age,
        }

    def cells(self) -> tuple[str, ...]:
        """The cells of a row, in the order of `HEAD`."""
        row = self.progress
        process = "" if self.state is None else STATES.get(self.state, self.state)
        if self.age:
            process = f"as of {span(self.age)} ago"
        elif row.phase is Phase.ENDED or not row.pid:
            process = ""
        return (
            str(row.rank),
            self.host,
            row.phase.name.lower(),
            "" if row.step is None else f"{row.step:,}",
            span(row.quiet + self.age),
            span(fmean(row.whole)) if row.whole else "",
            f"{gib(row.peak)} GiB" if row.peak else "",
            process,
        )


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a running or past run.

    Attributes:
        launchers: the records of its launchers, by node; none of an older version's run.
        failures: the first failure of each attempt, by its number from 1; empty if there is none.
        ranks: the progress of the last attempt's ranks, if readable here.
        outcome: the content of `outcome.json`; None if there is none.
        notes: files that couldn't be read, and why.
        checks: findings and skipped checks of the last attempt.
    """

    folder: Path
    launchers: tuple[LauncherRecord, ...] = ()
    failures: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    ranks: tuple[RankStatus, ...] = ()
    outcome: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    checks: kept.Document = field(default_factory=kept.Document)

    @property
    def is_running(self) -> bool:
        """Whether it runs, as seen from here."""
        if self.outcome is not None or not self.launchers:
            return False
        state = self.launchers[0].state
        return state is State.RUNNING or (state is State.ELSEWHERE and self._is_fresh)

    @property
    def _is_fresh(self) -> bool:
        return any(rank.age < FRESH for rank in self.ranks)

    @property
    def _stragglers(self) -> tuple[Straggler, ...]:
        return stragglers([rank.progress for rank in self.ranks])

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "run": self.folder.name,
            "folder": str(self.folder),
            "is_running": self.is_running,
            "state": self.state_text(),
            "launchers": [
                {name: getattr(launcher, name) for name in OF_LAUNCHERS}
                for launcher in self.launchers
            ],
            "attempts": [
                {"number": number, "failure": text or None}
                for number, text in self.failures.items()
            ],
            "ranks": [rank.document() for rank in self.ranks],
            "stragglers": [*map(asdict, self._stragglers)],
            "outcome": None if self.outcome is None else dict(self.outcome),
            "checks": msgspec.to_builtins(self.checks),
            "notes": list(self.notes),
        }

    def state_text(self) -> str:
        """Whether it runs or how it ended, in a few words."""
        if self.outcome is not None:
            code = self.outcome["exit_code"]
            return f"ended{self._when()} with exit code {code}: {meaning(code)}"
        if not self.launchers:
            return "has no record of its launcher: it is of an older version, or was cut off"
        head = self.launchers[0]
        match head.state:
            case State.RUNNING:
                return f"has run on {head.host} for {span(time.time() - head.begun)}"
            case State.ENDED if head.node:
                return f"has ended on {head.host}; node 0 has the outcome"
            case State.ENDED:
                return (
                    f"ended{self._when()} without an outcome: its launcher failed, or had no room "
                    "to write it, and said which"
                )
            case State.GONE:
                return (
                    f"ended without a word: its launcher on {head.host} was killed, couldn't write "
                    "any more, or the host went down"
                )
        if self._is_fresh:
            return f"has run on {head.host} for {span(time.time() - head.begun)}"
        return f"began on {head.host}, which has written nothing for more than {span(FRESH)}"

    def _when(self) -> str:
        """The time since the run's end; empty if unknown."""
        ends = [launcher.ended for launcher in self.launchers[:1]]
        return "".join(f" {span(time.time() - end)} ago" for end in ends if end)

    def lines(self) -> list[str]:
        """As text: the state, and a table of the ranks while it runs."""
        lines = [f"{self.folder.name} {self.state_text()}"]
        lines += [f"  {launcher.command}" for launcher in self.launchers[:1]]
        lines += [
            f"  attempt {number} failed: {text}" for number, text in self.failures.items() if text
        ]
        if self.outcome is None and len(self.failures) > 1:
            lines.append(f"  attempt {len(self.failures)} is the last")
        speed = self.outcome and self.outcome.get("throughput")
        lines += [f"  {line_of(speed)}"] if speed else []
        if self.outcome is None:
            lines += [f"  {line}" for line in columns(self.ranks)]
            hosts = {rank.progress.rank: rank.host for rank in self.ranks}
            lines += [f"  {slow.text(hosts[slow.rank])}" for slow in self._stragglers]
        lines += [f"  {finding.line}" for finding in self.checks.findings]
        return [*lines, *(f"  note: {note}" for note in self.notes), f"  {self.folder}"]


def columns(ranks: tuple[RankStatus, ...]) -> list[str]:
    """The ranks as a table with a head; nothing without ranks."""
    rows = [HEAD, *(rank.cells() for rank in ranks)] if ranks else []
    return terminal.columns(rows, RIGHT)


def span(seconds: float) -> str:
    """A span of time with two figures, as `4.6 ms`, `12 s`, `3 min 5 s` or `2 h 40 min`."""
    if seconds < 1:
        return f"{1000 * max(seconds, 0):.2g} ms" if seconds < 0.0995 else f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min"
        if hours < 48
        else f"{count_of(hours // 24, 'day')} {hours % 24} h"
    )


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run as it is listed, with its last plan's changes, as in `zero_stage: 3 -> 2`."""

    status: RunStatus
    changes: tuple[str, ...]

    @property
    def begun(self) -> float | None:
        """When it began, in seconds of the wall clock; None if no launcher left a record."""
        return min((launcher.begun for launcher in self.status.launchers), default=None)

    @property
    def seconds(self) -> float | None:
        """The run's duration so far; None if unknown."""
        ends = [launcher.ended for launcher in self.status.launchers[:1]]
        if self.begun is None or (not self.status.is_running and None in ends):
            return None
        return (ends[0] or time.time()) - self.begun

    @property
    def ended(self) -> str:
        """The run's end, in a few words."""
        if self.status.outcome is None:
            return "runs" if self.status.is_running else "cut off"
        code = self.status.outcome["exit_code"]
        failures = [text for text in self.status.failures.values() if text]
        if not code:
            return "trained"
        return f"{code}: {failures[-1] if failures else meaning(code)}"

    def cells(self) -> tuple[str, ...]:
        """The cells of a row, in the order of `RUN_HEAD`."""
        begun = "" if self.begun is None else time.strftime("%F %H:%M", time.localtime(self.begun))
        took = "" if self.seconds is None else span(self.seconds)
        number = str(len(self.status.failures) or "")
        changes = ", ".join(self.changes)
        return begun, took, number, self.ended, self.status.folder.name, changes

    def document(self) -> dict[str, Any]:
        """For programs; times in seconds."""
        return {**self.status.document(), "begun": self.begun, "seconds": self.seconds} | {
            "changes": list(self.changes)
        }
