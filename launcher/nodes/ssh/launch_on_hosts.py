"""A launch on the chosen hosts: over ssh, or without it if this machine is the only host."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from ...core.errors import LaunchError
from ...core.placement import JoinTimes
from ...options import process_options, table
from ...options.host_choice import HostChoice
from ...options.host_options import declare
from ...system import terminal
from . import launch_over_ssh

MARGIN = 10.0
"""Seconds for the nodes to report, after they have noticed a silent node and stopped."""


def without_hosts(own: Sequence[str]) -> list[str]:
    """The launcher's own options, spelt out, without those about hosts."""
    ours = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare(ours)
    for name in ("master_addr", "master_port", "node_rank"):
        table.add(ours, name)
    return ours.parse_known_args(own)[1]


def launch_on_hosts(
    chosen: HostChoice,
    own: Sequence[str],
    command: Sequence[str],
    values: argparse.Namespace,
    *,
    is_launch: bool,
    run: Callable[[Sequence[str]], int],
) -> int:
    """Launches on the hosts; without ssh if this machine is the only host, or for a plan.

    The launcher's `own` options are spelt out; `command` is the script and its arguments. `run`
    runs a command line without a hostfile, and returns the exit code.

    Raises:
        LaunchError: the launch isn't possible as asked.
    """
    own = without_hosts(own)
    if values.no_ssh and is_launch:
        rank, host = launch_over_ssh.part_of(chosen, values.node_rank)
        os.environ.update(launch_over_ssh.variables_here(host.slots, os.environ))
        return run([*own, *launch_over_ssh.rank_options(chosen, rank), *command])
    if is_launch and not chosen.is_here:
        silence = JoinTimes().silence if values.node_timeout is None else values.node_timeout
        times = process_options.stop_times(values, os.environ)
        patience = silence + times.leave + times.terminate + MARGIN
        return launch_over_ssh.launch_over_ssh(chosen, own, command, patience)
    slots = {len(host.slots) for host in chosen.hosts}
    if len(slots) > 1:
        problem = f"{chosen.source}: a plan needs the same number of slots on every host"
        raise LaunchError(problem, "--num_gpus N takes N slots of each")
    if chosen.is_here and (is_launch or values.hardware is None):
        os.environ.update(launch_over_ssh.variables_here(chosen.hosts[0].slots, os.environ))
    if chosen.hosts[0].line:
        terminal.tell(*terminal.table([chosen.row()], indent=0))
    return run([*own, "--nnodes", str(len(chosen.hosts)), "--nproc", str(slots.pop()), *command])
