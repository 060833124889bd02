"""A launch over the hosts of a hostfile: the hosts, and the job of each."""

from __future__ import annotations

import os
import secrets
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core.count_of import count_of, noun_of
from ...core.errors import LaunchError
from ...core.hardware import VISIBLE
from ...options.host_choice import HostChoice, text_of
from ...options.hostfile import Host
from ...schedulers.this_host import owns
from ...system import terminal
from ..secret import VARIABLE
from . import exported_environment, remote_hosts, remote_main


def variables_here(slots: Sequence[int], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that restrict this machine's workers to the chosen devices.

    Empty if the chosen devices are the first visible ones, which the workers take anyway.

    Raises:
        LaunchError: the user's own variable chooses the devices too.
    """
    if list(slots) == list(range(len(slots))):
        return local_size(slots)
    for name in VISIBLE:
        if environment.get(name):
            problem = f"{name}={environment[name]} and the hosts' slots {[*slots]} both choose"
            raise LaunchError(problem, f"leave out {name}, or the choice of slots")
    return remote_main.device_variables(tuple(slots)) | local_size(slots)


def local_size(slots: Sequence[int]) -> dict[str, str]:
    """LOCAL_SIZE, which deepspeed's launcher gives and torchrun doesn't.

    With it DeepSpeed on CPUs reduces over its own shared memory
    (deepspeed/ops/csrc/cpu/comm/shm_interface.cpp). A launch in torchrun's style doesn't set it.
    """
    return {"LOCAL_SIZE": str(len(slots))}


def launch_over_ssh(
    chosen: HostChoice, own: Sequence[str], command: Sequence[str], patience: float
) -> int:
    """Launches on all hosts; returns the exit code.

    The launcher's `own` options are without those about hosts. When a host fails, the others have
    `patience` seconds to end by themselves.

    Raises:
        LaunchError: a host can't be reached, or can't run the launcher.
    """
    run = uuid.uuid4().hex[:12]
    protected = {VARIABLE: os.environ.get(VARIABLE) or secrets.token_hex(32)}
    folder = Path.cwd()
    environment = exported_environment.exported(os.environ)
    files = exported_environment.files(os.environ, Path.home(), folder)
    written: dict[str, str] = {}
    for file in files:
        written |= exported_environment.parsed(text_of(file))
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

    def jobs(addresses: Sequence[str]) -> list[remote_main.Job]:
        head = head_address(addresses)
        return [
            remote_main.Job(
                folder=str(folder),
                arguments=(*(*own, *rank_options(chosen, rank, head), "--rdzv-id", run, *command),),
                devices=host.slots,
                environment={**environment, **protected, **local_size(host.slots)},
                expanded=written,
                venv_script=chosen.asked.venv_script,
            )
            for rank, host in enumerate(chosen.hosts)
        ]

    return remote_hosts.run(
        *(chosen.hosts, chosen.source, chosen.asked.shell, run, jobs, patience, terminal.say),
        forwarded=chosen.asked.forwarded,
    )


def rank_options(chosen: HostChoice, rank: int, head: str = "") -> list[str]:
    """The options that give a launcher its node's rank; the first host is at `head`."""
    hosts, asked = chosen.hosts, chosen.asked
    address = asked.address or head or hosts[0].name
    return [
        *("--nnodes", str(len(hosts)), "--node-rank", str(rank)),
        *("--master-addr", address, "--master-port", str(asked.port)),
        *("--nproc", str(len(hosts[rank].slots))),
    ]


def part_of(chosen: HostChoice, rank: str | None) -> tuple[int, Host]:
    """This host's rank and entry, if the command is started on each host separately.

    With `rank` None, this host is found by its name.

    Raises:
        LaunchError: there is no such rank, or this host isn't among them.
    """
    if rank is None:
        found = [place for place, host in enumerate(chosen.hosts) if owns(host.name)]
        if len(found) != 1:
            problem = f"--no_ssh: this host isn't in {chosen.source} by its name"
            raise LaunchError(problem, "give --node_rank N on every host")
        return found[0], chosen.hosts[found[0]]
    if not rank.isdigit() or int(rank) >= len(chosen.hosts):
        hosts = len(chosen.hosts)
        there = f"there {noun_of(hosts, 'is', 'are')} {count_of(hosts, 'host')}"
        problem = f"--node_rank {rank}: {there} ({chosen.source})"
        raise LaunchError(problem, "the first host's rank is 0")
    return int(rank), chosen.hosts[int(rank)]


def head_address(addresses: Sequence[str]) -> str:
    """The first host's address as the others reach it, from the addresses at which ssh reached all.

    If ssh reached this machine over the loopback, it is the address from which this machine sends
    to the others.
    """
    head = addresses[0]
    others = [address for address in addresses if not _is_loopback(address)]
    if not _is_loopback(head) or not others:
        return head
    family = socket.AF_INET6 if ":" in others[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((others[0], 9))  # sends nothing
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return not address or address == "::1" or address.startswith("127.")
