"""Which command a command line is, and how the commands that need no script are run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ..core.errors import LaunchError
from ..options.parser import parser

COMMANDS = {
    "catalogue": "lookup",
    "completion": "completion",
    "diagnose": "lookup",
    "explain": "lookup",
    "fix": "fix",
    "hardware": "lookup",
    "lessons": "lessons",
    "metrics": "metrics",
    "report": "report_command",
    "runs": "runs",
    "status": "status",
    "template": "template.template_command",
    "warm": "warm",
    "wrap": "wrap",
}
"""The commands that need no script, by the module with a function of that name, imported when it is
run; `plan` takes the options of a launch."""


NO_FILE = frozenset({"-m", "--module", "--no-python", "--no_python"})
"""Options with which the first word is no script's file: a module or a program of that name."""
ABOUT_WORDS = frozenset({"-v", "--verbose", "-q", "--quiet"})
"""Options about how much is told; a command that has none of its own tells the same."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command line, split.

    Attributes:
        name: one of `COMMANDS` or `plan`; empty for a launch.
        words: what follows the name.
    """

    name: str
    words: Sequence[str]

    @property
    def is_launch(self) -> bool:
        """Whether workers are to be started."""
        return not self.name


def command_of(arguments: Sequence[str]) -> Command:
    """The command line, split; a script may have the name of a command."""
    before, rest = _before_the_first_word(arguments)
    name = rest[0] if rest else ""
    if name not in (*COMMANDS, "plan") or NO_FILE.intersection(before) or Path(name).is_file():
        return Command("", arguments)
    if name != "plan":
        before = [word for word in before if word not in ABOUT_WORDS]
    return Command(name, [*before, *rest[1:]])


def _before_the_first_word(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options at the beginning, and what follows; `-v plan` is the command as well."""
    if not arguments or not arguments[0].startswith("-"):
        return [], list(arguments)
    with suppress(LaunchError):  # an ambiguous one: the parser says so
        return parser().apart(arguments)
    return [], list(arguments)


def run_command(command: Command) -> int:
    """Runs one of `COMMANDS`."""
    module = import_module(f".{COMMANDS[command.name]}", __package__)
    return int(getattr(module, command.name)(command.words))
