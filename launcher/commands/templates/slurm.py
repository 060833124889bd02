"""`scripts/slurm/safe-launch.sbatch`, filled in."""

from __future__ import annotations

import argparse
import re
import shlex

from .job import TemplateJob, at_least, filled, shipped, word

SUMMARY = "a batch script for Slurm"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options for Slurm's file."""
    parser.add_argument(
        "--time",
        type=word,
        default="24:00:00",
        metavar="LIMIT",
        help="time limit as sbatch takes it (default: 24:00:00)",
    )
    parser.add_argument(
        "--gres",
        type=word,
        default="gpu",
        metavar="NAME",
        help="the accelerators' name on the cluster, e.g. gpu:a100 or npu (default: gpu)",
    )
    parser.add_argument(
        "--requeues",
        type=at_least(0),
        default=0,
        metavar="N",
        help="how often the job may queue itself again (default: 0)",
    )
    parser.add_argument(
        "--array",
        type=word,
        metavar="TASKS",
        help="an array of such jobs, as sbatch takes it, e.g. 0-7 or 0-7%%2",
    )


def fill(job: TemplateJob, options: argparse.Namespace) -> str:
    """The batch script of a job."""
    array = (
        {}
        if options.array is None
        else {
            "##SBATCH --array=0-7": f"#SBATCH --array={options.array}",
            "#SBATCH --output=%x-%j.out": "#SBATCH --output=%x-%A_%a.out",
        }
    )
    label = re.sub(r"[^\w.-]+", "-", job.label) or "training"
    return filled(
        shipped("slurm/safe-launch.sbatch"),
        {
            "#SBATCH --nodes=2": f"#SBATCH --nodes={job.nodes}",
            "#SBATCH --gres=gpu:8": (
                f"#SBATCH --gres={options.gres}:{job.devices}"
                if job.devices
                else "# None: the workers train on the node's cores."
            ),
            **array,
            "#SBATCH --job-name=finetune": f"#SBATCH --job-name={label}",
            "#SBATCH --time=24:00:00": f"#SBATCH --time={options.time}",
            "training=(safe-launch finetune.py --deepspeed zero2.json)": (
                f"training=(safe-launch {shlex.join(job.command)})"
            ),
            "requeues=0": f"requeues={options.requeues}",
        },
    )
