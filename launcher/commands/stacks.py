"""`safe-launch status --stacks`: where every rank of a running run stands, at this moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from ..core.refused import Refused
from ..hangs.report import HangReport
from ..report import explain_hang
from ..system import launcher_record, regular_files, terminal, typed_json
from ..system.launcher_record import LauncherRecord, State
from ..system.signals import REPORT

PATIENCE = 20.0
"""Seconds for the answer: asking takes about 5 s, and other nodes get 10 s."""


def show_stacks(run: Path, *, as_json: bool) -> None:
    """Asks a launcher of the run, and prints what node 0 keeps in the run directory.

    Raises:
        LaunchError: no launcher of the run can be asked from here, or none answers.
    """
    launcher = _launcher(run)
    before = set(_reports(run))
    try:
        os.kill(launcher.pid, REPORT)
    except ProcessLookupError as error:
        raise LaunchError(f"{run.name} has just ended") from error
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(0.1)
        for path in sorted(set(_reports(run)) - before):
            report = typed_json.read(path, HangReport)
            if not isinstance(report, Refused):  # else it is being written
                _show(report, path, as_json=as_json)
                return
    problem = f"the launcher of {run.name} (process {launcher.pid}) hasn't answered"
    hint = "it may be stopped; if the nodes share no run directory, node 0 prints the answer"
    raise LaunchError(problem, hint, code=ExitCode.RETRY_ELSEWHERE)


def _launcher(run: Path) -> LauncherRecord:
    """The launcher of the lowest node that runs on this host.

    Raises:
        LaunchError: none does.
    """
    records = [record for record in launcher_record.records(run) if not isinstance(record, Refused)]
    for record in records:
        if record.state is State.RUNNING:
            return record
    elsewhere = [record for record in records if record.state is State.ELSEWHERE]
    if elsewhere:
        problem = f"{run.name} isn't running on this host"
        first = elsewhere[0]
        hint = f"on {first.host}: safe-launch status --stacks, or kill -QUIT {first.pid}"
        raise LaunchError(problem, hint)
    raise LaunchError(f"{run.name} isn't running any more")


def _reports(run: Path) -> list[Path]:
    return list(run.glob("attempt-*/standings-*.json"))


def _show(report: HangReport, path: Path, *, as_json: bool) -> None:
    if as_json:
        terminal.show(regular_files.read_text(path).rstrip())
    else:
        rows = terminal.table(explain_hang.rows(report))
        terminal.show("\n".join([explain_hang.headline(report), *rows]))
