"""The parser of the command line: every option, declared once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..core.errors import MEANINGS, ExitCode, LaunchError
from ..core.private_names import OPTION_ACTIONS
from ..core.request import Fix
from ..system import terminal
from . import (
    check_options,
    configuration,
    host_options,
    never_change,
    node_options,
    output_options,
    process_options,
    refused_words,
)
from . import table as foreign
from .configuration import Default

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

CODE = "code on the command line can't be launched: write it into a file, and give that"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors end with our own exit code."""

    def error(self, message: str) -> NoReturn:
        """Raises the error, for `main` to print.

        Raises:
            LaunchError: always.
        """
        is_code = message.split()[:3] == ["unrecognized", "arguments:", "-c"]
        hint = CODE if is_code else refused_words.hint(message, self._option_string_actions)
        problem = refused_words.sentence(message)
        raise LaunchError(ExitCode.USAGE, problem, hint or f"{self.prog} --help lists the options")

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
        """The options at the beginning, spelt out, and all words from the first other word on.

        argparse classifies all words before it parses the first, which differs between Python's
        versions: words after a script must not influence those before it.

        Raises:
            LaunchError: an option's prefix is ambiguous.
        """
        own, rest = [], list(words)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            own.append(self._spelt_out(word))
            if rest and self._awaits_value(own[-1], rest[0]):
                own.append(rest.pop(0))
        return own, rest

    def _spelt_out(self, word: str) -> str:
        name, equals, value = word.partition("=")
        if value == "--" or (word[:2] != "--" and word[2:] == "--"):
            # argparse takes it out of the values, and leaves a list.
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

        A value that may be left out is one of few words: `--ask off`, but not `--ask train.py`.
        """
        known = self._option_string_actions
        option = known.get(word)
        if option is not None and option.nargs == argparse.OPTIONAL:
            return following in (option.choices or ())
        names = [word] if word.startswith("--") else [f"-{letter}" for letter in word[1:]]
        with_value = [place for place, name in enumerate(names) if _has_value(known.get(name))]
        return with_value[:1] == [len(names) - 1]


def _has_value(option: argparse.Action | None) -> bool:
    return option is not None and option.nargs is None


USAGE = """safe-launch [options] script.py [script arguments]
       safe-launch [options] -m module [script arguments]
       safe-launch plan [--ask] [options] script.py [script arguments]
       safe-launch completion bash|zsh|fish|tcsh
       safe-launch diagnose [--json] PATH...
       safe-launch catalogue [--json] [WORDS...]
       safe-launch explain [--json] [ID...]
       safe-launch fix [--apply] [RUN]
       safe-launch hardware [--json]
       safe-launch lessons [list|show|forget] [NAME]
       safe-launch metrics [--json] [RUN]
       safe-launch report [-o FILE] [RUN]
       safe-launch runs [list|show|prune] [RUN]
       safe-launch status [--json] [--watch] [--stacks] [RUN]
       safe-launch template slurm|kubernetes [options] script.py [script arguments]
       safe-launch warm [list|stop] [SCRIPT]
       safe-launch wrap [options] COMMAND..."""


CODES = "\n".join(f"  {code.value:<4}{text}" for code, text in MEANINGS.items())


COMMANDS_HELP = """\
  plan       print what would be launched, and launch nothing; --ask asks the script itself
  completion print what completes all this in a shell
  diagnose   name the root cause of a failed training from its logs
  catalogue  search the known failures by a message or by words, or list them
  explain    print known failures in full, or list them
  fix        show or write what makes a run's corrections last
  hardware   list the known accelerators, and show what was found on this host
  lessons    list, show or forget what corrected runs have taught
  metrics    print a run in OpenMetrics
  report     write a run as one HTML page
  runs       list the runs that are kept, or remove old ones
  status     show how far each rank of your runs has come, or how a run ended
  template   write a file for Slurm or Kubernetes, filled in for a job
  warm       list or end what launches with --keep-warm have left
  wrap       run a tool that calls torchrun, deepspeed or accelerate, and launch in their place"""
"""What each command does, a line each."""


EPILOG = f"""\
commands:
{COMMANDS_HELP}

exit codes:
{CODES}
  130, 143, ...  stopped by SIGINT, SIGTERM, ... (128 + its number)
  any other code is the failed worker's own, 128 + N if signal N ended it
