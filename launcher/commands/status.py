"""`safe-launch status`: the progress of runs, and how they ended."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..core.count_of import count_of
from ..core.errors import ExitCode, LaunchError
from ..options.parser import Parser
from ..report.run_status import RunStatus
from ..system import kept_runs, terminal
from . import run_search
from .arguments import add_json, add_run, root_of
from .stacks import show_stacks

PAUSE = 2.0
"""Seconds between two looks of --watch."""
LATEST = 5
"""Ended runs that are shown if none is running."""
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
        show_stacks(folder or _only_running(root), as_json=options.json)
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
