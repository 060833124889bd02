"""The registry of commands: finds the command of a command line, with its help, and runs it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from ..core.errors import MEANINGS, LaunchError
from ..options.parser import Parser, ScriptParser, parser

PAGES = "https://github.com/safe-launch/safe-launch/blob/main/docs/using/"
"""The address of the documentation's pages."""
NO_FILE = frozenset({"-m", "--module", "--no-python", "--no_python"})
"""Options with which the first word is a module or a program, not a script's file."""
ABOUT_WORDS = frozenset({"-v", "--verbose", "-q", "--quiet"})
"""Options about how much is printed; commands without them print the same."""


class Module(Protocol):
    """The module of a command, which has the command's name and is imported when it is run."""

    def declare(self, parser: Parser) -> None:
        """Declares the arguments; may add to the help's epilog."""

    def run(self, options: argparse.Namespace) -> int:
        """Runs the command; returns the exit code."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, as its help, the completion, the manual page and the documentation show it.

    Attributes:
        name: the word on the command line, and its module in this folder; empty for `launch`.
        words: what follows the name, for the usage.
        summary: what it does, in one line.
        page: its page below docs/using, with an anchor if need be.
        before_script: its options precede a script, or a command, whose words stay as they are.
        only_prints: it launches nothing; `-v` or `-q` before it sets how much it prints.
    """

    name: str
    words: str
    summary: str
    page: str
    before_script: bool = False
    only_prints: bool = False

    @property
    def usage(self) -> str:
        """The usage of the command."""
        return " ".join(filter(None, ("safe-launch", self.name, self.words)))

    @property
    def module(self) -> Module:
        """The module, imported."""
        module: Module = import_module(f".{self.name or 'launch'}", __package__)
        return module

    def parser(self) -> Parser:
        """The parser of its arguments; all commands' help has the same layout."""
        made = ScriptParser if self.before_script else Parser
        result = made(
            prog=f"safe-launch {self.name}".rstrip(),
            usage=self.usage,
            description=f"{self.summary[0].upper()}{self.summary[1:]}.",
            epilog="",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.module.declare(result)
        result.epilog = "\n\n".join(filter(None, (result.epilog, f"more: {PAGES}{self.page}")))
        return result


SCRIPT = "[options] script.py [script arguments]"
LAUNCH = Command(
    *("", SCRIPT),
    "launch a distributed training script, catch its known failures and relaunch it with a "
    "corrected preset",
    *("commands.md#options", True),
)
ROWS = (
    Command(
        *("catalogue", "[options] [WORDS...]"),
        "search the known failures by a message or by words, or list them",
        "failures.md",
    ),
    Command(
        *("completion", "bash|zsh|fish|tcsh"),
        "print a script that completes commands, options and files in a shell",
        "commands.md",
    ),
    Command(
        *("diagnose", "[options] PATH..."),
        "name the root cause of a failed training from its logs, whatever the launcher",
        "diagnose.md",
    ),
    Command(
        *("explain", "[options] [ID...]"),
        "print known failures in full, or list them; wrong-loss: what to try if nothing is raised",
        "failures.md",
    ),
    Command(
        *("fix", "[options] [RUN]"),
        "show the edits that make a run's corrections permanent, or write them",
        "corrections.md#so-that-it-lasts",
    ),
    Command(
        *("hardware", "[options]"),
        "list the known accelerators, and show this host's hardware",
        "hardware.md",
    ),
    Command(
        *("lessons", "[options] [list|show|forget] [NAME]"),
        "list, show or forget the lessons of your scripts' corrected runs",
        "lessons.md",
    ),
    Command(
        *("metrics", "[options] [RUN]"),
        "print a run in OpenMetrics; a launch does so with --metrics as long as it runs",
        "metrics.md",
    ),
    Command(
        *("plan", f"[--ask] {SCRIPT}"),
        "print what would be launched, and launch nothing; --ask asks the script itself",
        *("planning.md", True),
        only_prints=True,
    ),
    Command(
        *("report", "[options] [RUN]"),
        "write a run, or a folder of runs with an index, as HTML pages that load nothing",
        "reports.md",
    ),
    Command(
        *("runs", "[options] [list|show|prune] [RUN]"),
        "list the kept runs, the latest first, or remove old ones",
        "commands.md#the-run-directory",
    ),
    Command(
        *("status", "[options] [RUN]"),
        "show how far each rank of your runs has come, or how a run ended",
        "status.md",
    ),
    Command(
        *("template", f"slurm|kubernetes {SCRIPT}"),
        "write a file for Slurm or Kubernetes, filled in for a job",
        *("kubernetes.md", True),
    ),
    Command(
        *("warm", "[options] [list|stop] [SCRIPT]"),
        "list or end the processes left by launches with --keep-warm",
        "keep-warm.md",
    ),
    Command(
        *("wrap", "[options] COMMAND..."),
        "run a tool that calls torchrun, deepspeed or accelerate, and launch in their place",
        *("wrap.md", True),
    ),
)
COMMANDS: Mapping[str, Command] = {command.name: command for command in ROWS}
"""The commands by their names; a command line without one of them launches."""
USAGE = "\n       ".join(
    [LAUNCH.usage, "safe-launch [options] -m module [script arguments]"]
    + [command.usage for command in ROWS]
)
CODES = "\n".join(f"  {code.value:<4}{text}" for code, text in MEANINGS.items())
EPILOG = f"""\
commands (safe-launch COMMAND --help has more):
{chr(10).join(f"  {command.name:<11}{command.summary}" for command in ROWS)}

exit codes:
{CODES}
  130, 143, ...  stopped by SIGINT, SIGTERM, ... (128 + its number)
  any other code is the failed worker's own, 128 + N if signal N ended it

more: {PAGES}{LAUNCH.page}
"""


def launch_parser() -> Parser:
    """The parser of a launch, whose help lists the commands."""
    result = LAUNCH.parser()
    result.usage, result.epilog = USAGE, EPILOG
    return result


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit code.

    Raises:
        LaunchError: it isn't possible.
    """
    command, words = split(arguments)
    reader = command.parser() if command.name else launch_parser()
    return command.module.run(reader.read(words))


def split(arguments: Sequence[str]) -> tuple[Command, list[str]]:
    """The command of a command line, and its words.

    A script may have the name of a command.
    """
    before, rest = _before_the_first_word(arguments)
    command = COMMANDS.get(rest[0]) if rest else None
    if command is None or NO_FILE.intersection(before) or Path(command.name).is_file():
        return LAUNCH, list(arguments)
    if not command.only_prints:
        before = [word for word in before if word not in ABOUT_WORDS]
    return command, [*before, *rest[1:]]


def _before_the_first_word(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options at the beginning, and what follows; `-v plan` is the command as well."""
    if arguments and arguments[0].startswith("-"):
        with suppress(LaunchError):  # an ambiguous one: the parser reports it
            return parser().apart(arguments)
    return [], list(arguments)