"""


def parser() -> Parser:
    """The options, declared once; torchrun's names where it has them."""
    result = Parser(
        prog="safe-launch",
        usage=USAGE,
        description="Launches a distributed training script, catches its known failures and "
        "relaunches it with a corrected preset.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    foreign.add(result, "nproc_per_node", dest="nproc")
    foreign.add(result, "module")
    result.add_argument(
        "--fix",
        choices=[fix.value for fix in Fix],
        default=Fix.AUTO.value,
        help="auto: change what is known to fail; once: relaunch one time at most; suggest: "
        "change nothing, explain what would be changed (default: auto)",
    )
    result.add_argument(
        "--catalogue",
        type=Path,
        metavar="FOLDER",
        help="a folder with known failures of your own cluster",
    )
    result.add_argument(
        "--preset",
        metavar="NAME",
        help="start from a named preset (zero2, zero3-offload, ...) or a YAML file of one, instead "
        "of what the script asks for",
    )
    result.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="ask for one setting, e.g. --set zero_stage=2; may be given several times",
    )
    result.add_argument(
        "--accelerate-config",
        type=Path,
        metavar="FILE",
        help="a configuration of accelerate's, as `accelerate launch --config_file` takes it",
    )
    result.add_argument(
        "--strict",
        action="store_true",
        help="refuse to launch, or relaunch, where anything would be changed",
    )
    result.add_argument(
        "--allow-restart",
        "--allow_restart",
        action="store_true",
        help="let a correction restart the training from scratch where it can't resume from the "
        "checkpoints that the job has written; they are kept",
    )
    result.add_argument(
        "--ask",
        nargs="?",
        choices=["on", "off"],
        const=True,
        default="on",
        help="off: set only what is planned before the launch, not where workers ask (default: "
        "on); `plan --ask` asks the script before: it runs in one process, up to where its "
        "settings are known, and loads no weights",
    )
    result.add_argument(
        *(never_change.OPTION, "--never_change"),
        action="append",
        default=[],
        type=never_change.kept,
        metavar="NAME,...",
        help="settings that are never changed, e.g. zero_stage,micro_batch; may be given several "
        "times, which adds up",
    )
    check_options.declare(result)
    result.add_argument(
        "--forget",
        action="store_true",
        help="launch without what earlier runs of the script have taught; what is disproved by a "
        "run that trains at once is removed",
    )
    result.add_argument(
        "--hardware",
        metavar="NAME|FILE",
        help="plan for this accelerator or node, by the name or file of its profile, instead of "
        "what is found on this host",
    )
    result.add_argument(
        "--json", action="store_true", help="plan and most commands: print a document for programs"
    )
    result.add_argument(
        "--metrics",
        default="",
        metavar="FILE|:PORT",
        help="show how the run goes in OpenMetrics: at a port, or in a file that is written anew "
        "every 15 s; a file that ends in .jsonl gets a line of JSON each time",
    )
    node_options.declare(result)
    host_options.declare(result)
    process_options.declare(result)
    output_options.declare(result)
    foreign.add_refusals(result)
    result.add_argument("--version", action="store_true", help="print the version")
    return result


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses a command line: the options, `script` (may be None), and its `arguments`.

    Raises:
        LaunchError: it is invalid.
    """
    ours = parser()
    own, command = ours.apart(arguments)
    script = command.pop(0) if command else None
    if script is not None and _is_too_long(script):
        ours.error(f"{script[:40]}...: no script has such a long name")
    return ours.parse_args(own, argparse.Namespace(script=script, arguments=command))


def _is_too_long(name: str) -> bool:
    """Whether no file can have this name (PATH_MAX and NAME_MAX of limits.h)."""
    path = os.fsencode(name)
    return len(path) > 4095 or max(map(len, path.split(b"/"))) > 255


def by_files(folder: Path, environment: Mapping[str, str]) -> list[Default]:
    """The options that configuration files set, by the script's folder and the user's variables.

    Raises:
        LaunchError: a file is invalid, or what it says.
    """
    found = configuration.defaults(lambda: OPTION_ACTIONS.of(parser()), folder, environment)
    for default in found:
        try:
            parsed(default.words)
        except LaunchError as error:
            problem = f"{default.file}: {default.key}: {error.problem}"
            raise LaunchError(error.code, problem, error.hint) from error
    return found


def by_variables(environment: Mapping[str, str]) -> list[str]:
    """The options in torchrun's PET_* variables, and in our own.

    Raises:
        LaunchError: a variable is invalid.
    """
    result: list[str] = []
    own = configuration.by_variables(environment)
    for variable, words in (*foreign.by_variables(environment), *own):
        try:
            parsed(words)
        except LaunchError as error:
            raise LaunchError(error.code, f"{variable}: {error.problem}", error.hint) from error
        result += words
    return result
