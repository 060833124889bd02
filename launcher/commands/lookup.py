"""The commands that need no script and launch nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..catalogue.entry import KnownFailure
from ..core.errors import ExitCode, LaunchError
from ..options.parser import Parser


def hardware(arguments: Sequence[str]) -> int:
    """Prints the hardware found on this host, and the known profiles."""
    from ..machine import detect, profiles
    from ..report import hardware_table
    from ..system import terminal

    command = Parser(
        prog="safe-launch hardware",
        description="lists the known accelerators, and shows what was found on this host",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print a document for programs")
    as_json = command.parse_args(arguments).json
    found = detect.detect()
    if as_json:
        from ..core.plain_json import plain

        document = {"found": found, "profiles": profiles.profiles(), "nodes": profiles.nodes()}
        terminal.show(json.dumps(document, default=plain, indent=1))
        return ExitCode.SUCCESS
    terminal.say(*terminal.table(hardware_table.found_rows(found), indent=0))
    devices = [profiles.accelerator_of(profile) for profile in profiles.profiles()]
    terminal.show(hardware_table.known_table(devices, [node.name for node in profiles.nodes()]))
    return ExitCode.SUCCESS


def diagnose(arguments: Sequence[str]) -> int:
    """Prints the diagnosis of a training's logs."""
    from .diagnose import CODES, show_diagnosis

    command = _parser("diagnose", "names the root cause of a failed training from its logs")
    command.epilog = "exit codes: " + ", ".join(f"{code} {name}" for name, code in CODES.items())
    command.add_argument("--json", action="store_true", help="print a document for programs")
    command.add_argument(
        "paths", metavar="PATH", nargs="+", help="a log, a folder of logs, or - for standard input"
    )
    options = command.parse_args(arguments)
    entries = known_failures(options.catalogue)
    return show_diagnosis(options.paths, entries, as_json=options.json)


def explain(arguments: Sequence[str]) -> int:
    """Prints known failures and pages on several; without names, lists all, one per line."""
    from ..catalogue.search import Hit, document, listing
    from ..catalogue.topics import topic_document, topic_text, topics
    from ..core.nearest import near
    from ..report.explain_failure import entry_text
    from ..system import terminal

    command = _parser("explain", "prints known failures in full; without an ID lists all")
    command.add_argument("--json", action="store_true", help="print a document for programs")
    command.add_argument(
        "ids", metavar="ID", nargs="*", help="name of a known failure, or wrong-loss"
    )
    options = command.parse_args(arguments)
    entries = {entry.id: entry for entry in known_failures(options.catalogue)}
    pages = topics()
    for name in options.ids:
        if name not in entries and name not in pages:
            problem = f"there is no known failure `{name}`"
            nearest = near(name, [*entries, *pages])
            hint = f"{nearest}; safe-launch catalogue WORDS searches by a message"
            raise LaunchError(ExitCode.USAGE, problem, hint)
    if options.json:

        def told(name: str) -> dict[str, object]:
            if name not in entries:
                return topic_document(pages[name]) | {"text": topic_text(pages[name])}
            (facts,) = document([Hit(entries[name])])
            del facts["matched"]
            return facts | {"text": entry_text(entries[name])}

        found = [told(name) for name in options.ids or entries]
        terminal.show(json.dumps(found, indent=1))
    elif options.ids:
        texts = (
            entry_text(entries[name]) if name in entries else topic_text(pages[name])
            for name in options.ids
        )
        terminal.show("\n\n\n".join(texts))
    else:
        terminal.show(listing(tuple(entries.values())))
    return ExitCode.SUCCESS


def catalogue(arguments: Sequence[str]) -> int:
    """Prints the known failures that match a message or share words with it; or all."""
    from ..catalogue.search import Hit, document, hits_text, listing, search
    from ..system import terminal

    command = _parser("catalogue", "searches the known failures by a message or by words")
    command.add_argument("--json", action="store_true", help="print a document for programs")
    command.add_argument("words", metavar="WORDS", nargs="*", help="text of a message, or words")
    options = command.parse_args(arguments)
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
        raise LaunchError(ExitCode.USAGE, f"--catalogue {folder}: no such folder")
    return read_catalogue(folder)


def _parser(name: str, description: str) -> Parser:
    """A command's parser, with the option that all commands have."""
    result = Parser(prog=f"safe-launch {name}", description=description, allow_abbrev=False)
    result.add_argument(
        "--catalogue",
        type=Path,
        metavar="FOLDER",
        help="a folder with known failures of your own cluster",
    )
    return result
