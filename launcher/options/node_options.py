"""Options for a job's nodes: torchrun's, and deepspeed's for hosts that are reached over ssh."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import LaunchError
from ..core.nearest import near
from ..core.placement import PORT, JoinTimes
from ..core.quantities import count_of
from ..schedulers.read_placement import SCHEDULERS
from ..schedulers.this_host import Here, owns, this_host
from ..schedulers.torchrun_options import OPTIONS, seconds
from ..system.regular_files import text_of
from ..system.terminal import Row
from . import hostfile, table
from .foreign_options import NODES
from .hostfile import Host
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


@dataclass(frozen=True, slots=True)
class Shell:
    """Options of ssh.

    Attributes:
        port: port of the ssh servers; None for ssh's own configuration.
        arguments: further options of ssh, before safe-launch's, as ssh uses the first.
    """

    port: int | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The user's options for hosts, in deepspeed's terms.

    Attributes:
        include: the hosts and devices to use; empty for all.
        exclude: the hosts and devices to leave out; empty for none.
        nodes: number of first hosts to use; None for all.
        devices: number of first devices to use per host; None for all.
        address: the first host's address for the others; empty to ask ssh.
        port: the port of the first host's launcher.
        shell: the options of ssh.
        force: use ssh even if this machine is the only host.
        venv_script: a script for the shell to source before starting a launcher; empty for none.
        forwarded: further signals to pass on to the workers.
    """

    include: str = ""
    exclude: str = ""
    nodes: int | None = None
    devices: int | None = None
    address: str = ""
    port: int = PORT
    shell: Shell = field(default_factory=Shell)
    force: bool = False
    venv_script: str = ""
    forwarded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The hosts of a launch.

    Attributes:
        hosts: the hosts in order of their ranks.
        source: the file or option that names them.
        options: the user's options.
        is_here: whether this machine is the only host, without ssh.
    """

    hosts: tuple[Host, ...]
    source: str
    options: HostOptions
    is_here: bool

    def row(self) -> Row:
        """The hosts as a printed row."""
        counts = {len(host.slots) for host in self.hosts}
        if len(counts) == 1:
            names = ", ".join(host.name for host in self.hosts)
            words = count_of(counts.pop(), "worker")
            return "hosts", f"{names}: {words} each ({self.source})"
        each = ", ".join(f"{host.name}: {len(host.slots)}" for host in self.hosts)
        return "hosts", f"workers of {each} ({self.source})"


def declare_nodes(parser: argparse.ArgumentParser) -> None:
    """Adds torchrun's options for many nodes, and ours, to a parser."""
    group = parser.add_argument_group(
        "many nodes",
        "Not needed under Slurm, mpirun, Volcano and Kubeflow. Options\n"
        "default to torchrun's PET_* variables.",
    )
    for option in NODES:
        how = {} if option.value else {"action": "store_const", "const": "1"}
        table.add(group, option.key, **how)
    group.add_argument(
        *("--node-timeout", "--node_timeout"),
        type=lambda text: seconds(text, "--node-timeout"),
        metavar="SECONDS",
        help="seconds without contact before a node counts as lost "
        f"(default: {JoinTimes().silence:g})",
    )
    group.add_argument(
        *("--secret-file", "--secret_file"),
        type=named_path,
        metavar="FILE",
        help="file holding the job's shared secret, or set SAFE_LAUNCH_SECRET; not needed under "
        "Slurm, over ssh or with manifests from `template`",
    )
    group.add_argument(
        *("--require-secret", "--require_secret"),
        action="store_true",
        help="refuse to launch on several hosts without a shared secret",
    )


