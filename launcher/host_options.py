"""deepspeed's options for the hosts of a launch."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from . import hostfile, options, over_ssh, process_options, terminal
from .documents import near
from .exit_code import ExitCode, LaunchError
from .over_ssh import Asked, Chosen, contradiction
from .placement import PORT, JoinTimes
from .schedulers.here import this_host
from .ssh import Shell

LAUNCHERS = ("ssh", "pdsh")
"""Ways to the hosts. deepspeed's pdsh does nothing but start an ssh for each host (it sets
PDSH_RCMD_TYPE=ssh), and hands on no standard input, over which a job travels here; so ssh is
started without it."""
_MPIRUN = "mpirun -np HOSTS -ppn 1"
STARTERS = {
    "openmpi": ("mpirun", "mpirun --hostfile FILE --map-by ppr:1:node"),
    "mpich": ("mpirun", _MPIRUN),
    "impi": ("mpirun", _MPIRUN),
    "mvapich": ("mpirun", _MPIRUN),
    "slurm": ("srun", "srun --ntasks-per-node=1"),
}
"""deepspeed's other ways: what starts the processes, and the command that starts ours by it."""
MARGIN = 10.0
"""Seconds for the nodes' verdict beyond the time in which they notice a silent one and stop."""
CHOOSING = ("hostfile", "include", "exclude", "num_nodes", "num_gpus")
"""Options that choose hosts or devices."""
EXCLUDES = ("nproc", "nnodes", "node_rank", "rdzv_endpoint", "rdzv_id", "standalone")
"""Options that say what the hosts say already."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a command's."""
    group = parser.add_argument_group("hosts, reached over ssh from here")
    options.add(group, "hostfile", type=Path)
    options.add(group, "include", default="")
    options.add(group, "exclude", default="")
    options.add(group, "num_nodes", type=int)
    options.add(group, "num_gpus", type=int)
    options.add(group, "ssh_port", type=int)
    options.add(group, "launcher", type=_launcher, default="ssh")
    options.add(group, "launcher_args", default="")
    options.add(group, "force_multi")
    options.add(group, "no_ssh")
    options.add(group, "no_ssh_check")
    options.add(group, "venv_script", default="")


def _launcher(text: str) -> str:
    """A way to the hosts.

    Raises:
        LaunchError: it starts processes by itself, or is unknown.
    """
    name = text.lower()
    if name in STARTERS:
        problem = f"--launcher {name}: safe-launch doesn't start {STARTERS[name][0]}, it runs in it"
        raise LaunchError(ExitCode.USAGE, problem, f"{STARTERS[name][1]} safe-launch SCRIPT ...")
    if name not in LAUNCHERS:
        problem = f"--launcher {text!r} is unknown"
        raise LaunchError(ExitCode.USAGE, problem, near(name, (*LAUNCHERS, *STARTERS)))
    return name


def asked(given: argparse.Namespace) -> Asked:
    """What the options say.

    Raises:
        LaunchError: the further options of ssh can't be taken apart.
    """
    try:
        shell = Shell(given.ssh_port, tuple(shlex.split(given.launcher_args)))
    except ValueError as error:
        problem = f"--launcher_args {given.launcher_args!r}: {error}"
        raise LaunchError(ExitCode.USAGE, problem) from error
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


def chosen(values: argparse.Namespace) -> Chosen | None:
    """The hosts to launch on; None where nobody says anything of them.

    deepspeed's own place for a hostfile is looked at too, unless something else says how many
    launchers there are.

    Raises:
        LaunchError: what is asked for contradicts itself, the hostfile, or what else is said.
    """
    given = vars(values)
    stated = [f"--{one.replace('_', '-')}" for one in CHOOSING if given[one] not in (None, "")]
    if not stated and not hostfile.DEFAULT.is_file():
        return None
    excluded = [
        one for one in EXCLUDES if given[one] and not (values.no_ssh and one == "node_rank")
    ]
    said = [f"--{one.replace('_', '-')} {given[one]}" for one in excluded]
    other = contradiction(said, os.environ, this_host())
    if other is not None and stated:
        problem = f"{stated[0]} and {other} both say what is launched where"
        raise LaunchError(ExitCode.USAGE, problem, "leave one of them out")
    if other is not None:
        return None
    file = values.hostfile or (hostfile.DEFAULT if hostfile.DEFAULT.is_file() else None)
    accelerators = 0
    if file is None:
        from . import detection

        accelerators = detection.detect().accelerators
    return over_ssh.chosen(asked(values), file, accelerators)


def without_hosts(own: Sequence[str]) -> list[str]:
    """The launcher's own options, which are spelt out, but for those about hosts."""
    ours = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare(ours)
    for name in ("master_addr", "master_port", "node_rank"):
        options.add(ours, name)
    return ours.parse_known_args(own)[1]


def launch(
    chosen: Chosen,
    own: Sequence[str],
    command: Sequence[str],
    values: argparse.Namespace,
    is_launch: bool,
    run: Callable[[Sequence[str]], int],
) -> int:
    """Launches on the hosts; without ssh where this machine is all there is, or for a plan.

    Args:
        chosen: the hosts.
        own: the launcher's options, spelt out.
        command: the script and its arguments.
        values: what all this says.
        is_launch: more than a plan is wanted.
        run: does what a command line says that has nothing of a hostfile.

    Raises:
        LaunchError: it can't be done as it is.
    """
    own = without_hosts(own)
    if values.no_ssh and is_launch:
        rank, host = over_ssh.part_of(chosen, values.node_rank)
        os.environ.update(over_ssh.variables_here(host.slots, os.environ))
        return run([*own, *over_ssh.placed(chosen, rank), *command])
    if is_launch and not chosen.is_here:
        silence = JoinTimes().silence if values.node_timeout is None else values.node_timeout
        times = process_options.stop_times(values, os.environ)
        patience = silence + times.leave + times.terminate + MARGIN
        return over_ssh.launch(chosen, own, command, patience)
    slots = {len(host.slots) for host in chosen.hosts}
    if len(slots) > 1:
        problem = f"{chosen.source}: a plan needs the same number of slots on every host"
        raise LaunchError(ExitCode.USAGE, problem, "--num_gpus N takes so many of each")
    if chosen.is_here:
        os.environ.update(over_ssh.variables_here(chosen.hosts[0].slots, os.environ))
    if chosen.hosts[0].line:
        terminal.tell(*terminal.table([chosen.row()], indent=0))
    return run([*own, "--nnodes", str(len(chosen.hosts)), "--nproc", str(slots.pop()), *command])
