"""Chooses the hosts of a launch from a hostfile and deepspeed's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.count_of import count_of
from ..core.errors import LaunchError
from ..core.placement import PORT
from ..core.reasons import hint_of, reason_of
from ..core.row import Row
from ..schedulers.read_placement import SCHEDULERS
from ..schedulers.this_host import Here, owns
from ..system import regular_files
from . import hostfile
from .hostfile import Host

LOCALHOST = "localhost"


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
class Asked:
    """The user's options for hosts, in deepspeed's terms.

    Attributes:
        hostfile: the hostfile, if any.
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

    hostfile: Path | None = None
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
        asked: the user's options.
        is_here: whether this machine is the only host, without ssh.
    """

    hosts: tuple[Host, ...]
    source: str
    asked: Asked
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


def chosen(asked: Asked, file: Path | None, accelerators: int) -> HostChoice:
    """Chooses the hosts and devices to launch on.

    Raises:
        LaunchError: the options contradict each other or the hostfile.
    """
    if (asked.nodes or asked.devices) and (asked.include or asked.exclude):
        option = "--num_nodes" if asked.nodes else "--num_gpus"
        other = "--include" if asked.include else "--exclude"
        raise LaunchError(f"{option} and {other} both choose among the hosts", "give one of them")
    if file is not None:
        hosts, source = hostfile.hosts_of(text_of(file), str(file)), str(file)
    else:
        if (asked.include or asked.exclude) and not accelerators:
            problem = "--include and --exclude choose devices, and none was found on this host"
            raise LaunchError(problem, "on a machine without one give --num_gpus N")
        count = accelerators or asked.devices or 1
        hosts, source = (Host(LOCALHOST, tuple(range(count))),), "no hostfile"
    hosts = hostfile.filtered(hosts, asked.include, asked.exclude)
    hosts = hostfile.first(hosts, asked.nodes, asked.devices)
    return HostChoice(
        hosts, source, asked, len(hosts) == 1 and owns(hosts[0].name) and not asked.force
    )


def text_of(path: Path) -> str:
    """The text of a hostfile.

    Raises:
        LaunchError: the hostfile can't be read.
    """
    try:
        return regular_files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        problem = f"--hostfile {path} can't be read: {reason_of(error)}"
        raise LaunchError(problem, hint_of(error)) from error


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
