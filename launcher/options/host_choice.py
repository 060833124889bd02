"""The hosts of a launch: those that a hostfile and deepspeed's options choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from ..core.placement import PORT
from ..core.row import Row
from ..schedulers.read_placement import SCHEDULERS
from ..schedulers.this_host import Here, owns
from . import hostfile
from .hostfile import Host

LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True)
class Shell:
    """How hosts are reached.

    Attributes:
        port: of their ssh servers; None for what ssh's own configuration says.
        arguments: further options of ssh; they go before ours, and ssh takes the first.
    """

    port: int | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user says of the hosts, in deepspeed's words.

    Attributes:
        hostfile: the file that names them; None where it isn't given.
        include: what to take of them; empty for all.
        exclude: what to leave out; empty for nothing.
        nodes: the first so many hosts; None for all.
        devices: the first so many devices of each; None for all.
        address: of the first host, as the others reach it; empty where ssh is to tell.
        port: of the first host's launcher.
        shell: how hosts are reached.
        force: start over ssh even what is on this machine alone.
        venv_script: what a shell reads before the launcher of a host is started; empty for none.
        forwarded: numbers of further signals that are for the workers.
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
        hosts: in the order of their ranks.
        source: where they were read.
        asked: what was asked for.
        is_here: this machine is all there is, and no ssh is needed.
    """

    hosts: tuple[Host, ...]
    source: str
    asked: Asked
    is_here: bool

    def row(self) -> Row:
        """The hosts, for people."""
        counts = {len(host.slots) for host in self.hosts}
        if len(counts) == 1:
            names = ", ".join(host.name for host in self.hosts)
            words = "one worker" if counts == {1} else f"{counts.pop()} workers"
            return "hosts", f"{names}: {words} each ({self.source})"
        each = ", ".join(f"{host.name}: {len(host.slots)}" for host in self.hosts)
        return "hosts", f"workers of {each} ({self.source})"


def chosen(asked: Asked, file: Path | None, accelerators: int) -> HostChoice:
    """The hosts and devices to launch on.

    Args:
        asked: what the user asks for.
        file: the hostfile; None for this machine alone.
        accelerators: how many there are here, for a launch without a hostfile.

    Raises:
        LaunchError: what is asked for contradicts itself or the hostfile.
    """
    if (asked.nodes or asked.devices) and (asked.include or asked.exclude):
        option = "--num_nodes" if asked.nodes else "--num_gpus"
        other = "--include" if asked.include else "--exclude"
        problem = f"{option} and {other} both choose among the hosts"
        raise LaunchError(ExitCode.USAGE, problem, "give one of them")
    if file is not None:
        hosts, source = hostfile.hosts_of(_text(file), str(file)), str(file)
    else:
        if (asked.include or asked.exclude) and not accelerators:
            problem = "--include and --exclude choose devices, and none was found on this host"
            raise LaunchError(ExitCode.USAGE, problem, "on a machine without one give --num_gpus N")
        count = accelerators or asked.devices or 1
        hosts, source = (Host(LOCALHOST, tuple(range(count))),), "no hostfile"
    hosts = hostfile.filtered(hosts, asked.include, asked.exclude)
    hosts = hostfile.first(hosts, asked.nodes, asked.devices)
    return HostChoice(
        hosts, source, asked, len(hosts) == 1 and owns(hosts[0].name) and not asked.force
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise LaunchError(ExitCode.USAGE, f"--hostfile {path} can't be read: {why}") from error


def contradiction(options: Sequence[str], environment: Mapping[str, str], here: Here) -> str | None:
    """What else says how many launchers there are; None where nothing does.

    Args:
        options: the options given that say so.
        environment: of the launcher.
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
        report = scheduler.read(environment, here)
        # A batch script's only launcher may well start the others by ssh.
        if report is not None and report.refusal is None and report.nodes not in (None, (1, 1)):
            return f"{report.by}, which has started this one as one of {report.nodes[1]} launchers"
    return None
