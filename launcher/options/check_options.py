"""Options for checks during training."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ..checks.finding import Check
from ..core.errors import LaunchError
from ..core.nearest import near

OPTION = "--mute"


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    parser.add_argument(
        "--check",
        choices=["on", "off", "strict"],
        default="on",
        help="on: report silent training faults, in a line each; strict: also end the run at the "
        "first that is certain; off: no checks (default: on)",
    )
    parser.add_argument(
        OPTION,
        action="append",
        default=[],
        type=muted,
        metavar="NAME,...",
        help=f"checks to skip, of {', '.join(Check)}; repeatable",
    )


def muted(text: str) -> tuple[str, ...]:
    """Parses names of checks, separated by commas.

    Raises:
        LaunchError: a check is unknown.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in list(Check):
            raise LaunchError(f"{OPTION}: no check `{name}`", near(name, list(Check)))
    return names


def together(stated: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Every check once."""
    return tuple(dict.fromkeys(name for names in stated for name in names))
