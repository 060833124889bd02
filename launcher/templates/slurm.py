"""`scripts/slurm/safe-launch.sbatch`, filled in."""

from __future__ import annotations

import argparse
import shlex

from .job import Job, filled, shipped

SUMMARY = "a batch script for Slurm"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declares what only Slurm's file has."""
    parser.add_argument(
        "--time", default="24:00:00", help="the time limit, as sbatch takes it (default: 24:00:00)"
    )


def fill(job: Job, options: argparse.Namespace) -> str:
    """The batch script of a job."""
    return filled(
        shipped("slurm/safe-launch.sbatch"),
        {
            "#SBATCH --nodes=2": f"#SBATCH --nodes={job.nodes}",
            "#SBATCH --gres=gpu:8": f"#SBATCH --gres=gpu:{job.devices}",
            "#SBATCH --job-name=finetune": f"#SBATCH --job-name={job.label}",
            "#SBATCH --time=24:00:00": f"#SBATCH --time={options.time}",
            "training=(safe-launch finetune.py --deepspeed zero2.json)": (
                f"training=(safe-launch {shlex.join(job.command)})"
            ),
        },
    )
