"""Makes the request of a launch from its options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.placement import Placement
from ..core.request import CheckOptions, Fix, LaunchRequest, Limits, WorkerOptions
from ..frameworks.config_files.accelerate import Configuration
from . import check_options, never_change, output_options
from .usage_errors import refuse_misspelt_command
from .worker_count import option_of, shows_all_devices, workers_of


def request_of(
    options: argparse.Namespace,
    hardware: Hardware,
    placement: Placement,
    configured: Configuration,
    environment: Mapping[str, str],
    commands: Sequence[str],
) -> LaunchRequest:
    """The launch that the options describe; `commands` may be misspelt as a script.

    Raises:
        LaunchError: they are incomplete or invalid.
    """
    if options.script is None:
        hint = "safe-launch [options] script.py ...; safe-launch --help lists the options"
        raise LaunchError("no script is given", hint)
    if not (options.module or options.no_python or os.path.lexists(options.script)):
        refuse_misspelt_command(options.script, commands)
    number, option = option_of(options.nproc, environment)
    if number is None and placement.nproc is None and configured.workers is not None:
        number, option = str(configured.workers), configured.source
    nproc, source = workers_of(
        number, hardware.accelerator.name, hardware.accelerators, hardware.cores, placement, option
    )
    shows_all = shows_all_devices(placement, nproc, hardware.accelerators)
    return LaunchRequest(
        script=options.script,
        is_module=options.module,
        arguments=tuple(options.arguments),
        nproc=nproc,
        nproc_source=source,
        log_dir=options.log_dir,
        metrics=options.metrics,
        limits=Limits(
            *(Fix(options.fix), options.strict, options.allow_restart),
            forget=options.forget,
            asks=options.ask != "off",
            never_changed=never_change.together(options.never_change),
        ),
        worker_options=WorkerOptions(
            streams=output_options.streams(options, environment),
            checks=CheckOptions(options.check, check_options.together(options.mute)),
        ),
        placement=replace(placement, shows_all_devices=shows_all),
    )
