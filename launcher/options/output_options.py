"""Options for the output of workers and launcher."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from ..core.output_routing import ERR, OUT, PREFIX, Streams, Which, which, words
from . import table
from .option import named_path

LEVELS = ("debug", "info", "warning", "error", "critical")
"""deepspeed's levels; the first two have no effect."""
SILENT = ("ERROR", "CRITICAL", "FATAL", "40", "50")
"""Values of LOGLEVEL above torchrun's own default, WARNING."""
TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
"""torchrun's variable with the prefix of a line of `--tee`."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    group = parser.add_argument_group("output")
    table.add(group, "log_dir", type=named_path)
    table.add(group, "redirects", type=_which("--redirects"), default=())
    table.add(group, "tee", type=_which("--tee"), default=())
    table.add(group, "log_line_prefix_template", default="")
    table.add(group, "local_ranks_filter", type=_ranks)
    table.add(group, "duplicate_stdout_filters", type=words, default=())
    table.add(group, "duplicate_stderr_filters", type=words, default=())
    table.add(group, "logs_specs", type=_specs)
    table.add(group, "print_completion")
    table.add(group, "enable_each_rank_log", default="None")
    table.add(group, "log_level", type=str.lower, choices=LEVELS, default="info", metavar=None)
    table.add(group, "quiet")
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print details: each value with its source, a plan's candidates, the cost of changes, "
        "causes of failures",
    )


def streams(options: argparse.Namespace, environment: Mapping[str, str]) -> Streams:
    """The destinations of the workers' output.

    Raises:
        LaunchError: the log path isn't a folder.
    """
    folder = None if options.enable_each_rank_log == "None" else Path(options.enable_each_rank_log)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise LaunchError(f"--enable_each_rank_log {folder} isn't a folder")
    filters = ((OUT, options.duplicate_stdout_filters), (ERR, options.duplicate_stderr_filters))
    return Streams(
        redirected=options.redirects,
        teed=options.tee,
        shown=options.local_ranks_filter,
        words=tuple(words for words in filters if words[1]),
        folder=folder,
        prefix=options.log_line_prefix_template or environment.get(TEMPLATE, PREFIX),
    )


def make_folder(routing: Streams) -> None:
    """Creates the folder of the ranks' logs, if requested.

    Raises:
        LaunchError: the folder can't be created.
    """
    if routing.folder is not None:
        try:
            routing.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"--enable_each_rank_log {routing.folder} can't be made"
            raise LaunchError.because(error, problem, code=ExitCode.CANNOT_WRITE) from error


def is_quiet(options: argparse.Namespace, environment: Mapping[str, str]) -> bool:
    """Whether the launcher is quiet, by its options or LOGLEVEL=ERROR."""
    level = environment.get("LOGLEVEL", "").upper()
    return options.quiet or options.log_level in LEVELS[2:] or level in SILENT


def _which(option: str) -> Callable[[str], Which]:
    def taken(text: str) -> Which:
        streams_by_rank = which(text)
        if streams_by_rank is None:
            problem = f"{option} {text}: 0, 1, 2 or 3 is needed, or LOCAL_RANK:N,..."
            raise LaunchError(problem, "1 is stdout, 2 stderr, 3 both")
        return streams_by_rank

    return taken


def _ranks(text: str) -> frozenset[int] | None:
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        problem = f"--local-ranks-filter {text}: numbers and commas are needed"
        raise LaunchError(problem, "as in 0,1")
    return frozenset(map(int, parts))


def _specs(text: str) -> str:
    if text != "default":
        problem = f"--logs-specs {text}: output goes through the launcher's own pipes"
        hint = "leave it out: --log-dir, --redirects, --tee choose where output goes"
        raise LaunchError(problem, hint)
    return text
