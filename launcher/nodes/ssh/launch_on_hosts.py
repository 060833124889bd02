"""A launch on the chosen hosts: over ssh, or without it if this machine is the only host."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...core.errors import LaunchError
from ...core.hardware import VISIBLE
from ...core.placement import JoinTimes
from ...core.quantities import count_of, noun_of
from ...options import process_options, table
from ...options.hostfile import Host
from ...options.node_options import HostChoice, declare_hosts
from ...schedulers.this_host import owns
from ...system import terminal
from ...system.regular_files import text_of
from ..secret import VARIABLE
from . import remote_hosts, remote_main

MARGIN = 10.0
"""Seconds for the nodes to report, after they have noticed a silent node and stopped."""
_PREFIXES = (
    # deepspeed's (EXPORT_ENVS in deepspeed/launcher/runner.py, and its accelerators' own)
    *("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL", "ASCEND", "HCCL", "LD_LIBRARY", "PATH"),
    # what else a training and its frameworks read, and another host wouldn't have
    *("ACCELERATE_", "CUBLAS_", "CUDA_", "DEEPSPEED_", "DS_", "GLOO_", "HF_", "MODELSCOPE_"),
    *("OMP_", "PYTORCH_", "TOKENIZERS_", "TORCHINDUCTOR_", "TORCH_", "TRANSFORMERS_", "WANDB_"),
)
"""Prefixes of the names of variables that go to every host."""
_FILE = ".deepspeed_env"
"""deepspeed's file of further variables, unless DS_ENV_FILE names another file."""


def without_hosts(options: Sequence[str]) -> list[str]:
    """The launcher's options, spelt out, without those about hosts."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare_hosts(parser)
    for name in ("master_addr", "master_port", "node_rank"):
        table.add(parser, name)
    return parser.parse_known_args(options)[1]


def launch_on_hosts(
    chosen: HostChoice,
    options: Sequence[str],
    command: Sequence[str],
    values: argparse.Namespace,
    *,
    is_launch: bool,
    run: Callable[[Sequence[str]], int],
) -> int:
    """Launches on the hosts; without ssh if this machine is the only host, or for a plan.

    The launcher's `options` are spelt out; `command` is the script and its arguments. `run`
    runs a command line without a hostfile, and returns the exit code.

    Raises:
        LaunchError: the launch isn't possible as asked.
    """
    options = without_hosts(options)
    if values.no_ssh and is_launch:
        rank, host = part_of(chosen, values.node_rank)
        os.environ.update(variables_here(host.slots, os.environ))
        return run([*options, *rank_options(chosen, rank), *command])
    if is_launch and not chosen.is_here:
        silence = JoinTimes().silence if values.node_timeout is None else values.node_timeout
        times = process_options.stop_times(values, os.environ)
        patience = silence + times.leave + times.terminate + MARGIN
        return _over_ssh(chosen, options, command, patience)
    slots = {len(host.slots) for host in chosen.hosts}
    if len(slots) > 1:
        problem = f"{chosen.source}: a plan needs the same number of slots on every host"
        raise LaunchError(problem, "--num_gpus N takes N slots of each")
    if chosen.is_here and (is_launch or values.hardware is None):
        os.environ.update(variables_here(chosen.hosts[0].slots, os.environ))
    if chosen.hosts[0].line:
        terminal.tell(*terminal.table([chosen.row()], indent=0))
    return run(
        [*options, "--nnodes", str(len(chosen.hosts)), "--nproc", str(slots.pop()), *command]
    )


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


def _over_ssh(
    chosen: HostChoice, options: Sequence[str], command: Sequence[str], patience: float
) -> int:
    """Launches on all hosts; returns the exit code.

    The launcher's `options` are without those about hosts. When a host fails, the others have
    `patience` seconds to end by themselves.

    Raises:
        LaunchError: a host can't be reached, or can't run the launcher.
    """
    run = uuid.uuid4().hex[:12]
    protected = {VARIABLE: os.environ.get(VARIABLE) or secrets.token_hex(32)}
    folder = Path.cwd()
    environment = exported(os.environ)
    files = variable_files(os.environ, Path.home(), folder)
    written: dict[str, str] = {}
    for file in files:
        written |= parsed_variables(text_of(file))
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
                arguments=(*options, *rank_options(chosen, rank, head), "--rdzv-id", run, *command),
                devices=host.slots,
                environment={**environment, **protected, **local_size(host.slots)},
                expanded=written,
                venv_script=chosen.options.venv_script,
            )
            for rank, host in enumerate(chosen.hosts)
        ]

    return remote_hosts.run(
        *(chosen.hosts, chosen.source, chosen.options.shell, run, jobs, patience, terminal.say),
        forwarded=chosen.options.forwarded,
    )


def rank_options(chosen: HostChoice, rank: int, head: str = "") -> list[str]:
    """The options that give a launcher its node's rank; the first host is at `head`."""
    hosts, options = chosen.hosts, chosen.options
    address = options.address or head or hosts[0].name
    return [
        *("--nnodes", str(len(hosts)), "--node-rank", str(rank)),
        *("--master-addr", address, "--master-port", str(options.port)),
        *("--nproc", str(len(hosts[rank].slots))),
    ]


def part_of(chosen: HostChoice, rank: str | None) -> tuple[int, Host]:
    """This host's rank and entry, if the command is started on each host separately.

    With `rank` None, this host is found by its name.

    Raises:
        LaunchError: there is no such rank, or this host isn't among them.
    """
    if rank is None:
        matches = [place for place, host in enumerate(chosen.hosts) if owns(host.name)]
        if len(matches) != 1:
            problem = f"--no_ssh: this host isn't in {chosen.source} by its name"
            raise LaunchError(problem, "give --node_rank N on every host")
        return matches[0], chosen.hosts[matches[0]]
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


def exported(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that go to every host; those on devices don't, the hostfile chooses them."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_PREFIXES) and not name.endswith("_VISIBLE_DEVICES")
    }


def variable_files(environment: Mapping[str, str], home: Path, folder: Path) -> list[Path]:
    """The existing files of variables: first at home, then in the folder."""
    name = environment.get("DS_ENV_FILE", _FILE)
    places = dict.fromkeys((home / name, folder / name))
    return [path for path in places if path.is_file()]


def parsed_variables(text: str) -> dict[str, str]:
    """The variables in such a file: one `NAME=value` a line; quotes around a value are removed.

    deepspeed passes the lines to a shell in double quotes, so a `$NAME` in a value is expanded on
    the host; `os.path.expandvars` does the same.
    """
    variables = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            bare = value.strip()
            quoted = len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'"
            variables[name.strip()] = bare[1:-1] if quoted else bare
    return variables
