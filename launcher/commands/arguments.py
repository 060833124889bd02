"""Arguments that several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..options.option import named_path
from ..options.parser import Parser
from ..system.run_directory import default_root


def add_json(parser: Parser) -> None:
    """Declares `--json`."""
    parser.add_argument("--json", action="store_true", help="print a document for programs")


def add_run(parser: Parser, otherwise: str = "") -> None:
    """Declares `RUN` and `--log-dir`; `otherwise` ends the help on `RUN`."""
    named = "a run directory, its name, or a part of the name"
    parser.add_argument("run", metavar="RUN", nargs="?", help=f"{named}{otherwise}")
    add_log_dir(parser)


def add_log_dir(parser: Parser) -> None:
    """Declares `--log-dir`."""
    parser.add_argument(
        "--log-dir",
        type=named_path,
        metavar="FOLDER",
        help="the folder of run directories, as given to the launch",
    )


def root_of(options: argparse.Namespace) -> Path:
    """The folder of run directories: `--log-dir`, by default the user's."""
    return options.log_dir or default_root()


def add_catalogue(parser: Parser) -> None:
    """Declares `--catalogue`."""
    parser.add_argument(
        "--catalogue",
        type=named_path,
        metavar="FOLDER",
        help="a folder with your cluster's known failures",
    )
