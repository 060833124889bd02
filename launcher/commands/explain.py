"""`safe-launch explain`: known failures and pages on several of them, in full."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from ..catalogue.entry import KnownFailure
from ..catalogue.search import Hit, document, listing, topic_document, topic_text, topics
from ..core.errors import ExitCode, LaunchError
from ..core.nearest import near
from ..options.parser import Parser
from ..report.explain_failure import entry_text
from ..system import terminal
from .arguments import add_catalogue, add_json
from .catalogue import known_failures


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    add_catalogue(parser)
    add_json(parser)
    parser.add_argument(
        "ids", metavar="ID", nargs="*", help="name of a known failure, or wrong-loss"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the failures and pages; without names, lists all, one per line.

    Raises:
        LaunchError: a name is unknown, or the catalogue can't be read.
    """
    entries = {entry.id: entry for entry in known_failures(options.catalogue)}
    pages = topics()
    for name in options.ids:
        if name not in entries and name not in pages:
            problem = f"there is no known failure `{name}`"
            nearest = near(name, [*entries, *pages])
            hint = f"{nearest}; safe-launch catalogue WORDS searches by a message"
            raise LaunchError(problem, hint)
    if options.json:
        documents = [_document(name, entries, pages) for name in options.ids or entries]
        terminal.show(json.dumps(documents, indent=1))
    elif options.ids:
        texts = (
            entry_text(entries[name]) if name in entries else topic_text(pages[name])
            for name in options.ids
        )
        terminal.show("\n\n\n".join(texts))
    else:
        terminal.show(listing(tuple(entries.values())))
    return ExitCode.SUCCESS


def _document(
    name: str, entries: Mapping[str, KnownFailure], pages: Mapping[str, Path]
) -> dict[str, object]:
    """A failure or a page, for programs."""
    if name not in entries:
        return topic_document(pages[name]) | {"text": topic_text(pages[name])}
    (facts,) = document([Hit(entries[name])])
    del facts["matched"]
    return facts | {"text": entry_text(entries[name])}
