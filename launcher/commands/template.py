"""`safe-launch template`: the files of `scripts/` for a cluster, filled in for a job."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from ..options.option import named_path
from ..options.parser import Parser, ScriptParser
from ..system import terminal
from .cluster_files import (
    TemplateJob,
    add_batch_options,
    add_manifest_options,
    at_least,
    batch_script,
    manifest,
)

EPILOG = """\
Everything after the options is what you would type after safe-launch: its options after --, the
script, the script's arguments.
"""


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of file that can be filled in.

    Attributes:
        fill: returns the file's text for a job, given these options.
        mode: of a new file, before the umask.
    """

    summary: str
    add_options: Callable[[argparse.ArgumentParser], object]
    fill: Callable[[TemplateJob, argparse.Namespace], str]
    mode: int = 0o666


TEMPLATES = {
    "kubernetes": Template(
        *("a manifest for Kubernetes", add_manifest_options, manifest),
        mode=0o600,  # it has a secret
    ),
    "slurm": Template("a batch script for Slurm", add_batch_options, batch_script),
}
"""The kinds, by the command's first word."""


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    kinds = ", ".join(f"{name} ({kind.summary})" for name, kind in TEMPLATES.items())
    parser.epilog = f"kinds: {kinds}; safe-launch template KIND --help lists the options of one"


def run(options: argparse.Namespace) -> int:
    """Writes a file for a cluster, filled in.

    Raises:
        LaunchError: no such template, a wrong option, or the file already exists.
    """
    kind, words = options.script, options.arguments
    if kind not in TEMPLATES:
        problem = f"there is no template `{kind}`" if kind else "template of what?"
        raise LaunchError(problem, f"there are: {', '.join(TEMPLATES)}")
    chosen = TEMPLATES[kind]
    options = _parser(kind, chosen).read(words)
    if options.script is None:
        problem = f"template {kind}: no script is given"
        raise LaunchError(problem, f"safe-launch template {kind} --nodes 2 script.py ...")
    command = options.script, *options.arguments
    job = TemplateJob(options.name, options.nodes, options.gpus_per_node, command)
    text = chosen.fill(job, options)
    if options.output is None:
        terminal.show(text)
    else:
        _write(options.output, text, chosen.mode, force=options.force)
        terminal.say(f"written: {options.output}")
    return ExitCode.SUCCESS


def _parser(name: str, chosen: Template) -> ScriptParser:
    """The options of one template."""
    result = ScriptParser(
        prog=f"safe-launch template {name}",
        usage=f"safe-launch template {name} [options] [--] [safe-launch options] script.py ...",
        description=f"Writes {chosen.summary}, filled in for a job.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument("--name", help="name of the job (default: the script's)")
    result.add_argument(
        "--nodes", type=at_least(1), default=1, metavar="N", help="how many nodes (default: 1)"
    )
    result.add_argument(
        "--gpus-per-node",
        type=at_least(0),
        default=1,
        metavar="N",
        help="accelerators, and workers, of a node; 0 to train on CPUs (default: 1)",
    )
    chosen.add_options(result)
    result.add_argument(
        "-o", "--output", type=named_path, metavar="FILE", help="write to this file, not to stdout"
    )
    result.add_argument("--force", action="store_true", help="replace FILE if it exists")
    return result


def _write(path: Path, text: str, mode: int, *, force: bool) -> None:
    """Writes the file; replaces an existing file only with `force`.

    Raises:
        LaunchError: it exists, or can't be written.
    """
    try:
        way = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
        with os.fdopen(os.open(path, way, mode), "w") as file:
            file.write(text)
    except FileExistsError:
        problem = f"{path} already exists"
        raise LaunchError(problem, "--force replaces it", code=ExitCode.CANNOT_WRITE) from None
    except OSError as error:
        problem = f"{path} can't be written"
        raise LaunchError.because(error, problem, code=ExitCode.CANNOT_WRITE) from error
