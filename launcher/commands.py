"""The commands that answer from what is known, without a script: nothing is launched."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .documents import near
from .exit_code import ExitCode, LaunchError
from .failure import KnownFailure


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes end with our own exit code."""

    def error(self, message: str) -> NoReturn:
        """Raises the mistake, for `main` to say.

        Raises:
            LaunchError: always.
        """
        word = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        meant = near(word, self._option_string_actions) if word.startswith("-") else ""
        hint = meant if "did you mean" in meant else "safe-launch --help lists the options"
        raise LaunchError(ExitCode.USAGE, message, hint)

    @property
    def spellings(self) -> frozenset[str]:
        """All that its options are spelt like, but for the one for help, which every parser has."""
        return frozenset(self._option_string_actions) - {"-h", "--help"}

    def apart(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The options at the beginning, spelt out, and all words from the first that is none.

        argparse classifies all words before it parses the first one, differently from one Python
        to the next: what stands behind a script never comes before it.

        Raises:
            LaunchError: the beginning of an option fits several.
        """
        own, rest = [], list(words)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            own.append(self._spelt_out(word))
            if rest and self._awaits_value(own[-1]):
                own.append(rest.pop(0))
        return own, rest

    def _spelt_out(self, word: str) -> str:
        name, equals, value = word.partition("=")
        known = self._option_string_actions
        if not self.allow_abbrev or not name.startswith("--") or name in known:
            return word
        fitting = [one for one in known if one.startswith(name)]
        if len({known[one] for one in fitting}) > 1:
            self.error(f"ambiguous option: {name} could match {', '.join(fitting)}")
        return f"{fitting[0] if fitting else name}{equals}{value}"

    def _awaits_value(self, word: str) -> bool:
        """Whether the next word is the value of this one: `--tee`, `-t`, `-qt`, but not `-t3`."""
        known = self._option_string_actions
        names = [word] if word.startswith("--") else [f"-{letter}" for letter in word[1:]]
        with_value = [place for place, one in enumerate(names) if _has_value(known.get(one))]
        return with_value[:1] == [len(names) - 1]


def _has_value(option: argparse.Action | None) -> bool:
    return option is not None and option.nargs is None


def hardware(arguments: Sequence[str]) -> int:
    """Prints what was found on this host, and the profiles that are known."""
    from . import detection, inventory, profiles, terminal

    found = detection.detect()
    if list(arguments) == ["--json"]:
        from .journal import plain

        document = {"found": found, "profiles": profiles.profiles(), "nodes": profiles.nodes()}
        terminal.show(json.dumps(document, default=plain, indent=1))
        return ExitCode.SUCCESS
    if arguments:
        problem = f"safe-launch hardware takes no `{arguments[0]}`"
        raise LaunchError(ExitCode.USAGE, problem, "only --json")
    terminal.say(*terminal.table(inventory.found_rows(found), indent=0))
    devices = [profiles.accelerator_of(one) for one in profiles.profiles()]
    terminal.show(inventory.known_table(devices, [one.name for one in profiles.nodes()]))
    return ExitCode.SUCCESS


def diagnose(arguments: Sequence[str]) -> int:
    """Prints what the logs of a training tell of its end."""
    from .postmortem import CODES, show_diagnosis

    command = _parser("diagnose", "names the root cause of a failed training from its logs")
    command.epilog = "exit codes: " + ", ".join(f"{code} {one}" for one, code in CODES.items())
    command.add_argument("--json", action="store_true", help="print a document for programs")
    command.add_argument(
        "paths", metavar="PATH", nargs="+", help="a log, a folder of logs, or - for standard input"
    )
    options = command.parse_args(arguments)
    return show_diagnosis(options.paths, known_failures(options.catalogue), options.json)


def explain(arguments: Sequence[str]) -> int:
    """Prints known failures; all of them in a line each where none is named."""
    from . import terminal
    from .catalogue_search import listing
    from .documents import near
    from .explain import entry_text

    command = _parser("explain", "prints known failures whole; without an ID lists all")
    command.add_argument("ids", metavar="ID", nargs="*", help="name of a known failure")
    options = command.parse_args(arguments)
    entries = {entry.id: entry for entry in known_failures(options.catalogue)}
    for name in options.ids:
        if name not in entries:
            problem = f"there is no known failure `{name}`"
            hint = near(name, entries) or "safe-launch catalogue WORDS searches by a message"
            raise LaunchError(ExitCode.USAGE, problem, hint)
    if options.ids:
        terminal.show("\n\n\n".join(entry_text(entries[name]) for name in options.ids))
    else:
        terminal.show(listing(tuple(entries.values())))
    return ExitCode.SUCCESS


def catalogue(arguments: Sequence[str]) -> int:
    """Prints the known failures that a message shows, or that share words with it; or all."""
    from . import terminal
    from .catalogue_search import Hit, document, hits_text, listing, search

    command = _parser("catalogue", "searches the known failures by a message or by words")
    command.add_argument("--json", action="store_true", help="print a document for programs")
    command.add_argument("words", metavar="WORDS", nargs="*", help="text of a message, or words")
    options = command.parse_args(arguments)
    entries = known_failures(options.catalogue)
    text = " ".join(options.words)
    hits = search(text, entries) if text else tuple(Hit(one, False, 0) for one in entries)
    if options.json:
        terminal.show(json.dumps(document(hits), indent=1))
    elif not text:
        terminal.show(listing(entries))
    elif hits:
        how = "its signature matches" if hits[0].is_shown else "no signature matches; by words"
        terminal.say(f"{how}: {len(hits)} of {len(entries)}; safe-launch explain ID tells more")
        terminal.show(hits_text(hits))
    else:
        terminal.say(f"none of {len(entries)} known failures matches or shares a word")
    return ExitCode.SUCCESS


def known_failures(folder: Path | None) -> tuple[KnownFailure, ...]:
    """The shipped catalogue and that of a folder of the user's.

    Raises:
        LaunchError: there is no such folder, or an entry doesn't follow the schema.
    """
    from .catalogue import read_catalogue

    if folder is None:
        return read_catalogue()
    if not folder.is_dir():
        raise LaunchError(ExitCode.USAGE, f"--catalogue {folder}: no such folder")
    return read_catalogue() + read_catalogue(folder)


def _parser(name: str, description: str) -> Parser:
    """A command's parser with the option that all of them have."""
    result = Parser(prog=f"safe-launch {name}", description=description, allow_abbrev=False)
    result.add_argument(
        "--catalogue",
        type=Path,
        metavar="FOLDER",
        help="a folder of further known failures, for a cluster's own",
    )
    return result
