"""`safe-launch runs`: the kept runs, their ends and their changes."""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from ..core.quantities import GIB, count_of
from ..options.parser import Parser
from ..report.run_status import RUN_HEAD, PastRun
from ..system import kept_runs, terminal
from ..system.kept_runs import DAY, VARIABLE, Limits
from ..system.run_directory import named
from . import run_search
from .arguments import add_json, add_log_dir, root_of


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    parser.epilog = (
        f"The default folder keeps {kept_runs.MOST} runs and 2 GiB at most; "
        f"{VARIABLE}=N sets another number of GiB, 0 no limit."
    )
    parser.add_argument("do", choices=("list", "show", "prune"), nargs="?", default="list")
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="show: a run directory, its name, or a part of the name; list: a part of the names",
    )
    add_json(parser)
    add_log_dir(parser)
    prune = parser.add_argument_group("what prune keeps; it never removes a run that hasn't ended")
    for name, what in (
        ("--keep", "the latest N"),
        ("--days", "runs of the last N days"),
        ("--gib", "the latest, up to N GiB"),
    ):
        prune.add_argument(name, type=_amount, metavar="N", default=math.inf, help=what)
    prune.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def run(options: argparse.Namespace) -> int:
    """Lists, shows or removes runs; returns the exit code.

    Raises:
        LaunchError: there is no such run, or one can't be removed.
    """
    root = root_of(options)
    if options.do == "prune":
        return _prune(options, root)
    if options.do == "show":
        if options.run is None:
            raise LaunchError("show which run?", "`safe-launch runs` lists them")
        return _show(run_search.past(run_search.named(options.run, root)), as_json=options.json)
    folders = [run for run in kept_runs.kept(root) if (options.run or "") in run.name]
    runs = [run_search.past(folder) for folder in folders]
    if options.json:
        terminal.show(json.dumps({"runs": [run.document() for run in runs]}, indent=1))
    elif runs:
        terminal.show("\n".join(terminal.columns((RUN_HEAD, *(run.cells() for run in runs)))))
    else:
        terminal.show(f"no run is kept in {root}")
    return ExitCode.SUCCESS


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"a number of at least 0 is expected, not `{text}`")
    return number


def _show(run: PastRun, *, as_json: bool) -> int:
    """Prints all that is known of one run."""
    if as_json:
        terminal.show(json.dumps(run.document(), indent=1))
        return ExitCode.SUCCESS
    lines = run.status.lines()
    changes = [f"  changed {change}" for change in run.changes]
    edits = (run.status.outcome or {}).get("lasting")
    lasting = [f"  to make it last: safe-launch fix {named(run.status.folder)}"] if edits else []
    terminal.show("\n".join([*lines[:-1], *changes, *lasting, lines[-1]]))
    return ExitCode.SUCCESS


def _prune(options: argparse.Namespace, root: Path) -> int:
    """Removes the runs beyond the limits.

    Raises:
        LaunchError: a run can't be removed.
    """
    requested = Limits(options.keep, options.gib * GIB, options.days * DAY)
    limits = kept_runs.default_limits(os.environ) if requested == Limits() else requested
    surplus = [*kept_runs.surplus(root, limits)]
    going = "would be removed" if options.dry_run else "is removed"
    if surplus and not options.json:  # before anything is removed
        terminal.show("\n".join(f"{going}: {run.folder}" for run in surplus))
    refused = [] if options.dry_run else [*filter(None, map(kept_runs.remove, surplus))]
    gone = "would be removed" if options.dry_run else "removed"
    size = sum(run.size for run in surplus) / GIB
    if options.json:
        names = [run.folder.name for run in surplus]
        terminal.show(json.dumps({"removed": names, "gib": size, "dry_run": options.dry_run}))
    else:
        terminal.show(f"{count_of(len(surplus), 'run')} {gone}, {size:.2g} GiB")
    if refused:
        raise LaunchError(refused[0].sentence, code=ExitCode.CANNOT_WRITE)
    return ExitCode.SUCCESS
