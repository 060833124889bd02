"""deepspeed's options for the hosts of a launch."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable

from ..core.errors import LaunchError
from ..core.nearest import near
from ..core.placement import PORT
from ..core.reasons import reason_of
from ..schedulers.this_host import this_host
from . import host_choice, hostfile, table
from .host_choice import Asked, HostChoice, Shell, contradiction
from .option import named_path

LAUNCHERS = ("ssh", "pdsh")
"""Supported launchers. deepspeed's pdsh only starts an ssh for each host (it sets
PDSH_RCMD_TYPE=ssh), and doesn't pass on standard input, which the job needs here; so ssh is
started directly."""
_MPIRUN = "mpirun -np HOSTS -ppn 1"
STARTERS = {
    "openmpi": ("mpirun", "mpirun --hostfile FILE --map-by ppr:1:node"),
    "mpich": ("mpirun", _MPIRUN),
    "impi": ("mpirun", _MPIRUN),
    "mvapich": ("mpirun", _MPIRUN),
    "slurm": ("srun", "srun --ntasks-per-node=1"),
}
"""deepspeed's other launchers: the program that starts processes, and its command."""
CHOOSING = ("hostfile", "include", "exclude", "num_nodes", "num_gpus")
"""Options that choose hosts or devices."""
EXCLUDES = ("nproc", "nnodes", "node_rank", "rdzv_endpoint", "rdzv_id", "standalone")
"""Options already determined by the hosts."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    group = parser.add_argument_group("hosts, reached over ssh from here")
    table.add(group, "hostfile", type=named_path)
    table.add(group, "include", default="")
    table.add(group, "exclude", default="")
    table.add(group, "num_nodes", type=int)
    table.add(group, "num_gpus", type=int)
    table.add(group, "ssh_port", type=int)
    table.add(group, "launcher", type=_launcher)
    table.add(group, "launcher_args", default="")
    table.add(group, "force_multi")
    table.add(group, "no_ssh")
    table.add(group, "no_ssh_check")
    table.add(group, "venv_script", default="")


def _launcher(text: str) -> str:
    """Parses --launcher.

    Raises:
        LaunchError: the launcher starts processes itself, or is unknown.
    """
    name = text.lower()
    if name in STARTERS:
        problem = f"--launcher {name}: safe-launch doesn't start {STARTERS[name][0]}, it runs in it"
        raise LaunchError(problem, f"{STARTERS[name][1]} safe-launch SCRIPT ...")
    if name not in LAUNCHERS:
        raise LaunchError(f"--launcher {text!r} is unknown", near(name, (*LAUNCHERS, *STARTERS)))
    return name


def asked(given: argparse.Namespace) -> Asked:
    """Parses the options.

    Raises:
        LaunchError: the further options of ssh can't be split.
    """
    try:
        shell = Shell(given.ssh_port, tuple(shlex.split(given.launcher_args)))
    except ValueError as error:
        raise LaunchError(f"--launcher_args {given.launcher_args!r}: {reason_of(error)}") from error
    return Asked(
        hostfile=given.hostfile,
        include=given.include,
        exclude=given.exclude,
        nodes=None if given.num_nodes == -1 else given.num_nodes,
        devices=None if given.num_gpus == -1 else given.num_gpus,
        address=given.master_addr or "",
        port=int(given.master_port or PORT),
        shell=shell,
        force=given.force_multi,
        venv_script=given.venv_script,
        forwarded=given.signals_to_handle,
    )


def chosen(values: argparse.Namespace, devices: Callable[[], int]) -> HostChoice | None:
    """The hosts to launch on; None if none are named.

    Also uses deepspeed's default hostfile, unless another source sets the number of launchers.

    Raises:
        LaunchError: the options contradict each other, the hostfile, or other sources.
    """
    given = vars(values)
    stated = [f"--{name.replace('_', '-')}" for name in CHOOSING if given[name] not in (None, "")]
    if not stated and not hostfile.DEFAULT.is_file():
        return None
    excluded = [
        name for name in EXCLUDES if given[name] and not (values.no_ssh and name == "node_rank")
    ]
    said = [f"--{name.replace('_', '-')} {given[name]}" for name in excluded]
    other = contradiction(said, os.environ, this_host())
    if other is not None and stated:
        problem = f"{stated[0]} and {other} both say what is launched where"
        raise LaunchError(problem, "leave one of them out")
    if other is not None:
        return None
    file = values.hostfile or (hostfile.DEFAULT if hostfile.DEFAULT.is_file() else None)
    return host_choice.chosen(asked(values), file, devices() if file is None else 0)


def accelerators(options: argparse.Namespace, *, is_launch: bool) -> int:
    """The number of devices of this host, or of a plan's.

    Raises:
        LaunchError: --hardware names an unknown profile.
    """
    from ..machine import detect, named_hardware

    found = detect.detect()
    if is_launch or options.hardware is None:
        return found.accelerators
    return named_hardware.hardware_of(options.hardware, found).accelerators
