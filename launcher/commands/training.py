"""The training that a command line describes, to be launched or planned."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..core.errors import ExitCode, LaunchError, reason_of
from ..core.placement import Placement
from ..core.version import VERSION
from ..frameworks.config_files import accelerate
from ..options import (
    node_options,
    output_options,
    plan_options,
    process_options,
    script_options,
)
from ..options.parser import by_files, by_variables, parsed, parser
from ..options.request_of import option_of, request_of
from ..session.training import Training
from ..system import terminal
from ..workload import contradictions
from .registry import COMMANDS


def run(
    stated: argparse.Namespace, here: Callable[[argparse.Namespace], int], *, is_launch: bool
) -> int:
    """Launches or plans a training, on the hosts that the options choose or here.

    Returns:
        The exit code.

    Raises:
        LaunchError: it isn't possible.
    """
    _check_folder()
    defaults = by_files(_folder_of(stated.script), os.environ)
    script = [] if stated.script is None else [stated.script, *stated.arguments]
    words = [word for default in defaults for word in default.words]
    options = parsed([*words, *by_variables(os.environ), *stated.option_words, "--", *script])
    options.arguments = script_options.with_local_rank(options)
    options.never_change[:0] = plan_options.unchanged_elsewhere(defaults, os.environ)
    terminal.be_quiet(wanted=is_launch and output_options.is_quiet(options, os.environ))
    terminal.be_verbose(wanted=options.verbose)
    if options.print_completion is not None:
        from . import completion

        return completion.show(options.print_completion)
    if options.json and is_launch:
        terminal.say("--json has no effect here: a launch prints no document; `plan --json` does")
    if options.version:
        terminal.show(f"safe-launch {VERSION}")
        return ExitCode.SUCCESS
    for file in dict.fromkeys(default.file for default in defaults):
        of_file = (word for each in defaults if each.file == file for word in each.words)
        terminal.tell(f"defaults {' '.join(of_file)} ({file})")
    hosts = node_options.chosen(
        options, partial(node_options.accelerators, options, is_launch=is_launch)
    )
    if hosts is None or options.script is None:
        return here(options)
    from ..nodes.ssh import launch_on_hosts

    def again(words: Sequence[str]) -> int:
        return run(parsed(words), here, is_launch=is_launch)

    script = [options.script, *options.arguments]
    return launch_on_hosts.launch_on_hosts(
        hosts, options.option_words, script, options, is_launch=is_launch, run=again
    )


def _check_folder() -> None:
    """Checks that the current folder is there.

    Raises:
        LaunchError: it isn't, or can't be entered.
    """
    try:
        Path.cwd()
    except OSError as error:
        problem = f"the current folder can't be used: {reason_of(error)}"
        raise LaunchError(problem, "it may have been removed: cd to another") from None


def _folder_of(script: str | None) -> Path:
    """The script's folder; the current one for a module, which is no file."""
    with suppress(OSError):  # it can't be looked at
        path = Path(script or ".")
        return (path.parent if path.is_file() else Path()).absolute()
    return Path.cwd()


def placement_of(options: argparse.Namespace, *, is_launch: bool) -> Placement:
    """This launcher's place among those of its job.

    Raises:
        LaunchError: sources contradict each other.
    """
    from ..schedulers import read_placement
    from ..schedulers.this_host import this_host

    stated = node_options.stated(options), options.node_timeout, os.environ, this_host()
    return read_placement.placement_of(*stated, is_launch=is_launch)


def training_of(
    options: argparse.Namespace, *, is_launch: bool, placement: Placement | None = None
) -> Training:
    """The training on this machine that the options describe, to be launched or only planned.

    Raises:
        LaunchError: they are incomplete or invalid.
    """
    from ..machine import detect, named_hardware
    from ..planning import named_presets
    from .catalogue import site_entries

    placement = placement or placement_of(options, is_launch=is_launch)
    hardware = detected = detect.detect()
    if options.hardware is not None:
        hardware = named_hardware.hardware_of(options.hardware, detected)
    configured, contradicted = accelerate.NONE, list[str]()
    if options.accelerate_config is not None:
        configured = accelerate.read(options.accelerate_config)
        file = str(options.accelerate_config)
        contradicted += contradictions.of_variables(configured.variables, os.environ, file)
        for name, value in configured.variables.items():
            os.environ.setdefault(name, value)
        if configured.devices and not hardware.accelerators and options.hardware is None:
            hardware = detect.unknown_devices(hardware, configured.devices)
    number, option = option_of(options.nproc, os.environ)
    if number and not hardware.accelerators and (count := detect.counted_by_torch(number)):
        hardware = detect.unknown_devices(hardware, f"{option} {number}", count)
    request = request_of(options, hardware, placement, configured, os.environ, [*COMMANDS])
    gpus = hardware.accelerators if hardware.accelerator.kind in ("cuda", "rocm") else 0
    elsewhere = None if is_launch or options.hardware is None else hardware
    request = process_options.applied(
        request, options, os.environ, gpus, is_launch=is_launch, elsewhere=elsewhere
    )
    decided = configured.workers, configured.source, request.nproc, request.nproc_source
    contradicted += contradictions.of_workers(*decided)
    notes = (
        *configured.notes,
        *contradicted,
        script_options.misplaced_line(request, parser().spellings),
    )
    if placement.is_head and any(notes):
        terminal.say(*filter(None, notes))
    if is_launch and options.hardware is not None:
        for problem in named_hardware.contradictions(hardware, detected, request.nproc):
            raise LaunchError(f"--hardware {options.hardware}: {problem}")
    wanted = named_presets.wanted(options.preset, options.set)
    return Training(request, hardware, site_entries(options.catalogue), wanted)
