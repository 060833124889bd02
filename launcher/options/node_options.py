"""Options for a job's nodes: torchrun's in both spellings, and safe-launch's."""

from __future__ import annotations

import argparse

from ..core.placement import JoinTimes
from ..schedulers.torchrun_options import OPTIONS, seconds
from . import table
from .foreign_options import NODES
from .option import named_path


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
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
