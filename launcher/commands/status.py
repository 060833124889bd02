"""`safe-launch status`: the progress of runs, how they ended, and where their ranks stand."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..core.errors import ExitCode, LaunchError, Refused
from ..core.quantities import count_of
from ..hangs.report import HangReport
from ..options.parser import Parser
from ..report import explain_hang
from ..report.run_status import RunStatus
from ..system import kept_runs, regular_files, terminal, typed_files
from ..system.kept_runs import LauncherRecord, State
from ..system.signals import REPORT
from . import run_search
from .arguments import add_json, add_run, root_of

PAUSE = 2.0
"""Seconds between two looks of --watch."""
LATEST = 5
"""Ended runs that are shown if none is running."""
PATIENCE = 20.0
"""Seconds for the answer to --stacks: asking takes about 5 s, and other nodes get 10 s."""
CLEAR = "\x1b[H\x1b[2J\x1b[3J"
"""Moves a terminal's cursor home, and clears screen and scrollback (console_codes(4))."""


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    parser.epilog = (
        "Without RUN: all your runs that run on this host or in the folder of run directories, "
        "else\nthose that ended last."
    )
    add_run(parser)
    add_json(parser)
    parser.add_argument(
        "--watch", action="store_true", help=f"look again every {PAUSE:.0f} s, until Ctrl-C"
    )
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="report the position of each rank of a running run; the run continues",
    )


def run(options: argparse.Namespace) -> int:
    """Prints how runs go; returns the exit code.

    Raises:
        LaunchError: there is no such run.
    """
    root = root_of(options)
    folder = None if options.run is None else run_search.named(options.run, root)
    if options.stacks:
        _show_stacks(folder or _only_running(root), as_json=options.json)
        return ExitCode.SUCCESS
    if not options.watch:
        terminal.show(_text(_statuses(folder, root), root, as_json=options.json))
        return ExitCode.SUCCESS
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        _watch(folder, root, as_json=options.json)
    return ExitCode.SUCCESS


def _only_running(root: Path) -> Path:
    """The only run that is running.

    Raises:
        LaunchError: none runs, or several do.
    """
    running = [run.folder for run in _statuses(None, root) if run.is_running]
    if len(running) == 1:
        return running[0]
    names = ", ".join(folder.name for folder in running)
    problem = (
        f"{count_of(len(running), 'run of yours is', 'runs of yours are')} running: {names}"
        if running
        else "no run runs"
    )
    raise LaunchError(problem, "name one: safe-launch status --stacks RUN")


def _watch(folder: Path | None, root: Path, *, as_json: bool) -> None:
    """Shows the runs repeatedly; ends once the requested one has ended."""
    clear = CLEAR if sys.stdout.isatty() and not as_json else ""
    while True:
        runs = _statuses(folder, root)
        terminal.show(_text(runs, root, as_json=as_json), before=clear)
        if folder is not None and not runs[0].is_running:
            return
        time.sleep(PAUSE)


def _statuses(folder: Path | None, root: Path) -> list[RunStatus]:
    """The requested run; else all that run, or the latest."""
    if folder is not None:
        return [run_search.status_of(folder)]
    kept = kept_runs.kept(root)
    here = dict.fromkeys(path.resolve() for path in run_search.running_here())
    open_ones = [path for path in kept if not (path / "outcome.json").exists()]
    every = dict.fromkeys([*here, *(path.resolve() for path in open_ones)])
    running = [status for status in map(run_search.status_of, every) if status.is_running]
    return running or [run_search.status_of(path) for path in kept[:LATEST]]


def _text(runs: Sequence[RunStatus], root: Path, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"runs": [run.document() for run in runs]}, indent=1)
    blocks = ["\n".join(run.lines()) for run in runs]
    if not any(run.is_running for run in runs) and len(runs) != 1:
        what = "the latest that ended" if runs else f"none is kept in {root}"
        blocks.insert(0, f"no run of yours is running on this host; {what}")
    return "\n\n".join(blocks)


def _show_stacks(run: Path, *, as_json: bool) -> None:
    """Asks a launcher of a running run, and prints what node 0 keeps in the run directory.

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
            report = typed_files.read_json(path, HangReport)
            if not isinstance(report, Refused):  # else it is being written
                _show_report(report, path, as_json=as_json)
                return
    problem = f"the launcher of {run.name} (process {launcher.pid}) hasn't answered"
    hint = "it may be stopped; if the nodes share no run directory, node 0 prints the answer"
    raise LaunchError(problem, hint, code=ExitCode.RETRY_ELSEWHERE)


def _launcher(run: Path) -> LauncherRecord:
    """The launcher of the lowest node that runs on this host.

    Raises:
        LaunchError: none does.
    """
    records = [record for record in kept_runs.records(run) if not isinstance(record, Refused)]
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


def _show_report(report: HangReport, path: Path, *, as_json: bool) -> None:
    if as_json:
        terminal.show(regular_files.read_text(path).rstrip())
    else:
        rows = terminal.table(explain_hang.rows(report))
        terminal.show("\n".join([explain_hang.headline(report), *rows]))
