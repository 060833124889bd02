"""Makes the request of a launch from its options: the script, its workers, the limits."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.placement import Placement
from ..core.quantities import count_of
from ..core.request import CheckOptions, Fix, LaunchRequest, Limits, WorkerOptions
from ..frameworks.config_files.accelerate import Configuration
from ..schedulers.reported import whole
from . import output_options
from .plan_options import unchanged_once
from .usage_errors import refuse_misspelt_command


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
            never_changed=unchanged_once(options.never_change),
        ),
        worker_options=WorkerOptions(
            streams=output_options.streams(options, environment),
            checks=CheckOptions(options.check, tuple(dict.fromkeys(chain(*options.mute)))),
        ),
        placement=replace(placement, shows_all_devices=shows_all),
    )


def option_of(number: str | None, environment: Mapping[str, str]) -> tuple[str | None, str]:
    """The number from --nproc or torchrun's variable, and its source."""
    variable = environment.get("PET_NPROC_PER_NODE")
    if number is None and variable:
        return variable, "PET_NPROC_PER_NODE"
    return number, "--nproc"


def workers_of(
    number: str | None,
    kind: str,
    accelerators: int,
    cores: int,
    placement: Placement,
    option: str = "--nproc",
) -> tuple[int, str]:
    """The number of workers and its source.

    Args:
        number: value of --nproc, if any.
        kind: kind of the accelerators; `unknown` if only torch can count them.
        accelerators: number of accelerators.
        cores: CPU cores of this process.
        placement: this node's placement, with the scheduler's number.
        option: the option or variable with the value `number`.

    Raises:
        LaunchError: the value is invalid, accelerators are missing, or the scheduler has started a
            launcher per worker.
    """
    match number:
        case None if placement.nproc is not None:
            differs = accelerators != placement.nproc
            note = f"; {accelerators or 'none'} found" if differs else ""
            count = min(placement.nproc, accelerators or placement.nproc)
            return count, f"{placement.nproc_source}{note}"
        case None:
            return (accelerators, f"every {kind}") if accelerators else (1, "no accelerator found")
        case "auto" if not accelerators:
            count, reason = cores, ": one for each core, no accelerator found"
        case "auto" | "gpu" | "npu" | "cuda" if accelerators:
            count, reason = accelerators, f": every {kind}"
        case "gpu" | "npu" | "cuda":
            raise LaunchError(
                f"{option} {number}: no accelerator was found on this host",
                "on a machine without one give a number, or --nproc cpu",
            )
        case "cpu":
            count, reason = cores, ": one for each core"
        case _ if accelerators and kind == "unknown" and number.isidentifier():
            count, reason = accelerators, ": every device that torch counts"
        case _:
            if not number.isascii() or not number.lstrip("+-").isdigit():
                problem = f"{option} {number!r} is neither a whole number nor auto, gpu or cpu"
                raise LaunchError(problem)
            if number.startswith("-") or not (count := whole(number.lstrip("+"), option)):
                raise LaunchError(f"{option} {number}: at least one worker is needed")
            reason = ""
    exact = placement.nproc if placement.beside > 1 else None
    if exact is not None and count != exact:
        raise LaunchError(
            f"{option} {number} asks for {count} of each launcher, but the scheduler has started "
            f"{count_of(placement.beside, 'launcher')} on this host ({placement.nproc_source})",
            f"leave {option} out, or start one task a node",
        )
    return count, f"{option} {number}{reason}"


def shows_all_devices(placement: Placement, nproc: int, accelerators: int) -> bool:
    """Whether this launcher also sees the devices of the other launchers on its host."""
    return not 0 < accelerators < nproc * placement.beside
