"""`safe-launch report`: a run as one HTML page, or the pages of a folder of runs with an index."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import quote

from ..core.errors import ExitCode, LaunchError
from ..options.option import named_path
from ..options.parser import Parser
from ..report.page import document
from ..system import kept_runs, regular_files, terminal
from . import run_search
from .arguments import add_run, root_of

PAGE = "report.html"
OTHERWISE = "-o FILE writes elsewhere"


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    add_run(parser, ", or a folder of runs; by default the latest run")
    parser.add_argument(
        "-o",
        "--output",
        type=named_path,
        metavar="FILE",
        help=f"instead of {PAGE} in the run directory",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints its path; returns the exit code.

    Raises:
        LaunchError: there is no such run, or the page can't be written.
    """
    document.require_libraries()
    folder = Path(options.run or "")
    if options.run and not kept_runs.is_run(folder) and kept_runs.kept(folder):
        written = _write_index(folder, options.output)
    else:
        run = run_search.named_or_latest(options.run, root_of(options))
        written = _write_page(run, options.output or run / PAGE)
    terminal.show(str(written))
    return ExitCode.SUCCESS


def _write_index(folder: Path, output: Path | None) -> Path:
    """Writes the page of each run, and their index.

    Raises:
        LaunchError: one can't be written.
    """
    runs = kept_runs.kept(folder)
    pages = [_write_page(run, run / PAGE) for run in runs]
    links = [
        quote(f"{page.parent.name}/{page.name}") if output is None else page.absolute().as_uri()
        for page in pages
    ]
    text = document.index([run_search.past(run) for run in runs], links)
    return _write(output or folder / "index.html", text)


def _write_page(run: Path, path: Path) -> Path:
    return _write(path, document.page(run_search.past(run)))


def _write(path: Path, text: str) -> Path:
    """Writes a page if there is none, or only an older one.

    Raises:
        LaunchError: it can't be written, or the file is something else.
    """
    try:
        if path.exists() and not document.is_page(path):
            raise LaunchError(f"{path} isn't a report: it is left as it is", OTHERWISE)
        regular_files.overwrite(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        problem = f"the report can't be written: {path}"
        raise LaunchError.because(error, problem, OTHERWISE, code=ExitCode.CANNOT_WRITE) from error
    return path