def stated(options: argparse.Namespace) -> dict[str, str]:
    """The given options for nodes, by torchrun's names."""
    values = {name: getattr(options, name) for name in OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def declare_hosts(parser: argparse.ArgumentParser) -> None:
    """Adds deepspeed's options for hosts to a parser."""
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


def host_options_of(options: argparse.Namespace) -> HostOptions:
    """Parses the options.

    Raises:
        LaunchError: the further options of ssh can't be split.
    """
    try:
        shell = Shell(options.ssh_port, tuple(shlex.split(options.launcher_args)))
    except ValueError as error:
        raise LaunchError.because(error, f"--launcher_args {options.launcher_args!r}") from error
    return HostOptions(
        include=options.include,
        exclude=options.exclude,
        nodes=None if options.num_nodes == -1 else options.num_nodes,
        devices=None if options.num_gpus == -1 else options.num_gpus,
        address=options.master_addr or "",
        port=int(options.master_port or PORT),
        shell=shell,
        force=options.force_multi,
        venv_script=options.venv_script,
        forwarded=options.signals_to_handle,
    )


def chosen(options: argparse.Namespace, devices: Callable[[], int]) -> HostChoice | None:
    """The hosts to launch on; None if none are named.

    Also uses deepspeed's default hostfile, unless another source sets the number of launchers.

    Raises:
        LaunchError: the options contradict each other, the hostfile, or other sources.
    """
    values = vars(options)
    stated = [f"--{name.replace('_', '-')}" for name in CHOOSING if values[name] not in (None, "")]
    if not stated and not hostfile.DEFAULT.is_file():
        return None
    excluded = [
        name for name in EXCLUDES if values[name] and not (options.no_ssh and name == "node_rank")
    ]
    excluding = [f"--{name.replace('_', '-')} {values[name]}" for name in excluded]
    other = contradiction(excluding, os.environ, this_host())
    if other is not None and stated:
        problem = f"{stated[0]} and {other} both choose where to launch"
        raise LaunchError(problem, "leave one of them out")
    if other is not None:
        return None
    file = options.hostfile or (hostfile.DEFAULT if hostfile.DEFAULT.is_file() else None)
    return _chosen(host_options_of(options), file, devices() if file is None else 0)


def _chosen(options: HostOptions, file: Path | None, accelerators: int) -> HostChoice:
    """Chooses the hosts and devices to launch on.

    Raises:
        LaunchError: the options contradict each other or the hostfile.
    """
    if (options.nodes or options.devices) and (options.include or options.exclude):
        option = "--num_nodes" if options.nodes else "--num_gpus"
        other = "--include" if options.include else "--exclude"
        raise LaunchError(f"{option} and {other} both choose among the hosts", "give one of them")
    if file is not None:
        hosts, source = hostfile.hosts_of(text_of(file, "--hostfile "), str(file)), str(file)
    else:
        if (options.include or options.exclude) and not accelerators:
            problem = "--include and --exclude choose devices, and none was found on this host"
            raise LaunchError(problem, "on a machine without one give --num_gpus N")
        count = accelerators or options.devices or 1
        hosts, source = (Host("localhost", tuple(range(count))),), "no hostfile"
    hosts = hostfile.filtered(hosts, options.include, options.exclude)
    hosts = hostfile.first(hosts, options.nodes, options.devices)
    return HostChoice(
        hosts, source, options, len(hosts) == 1 and owns(hosts[0].name) and not options.force
    )


def contradiction(options: Sequence[str], environment: Mapping[str, str], here: Here) -> str | None:
    """Another source of the number of launchers, if any.

    Args:
        options: options that set the number.
        environment: the launcher's environment.
        here: this host.

    Raises:
        LaunchError: a scheduler's variables can't be read.
    """
    if options:
        return options[0]
    for name in ("PET_NNODES", "PET_NODE_RANK", "PET_RDZV_ENDPOINT"):
        if environment.get(name):
            return f"{name}={environment[name]}"
    for scheduler in SCHEDULERS:
        report = scheduler(environment, here)
        # A batch script's only launcher may start the others over ssh.
        nodes = None if report is None or report.refusal else report.nodes
        if report is not None and nodes is not None and nodes.value != (1, 1):
            launchers = count_of(nodes.value[1], "launcher")
            return f"{report.by}, which has started this one as one of {launchers}"
    return None


def accelerators(options: argparse.Namespace, *, is_launch: bool) -> int:
    """The number of devices of this host, or of a plan's.

    Raises:
        LaunchError: --hardware names an unknown profile.
    """
    from ..machine import detect, named_hardware

    here = detect.detect()
    if is_launch or options.hardware is None:
        return here.accelerators
    return named_hardware.hardware_of(options.hardware, here).accelerators
