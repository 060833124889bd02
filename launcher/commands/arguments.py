"""Arguments that several commands have, and the names that users shorten."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from ..core.errors import LaunchError
from ..core.quantities import count_of
from ..options.option import named_path
from ..options.parser import Parser
from ..system.run_directory import default_root

LISTED = 5
"""Names that a message lists, at most."""


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


def meant(text: str, names: Collection[str], kind: str, preferred: Collection[str] = ()) -> str:
    """The name of a run or a lesson that a text is, or is a part of; empty if there is none.

    The `preferred` names take precedence if the text is a part of several; messages use `kind`.

    Raises:
        LaunchError: it is a part of several, or empty, and so a part of all.
    """
    if not text.strip():
        problem = f"the name of the {kind} is empty"
        raise LaunchError(problem, f"is a variable unset? `safe-launch {kind}s` lists the names")
    if text in names:
        return text
    matching = [name for name in names if text in name]
    chosen = [name for name in matching if name in preferred] or matching
    if len(chosen) < 2:
        return "".join(chosen)
    listed = ", ".join(chosen[:LISTED]) + (", ..." if len(chosen) > LISTED else "")
    problem = f"`{text}` is a part of the names of {count_of(len(chosen), kind)}: {listed}"
    raise LaunchError(problem, "give more of the name")
