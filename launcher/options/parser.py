"""Parses the command line, with one declaration per option."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..core.errors import LaunchError
from ..core.private_names import OPTION_ACTIONS
from ..system import terminal
from . import (
    configuration,
    node_options,
    output_options,
    plan_options,
    process_options,
    usage_errors,
)
from . import table as foreign
from .configuration import Default

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

CODE = "code on the command line can't be launched: write it into a file, and give that"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors use safe-launch's exit code."""

    def error(self, message: str) -> NoReturn:
        """Raises the error, for `main` to print.

        Raises:
            LaunchError: always.
        """
        is_code = message.split()[:3] == ["unrecognized", "arguments:", "-c"]
        hint = CODE if is_code else usage_errors.hint(message, self._option_string_actions)
        problem = usage_errors.sentence(message)
        is_unknown = message.startswith("unrecognized") and "--nproc" in self.spellings
        more = "; the script's go after it" if is_unknown else ""
        raise LaunchError(problem, hint or f"{self.prog} --help lists the options{more}")

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses the words, with options in any place.

        Raises:
            LaunchError: they are invalid.
        """
        if "--" in words:  # which argparse's way for intermixed words takes out
            return self.parse_args(words)
        return self.parse_intermixed_args(words)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Prints the help like any other document.

        Raises:
            LaunchError: it can't be written.
        """
        if file is not None:
            super().print_help(file)
        else:
            terminal.show(self.format_help())

    @property
    def spellings(self) -> frozenset[str]:
        """All spellings of its options, except for help, which every parser has."""
        return frozenset(self._option_string_actions) - {"-h", "--help"}

    def apart(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The leading options, spelled out, and all words from the first other word on.

        argparse classifies all words before parsing the first, differently in Python's versions;
        but words after a script must not influence those before it.

        Raises:
            LaunchError: an option's prefix is ambiguous.
        """
        options, rest = [], list(words)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            options.append(self._spelt_out(word))
            if rest and self._awaits_value(options[-1], rest[0]):
                options.append(rest.pop(0))
        return options, rest

    def _spelt_out(self, word: str) -> str:
        name, equals, value = word.partition("=")
        if value == "--" or (word[:2] != "--" and word[2:] == "--"):
            # argparse removes it from the values, leaving a list.
            self.error(f"argument {word[:-2].rstrip('=')}: `--` is no value")
        known = self._option_string_actions
        if not self.allow_abbrev or not name.startswith("--") or name in known:
            return word
        fitting = [option for option in known if option.startswith(name)]
        if len({known[option] for option in fitting}) > 1:
            self.error(f"ambiguous option: {name} could match {', '.join(fitting)}")
        return f"{fitting[0] if fitting else name}{equals}{value}"

    def _awaits_value(self, word: str, following: str) -> bool:
        """Whether the next word is this option's value: `--tee`, `-t`, `-qt`, but not `-t3`.

        Optional values come from a fixed set: `--ask off`, but not `--ask train.py`.
        """
        known = self._option_string_actions
        option = known.get(word)
        if option is not None and option.nargs == argparse.OPTIONAL:
            return following in (option.choices or ())
        names = [word] if word.startswith("--") else [f"-{letter}" for letter in word[1:]]
        with_value = [
            place for place, name in enumerate(names) if name in known and known[name].nargs is None
        ]
        return with_value[:1] == [len(names) - 1]


class ScriptParser(Parser):
    """A parser of options before a script or a command, whose words stay unchanged."""

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses the words: the options, `option_words`, `script` (may be None) and `arguments`.

        Raises:
            LaunchError: they are invalid.
        """
        option_words, command = self.apart(words)
        script = command.pop(0) if command else None
        if script is not None and _is_too_long(script):
            self.error(f"{script[:40]}...: no script has such a long name")
        known = {"option_words": option_words, "script": script, "arguments": command}
        return self.parse_args(option_words, argparse.Namespace(**known))


def parser() -> ScriptParser:
    """The parser of a launch's options, without the help's text on commands."""
    result = ScriptParser(prog="safe-launch")
    declare(result)
    return result


def declare(result: Parser) -> None:
    """Declares the options of a launch; torchrun's names if it has them, and shortened as there."""
    result.allow_abbrev = True
    foreign.add(result, "nproc_per_node", dest="nproc")
    foreign.add(result, "module")
    plan_options.declare(result)
    node_options.declare_nodes(result)
    node_options.declare_hosts(result)
    process_options.declare(result)
    output_options.declare(result)
    foreign.add_refusals(result)
    result.add_argument("--version", action="store_true", help="print the version")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses a command line: the options, `script` (may be None), and its `arguments`.

    Raises:
        LaunchError: the command line is invalid.
    """
    return parser().read(arguments)


def _is_too_long(name: str) -> bool:
    """Whether a name exceeds PATH_MAX or NAME_MAX (limits.h)."""
    path = os.fsencode(name)
    return len(path) > 4095 or max(map(len, path.split(b"/"))) > 255


def by_files(folder: Path, environment: Mapping[str, str]) -> list[Default]:
    """Options from configuration files of the script's folder and the user's variables.

    Raises:
        LaunchError: a file or a value in it is invalid.
    """
    defaults = configuration.defaults(lambda: OPTION_ACTIONS.of(parser()), folder, environment)
    for default in defaults:
        _check(default.words, f"{default.file}: {default.key}")
    return defaults


def by_variables(environment: Mapping[str, str]) -> list[str]:
    """Options from torchrun's PET_* variables and safe-launch's.

    Raises:
        LaunchError: a variable is invalid.
    """
    result: list[str] = []
    ours = configuration.by_variables(environment)
    for variable, words in (*foreign.by_variables(environment), *ours):
        _check(words, variable)
        result += words
    return result


def _check(words: Sequence[str], source: str) -> None:
    """Checks that words from elsewhere than the command line can be parsed.

    Raises:
        LaunchError: they can't; the message names the source.
    """
    try:
        parsed(words)
    except LaunchError as error:
        raise LaunchError(f"{source}: {error.problem}", error.hint, code=error.code) from error
