"""A launch over the hosts of a hostfile: which hosts, and what each of them is told to do."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import exports, hostfile, remote, remote_hosts, terminal
from .exit_code import ExitCode, LaunchError
from .hostfile import Host
from .placement import PORT
from .schedulers import SCHEDULERS
from .schedulers.here import Here, owns
from .ssh import Shell

LOCALHOST = "localhost"


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
class Chosen:
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

    def row(self) -> tuple[str, str]:
        """The hosts, for people."""
        counts = {len(one.slots) for one in self.hosts}
        if len(counts) == 1:
            names = ", ".join(one.name for one in self.hosts)
            words = "one worker" if counts == {1} else f"{counts.pop()} workers"
            return "hosts", f"{names}: {words} each ({self.source})"
        each = ", ".join(f"{one.name}: {len(one.slots)}" for one in self.hosts)
        return "hosts", f"workers of {each} ({self.source})"


def chosen(asked: Asked, file: Path | None, accelerators: int) -> Chosen:
    """The hosts and devices to launch on.

    Args:
        asked: what the user says.
        file: the hostfile; None for this machine alone.
        accelerators: how many there are here, for a launch without a hostfile.

    Raises:
        LaunchError: what is asked for contradicts itself or the hostfile.
    """
    if (asked.nodes or asked.devices) and (asked.include or asked.exclude):
        one = "--num_nodes" if asked.nodes else "--num_gpus"
        other = "--include" if asked.include else "--exclude"
        problem = f"{one} and {other} both choose among the hosts"
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
    return Chosen(hosts, source, asked, len(hosts) == 1 and owns(hosts[0].name) and not asked.force)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise LaunchError(ExitCode.USAGE, f"--hostfile {path} can't be read: {why}") from error


def variables_here(slots: Sequence[int], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the workers of this machine get for the devices chosen for them.

    Which they see isn't said where they are the first ones, which the workers take anyway: of those
    that the user lets them see.

    Raises:
        LaunchError: the user lets them see others.
    """
    if list(slots) == list(range(len(slots))):
        return size_of(slots)
    for name in remote.VISIBLE:
        if environment.get(name):
            problem = f"{name}={environment[name]} and the hosts' slots {[*slots]} both choose"
            raise LaunchError(ExitCode.USAGE, problem, f"leave out {name}, or the choice of slots")
    return remote.with_devices(tuple(slots)) | size_of(slots)


def size_of(slots: Sequence[int]) -> dict[str, str]:
    """LOCAL_SIZE, which deepspeed's launcher gives and torchrun doesn't.

    With it DeepSpeed on processors reduces over shared memory of its own
    (deepspeed/ops/csrc/cpu/comm/shm_interface.cpp): who launches as with torchrun gets it not.
    """
    return {"LOCAL_SIZE": str(len(slots))}


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
        told = scheduler.read(environment, here)
        # A batch script's only launcher may well start the others by ssh.
        if told is not None and told.refusal is None and told.nodes not in (None, (1, 1)):
            return f"{told.by}, which has started this one as one of {told.nodes[1]} launchers"
    return None


def launch(chosen: Chosen, own: Sequence[str], command: Sequence[str], patience: float) -> int:
    """Launches on all hosts; returns the exit code.

    Args:
        chosen: the hosts.
        own: the launcher's options, without those that are about hosts.
        command: the script and its arguments.
        patience: seconds that the other hosts get to end by themselves when one has failed.

    Raises:
        LaunchError: a host can't be reached, or can't run the launcher.
    """
    run = uuid.uuid4().hex[:12]
    folder = Path.cwd()
    environment = exports.exported(os.environ)
    files = exports.files(os.environ, Path.home(), folder)
    written: dict[str, str] = {}
    for file in files:
        written |= exports.written(_text(file))
    terminal.tell(
        *terminal.table(
            [
                chosen.row(),
                ("exports", ", ".join(sorted({*environment, *written}))),
                *(("exports", f"{len(written)} of them from {file}") for file in files),
            ],
            indent=0,
        )
    )

    def jobs(addresses: Sequence[str]) -> list[remote.Job]:
        head = head_address(addresses)
        return [
            remote.Job(
                folder=str(folder),
                arguments=(*(*own, *placed(chosen, rank, head), "--rdzv-id", run, *command),),
                devices=host.slots,
                environment={**environment, **size_of(host.slots)},
                expanded=written,
                venv_script=chosen.asked.venv_script,
            )
            for rank, host in enumerate(chosen.hosts)
        ]

    return remote_hosts.run(
        *(chosen.hosts, chosen.source, chosen.asked.shell, run, jobs, patience, terminal.say),
        forwarded=chosen.asked.forwarded,
    )


def placed(chosen: Chosen, rank: int, head: str = "") -> list[str]:
    """The options that say which of the hosts a launcher is on; the first is at `head`."""
    hosts, asked = chosen.hosts, chosen.asked
    address = asked.address or head or hosts[0].name
    return [
        *("--nnodes", str(len(hosts)), "--node-rank", str(rank)),
        *("--master-addr", address, "--master-port", str(asked.port)),
        *("--nproc", str(len(hosts[rank].slots))),
    ]


def part_of(chosen: Chosen, rank: str | None) -> tuple[int, Host]:
    """Which of the hosts this one is, where each is given the command by itself.

    Args:
        chosen: the hosts.
        rank: as the user says; None for the host of this name.

    Raises:
        LaunchError: there is no such rank, or this host isn't among them.
    """
    if rank is None:
        found = [place for place, host in enumerate(chosen.hosts) if owns(host.name)]
        if len(found) != 1:
            problem = f"--no_ssh: this host isn't in {chosen.source} by its name"
            raise LaunchError(ExitCode.USAGE, problem, "give --node_rank N on every host")
        return found[0], chosen.hosts[found[0]]
    if not rank.isdigit() or int(rank) >= len(chosen.hosts):
        problem = f"--node_rank {rank}: there are {len(chosen.hosts)} hosts ({chosen.source})"
        raise LaunchError(ExitCode.USAGE, problem, "the first host's rank is 0")
    return int(rank), chosen.hosts[int(rank)]


def head_address(addresses: Sequence[str]) -> str:
    """The first host's address as the others reach it, from those at which ssh reached all.

    Over the loopback ssh has reached this machine, which the others know by the address that it
    sends to them from.
    """
    head = addresses[0]
    others = [one for one in addresses if not _is_loopback(one)]
    if not _is_loopback(head) or not others:
        return head
    family = socket.AF_INET6 if ":" in others[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((others[0], 9))  # sends nothing
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return not address or address == "::1" or address.startswith("127.")
