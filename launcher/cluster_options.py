"""The options that say which nodes a job has: torchrun's, in both its spellings, and our own."""

from __future__ import annotations

import argparse

from .placement import PORT, JoinTimes
from .schedulers.torchrun import OPTIONS, seconds

HELP = {
    "nnodes": ("N|MIN:MAX", "nodes of the job; with a range it begins, and goes on, with fewer"),
    "node_rank": ("N", "number of this node, from 0; without it node 0 numbers them as they join"),
    "master_addr": ("HOST", "name or address of node 0"),
    "master_port": ("PORT", f"where node 0 listens (default: {PORT})"),
    "rdzv_endpoint": ("HOST[:PORT]", "the same in one; the host that has this address is node 0"),
    "rdzv_id": ("NAME", "what the launchers of one job have in common; others are refused"),
    "rdzv_backend": ("NAME", "static or c10d, which mean the same here"),
    "rdzv_conf": ("KEY=VALUE,...", "join_timeout, last_call_timeout, is_host, ... as torchrun's"),
    "local_addr": ("HOST", "this node's address, where it can't be told from the endpoint"),
}
"""The placeholder and the meaning of each option with a value."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a command's."""
    group = parser.add_argument_group(
        "many nodes",
        "Under Slurm, mpirun, Volcano and Kubeflow nothing need be\n"
        "given. Where an option is absent torchrun's PET_* holds.",
    )
    for name, (placeholder, text) in HELP.items():
        group.add_argument(*_spellings(name), metavar=placeholder, help=text)
    group.add_argument(
        "--standalone",
        action="store_const",
        const="1",
        help="this node alone, whatever the scheduler says",
    )
    group.add_argument(
        *_spellings("node_timeout"),
        type=lambda text: seconds(text, "--node-timeout"),
        metavar="SECONDS",
        help=f"after which a node that can't be reached is lost (default: {JoinTimes().silence:g})",
    )


def given(options: argparse.Namespace) -> dict[str, str]:
    """The options for nodes that the command line has, by torchrun's names."""
    values = {name: getattr(options, name) for name in OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def _spellings(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}")))
