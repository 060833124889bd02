"""The options that say how workers are started and what they are given."""

from __future__ import annotations

import argparse
from typing import Literal


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a command's."""
    group = parser.add_argument_group("workers")
    group.add_argument(
        "--start-method",
        "--start_method",
        choices=("spawn", "fork", "forkserver"),
        default="forkserver",
        help="spawn: every worker is a fresh process (default: forkserver; fork means the same)",
    )


def start_method(options: argparse.Namespace) -> Literal["spawn", "forkserver"]:
    """How workers come to be: a fork of the launcher itself is never wanted."""
    return "spawn" if options.start_method == "spawn" else "forkserver"
