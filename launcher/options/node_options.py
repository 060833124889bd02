"""The options for the nodes of a job: torchrun's, in both spellings, and our own."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..core.placement import JoinTimes
from ..schedulers.torchrun_options import OPTIONS, seconds
from . import table, torchrun


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    group = parser.add_argument_group(
        "many nodes",
        "Not needed under Slurm, mpirun, Volcano and Kubeflow. Where\n"
        "an option is absent torchrun's PET_* is used.",
    )
    for option in torchrun.NODES:
        how = {} if option.value else {"action": "store_const", "const": "1"}
        table.add(group, option.key, **how)
    group.add_argument(
        *("--node-timeout", "--node_timeout"),
        type=lambda text: seconds(text, "--node-timeout"),
        metavar="SECONDS",
        help=f"after which a node that can't be reached is lost (default: {JoinTimes().silence:g})",
    )

    group.add_argument(
        *("--secret-file", "--secret_file"),
        type=Path,
        metavar="FILE",
        help="with a secret that all launchers of the job have, by which they know each other; or "
        "SAFE_LAUNCH_SECRET. Not needed under Slurm, over ssh and in the manifests of `template`",
    )
    group.add_argument(
        *("--require-secret", "--require_secret"),
        action="store_true",
        help="refuse to launch on several hosts without one",
    )


def given(chosen: argparse.Namespace) -> dict[str, str]:
    """The given options for nodes, by torchrun's names."""
    values = {name: getattr(chosen, name) for name in OPTIONS}
    return {name: value for name, value in values.items() if value is not None}
