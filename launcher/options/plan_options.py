"""Options for the plan: its preset and settings, the corrections, the checks, the hardware."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping

from ..checks.finding import Check
from ..core.errors import LaunchError
from ..core.nearest import near
from ..core.request import Fix
from ..core.settings import Setting
from .configuration import Default
from .option import named_path

MUTE, NEVER_CHANGE = "--mute", "--never-change"
VARIABLE = "SAFE_LAUNCH_NEVER_CHANGE"
Unchanged = tuple[tuple[Setting, str], ...]
"""Settings that no plan may change, each with the source of its restriction."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    parser.add_argument(
        "--fix",
        choices=[fix.value for fix in Fix],
        default=Fix.AUTO.value,
        help="auto: change settings that are known to fail; once: the same, with at most one "
        "relaunch; suggest: change nothing, print the changes (default: auto)",
    )
    parser.add_argument(
        "--catalogue",
        type=named_path,
        metavar="FOLDER",
        help="folder with your cluster's known failures",
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="start from a preset (zero2, zero3-offload, ..., or a YAML file) instead of the "
        "script's settings",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="request a setting, e.g. --set zero_stage=2; repeatable",
    )
    parser.add_argument(
        "--accelerate-config",
        type=named_path,
        metavar="FILE",
        help="accelerate configuration, as for `accelerate launch --config_file`",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse to launch or relaunch if any setting would be changed",
    )
    parser.add_argument(
        "--allow-restart",
        "--allow_restart",
        action="store_true",
        help="let a correction restart training from scratch if it can't resume from the job's "
        "checkpoints, which are kept",
    )
    parser.add_argument(
        "--ask",
        nargs="?",
        choices=["on", "off"],
        const=True,
        default="on",
        help="off: change settings only before the launch, never inside the workers (default: on); "
        "`plan --ask` runs the script in one process until its settings are known, without "
        "loading weights",
    )
    parser.add_argument(
        *(NEVER_CHANGE, "--never_change"),
        action="append",
        default=[],
        type=unchanged,
        metavar="NAME,...",
        help="settings that must not be changed, e.g. zero_stage,micro_batch; repeatable",
    )
    parser.add_argument(
        "--check",
        choices=["on", "off", "strict"],
        default="on",
        help="on: report silent training faults, in a line each; strict: also end the run at the "
        "first that is certain; off: no checks (default: on)",
    )
    parser.add_argument(
        MUTE,
        action="append",
        default=[],
        type=_muted,
        metavar="NAME,...",
        help=f"checks to skip, of {', '.join(Check)}; repeatable",
    )
    parser.add_argument(
        "--forget",
        action="store_true",
        help="ignore lessons from earlier runs, and delete those that this run disproves",
    )
    parser.add_argument(
        "--hardware",
        metavar="NAME|FILE",
        help="plan for this accelerator or node (a profile's name or file) instead of this host's",
    )
    parser.add_argument("--json", action="store_true", help="plan and most commands: print JSON")
    parser.add_argument(
        "--metrics",
        default="",
        metavar="FILE|:PORT",
        help="publish progress as OpenMetrics at a port or in a file, updated every 15 s; a .jsonl "
        "file gets one line of JSON per update",
    )


def _muted(text: str) -> tuple[str, ...]:
    """Parses names of checks, separated by commas.

    Raises:
        LaunchError: a check is unknown.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in list(Check):
            raise LaunchError(f"{MUTE}: no check `{name}`", near(name, list(Check)))
    return names


def unchanged(text: str, source: str = NEVER_CHANGE) -> Unchanged:
    """Parses names of settings that no plan may change, separated by commas.

    Raises:
        LaunchError: a setting is unknown.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in list(Setting):
            raise LaunchError(f"{source}: no setting `{name}`", near(name, list(Setting)))
    return tuple((Setting(name), source) for name in names)


def unchanged_elsewhere(
    defaults: Iterable[Default], environment: Mapping[str, str]
) -> Iterator[Unchanged]:
    """Such settings from files and the variable, with their sources; all are valid."""
    key = NEVER_CHANGE.strip("-")
    for default in defaults:
        if default.key.strip("-").replace("_", "-") == key:
            for word in default.words:
                yield unchanged(word.partition("=")[2], f"{key} in {default.file}")
    yield unchanged(environment.get(VARIABLE, ""), f"${VARIABLE}")


def unchanged_once(stated: Iterable[Unchanged]) -> Unchanged:
    """Every such setting once, by the first source."""
    sources: dict[Setting, str] = {}
    for setting, source in (pair for pairs in stated for pair in pairs):
        sources.setdefault(setting, source)
    return tuple(sources.items())
