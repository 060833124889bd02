"""`safe-launch catalogue`: the known failures that match a message, share words with it, or all."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..catalogue.entry import KnownFailure
from ..core.errors import ExitCode, LaunchError
from ..options.parser import Parser
from .arguments import add_catalogue, add_json


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    add_catalogue(parser)
    add_json(parser)
    parser.add_argument("words", metavar="WORDS", nargs="*", help="text of a message, or words")


def run(options: argparse.Namespace) -> int:
    """Prints the failures found, or all by class.

    Raises:
        LaunchError: the catalogue can't be read.
    """
    from ..catalogue.search import Hit, document, hits_text, listing, search
    from ..system import terminal

    entries = known_failures(options.catalogue)
    text = " ".join(options.words)
    hits = search(text, entries) if text else tuple(Hit(entry) for entry in entries)
    if options.json:
        terminal.show(json.dumps(document(hits), indent=1))
    elif not text:
        terminal.show(listing(entries))
    elif hits:
        how = "its signature matches" if hits[0].is_shown else "no signature matches; by words"
        terminal.say(f"{how}: {len(hits)} of {len(entries)}; safe-launch explain ID prints one")
        terminal.show(hits_text(hits))
    else:
        terminal.say(f"none of {len(entries)} known failures matches or shares a word")
    return ExitCode.SUCCESS


def known_failures(folder: Path | None) -> tuple[KnownFailure, ...]:
    """The shipped catalogue, and that of a cluster's folder.

    Raises:
        LaunchError: there is no such folder, or an entry doesn't follow the schema.
    """
    from ..catalogue.reader import read_catalogue

    return read_catalogue() + site_entries(folder)


def site_entries(folder: Path | None) -> tuple[KnownFailure, ...]:
    """The catalogue of a cluster's folder, if there is one.

    Raises:
        LaunchError: there is no such folder, or an entry doesn't follow the schema.
    """
    if folder is None:
        return ()
    from ..catalogue.reader import read_catalogue

    if not folder.is_dir():
        raise LaunchError(f"--catalogue {folder}: no such folder")
    return read_catalogue(folder)
