"""The files of `scripts/` for a cluster, filled in for the job at hand: for Slurm, for Kubernetes.

In `scripts/slurm/safe-launch.sbatch`, whole lines are replaced. In the manifests of
`scripts/kubernetes/`, the values that depend on the job are in lines with a mark at the end,
`completions: 2  # nodes`, which also helps people who edit the file. Lines for only some jobs are
comments with marks: `# cpu: 64  # cpus`.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import yaml

from ..core.errors import LaunchError

VARIANTS = {
    "indexed-job": "Kubernetes alone",
    "jobset": "JobSet",
    "trainjob": "Kubeflow Trainer 2",
    "pytorchjob": "Kubeflow's Training Operator 1",
    "volcano": "Volcano",
}
"""The files, and each one's requirements of the cluster."""
NAME = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?")
"""A Service's name (RFC 1035), with room for the other parts of pods' names."""
MARKED = re.compile(r"(?P<indent> *)(?P<off># )?(?P<text>.*\S)  # (?P<marks>[a-z]+[a-z, ]*)")
VALUE = re.compile(r"(?P<key> *(?:- )?[\w./-]+: )(?P<value>.*)")
PLAIN = re.compile(r"(--?)?[A-Za-z/][\w./=:-]+", re.ASCII)
"""Words that need no quotes, unless they are booleans or null; excludes numbers."""
SCRIPT = re.compile(r"(?P<indent> *- ).*  # script")


@dataclass(frozen=True, slots=True)
class TemplateJob:
    """The job at hand.

    Attributes:
        name: the job's name; None for the script's.
        nodes: the number of nodes.
        devices: accelerators of each node, with a worker for each.
        command: the words after `safe-launch`: its options, the script, the script's arguments.
    """

    name: str | None
    nodes: int
    devices: int
    command: tuple[str, ...]

    @property
    def label(self) -> str:
        """The job's name; by default that of the first word that looks like a script."""
        script = next((word for word in self.command if word.endswith(".py")), self.command[-1])
        return self.name or Path(script).stem


def shipped(path: str) -> str:
    """The text of a file of `scripts/`, which can be used unchanged."""
    return Path(str(files("safe_launch.scripts"))).joinpath(path).read_text("utf-8")


def filled(text: str, lines: Mapping[str, str]) -> str:
    """A shipped file's text with whole lines replaced; indentation is kept."""
    result = text.split("\n")
    for old, new in lines.items():
        (place,) = [number for number, line in enumerate(result) if line.strip() == old]
        result[place] = result[place].replace(old, new)
    return "\n".join(result)


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number, at least `least`."""

    def whole(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            problem = f"a whole number, at least {least}, is needed, not {text!r}"
            raise argparse.ArgumentTypeError(problem)
        return int(text)

    return whole


def word(text: str) -> str:
    """The type of an option that must be a single word."""
    if not text or text.split() != [text]:
        raise argparse.ArgumentTypeError(f"one word is needed, not {text!r}")
    return text


def add_batch_options(parser: argparse.ArgumentParser) -> None:
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


def batch_script(job: TemplateJob, options: argparse.Namespace) -> str:
    """The batch script of a job, for Slurm."""
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


def add_manifest_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options for manifests."""
    parser.add_argument("--image", required=True, help="the container's image, with safe-launch")
    kinds = "; ".join(f"{name}: {needs}" for name, needs in VARIANTS.items())
    parser.add_argument(
        "--variant",
        choices=tuple(VARIANTS),
        default="indexed-job",
        help=f"the kind of job, by the cluster's software. {kinds} (default: indexed-job)",
    )
    parser.add_argument(
        "--cpus", type=at_least(1), metavar="N", help="cores that each pod requests"
    )
    parser.add_argument(
        "--memory", type=word, metavar="SIZE", help="memory that each pod requests, e.g. 512Gi"
    )
    parser.add_argument(
        "--queue", type=word, metavar="NAME", help="Kueue's local queue, or Volcano's queue"
    )
    parser.add_argument(
        "--restricted",
        action="store_true",
        help="pods that aren't root and write to their volumes only",
    )


def manifest(job: TemplateJob, options: argparse.Namespace) -> str:
    """The manifest of a job, for Kubernetes.

    Raises:
        LaunchError: the job's name is invalid, or it has too few nodes for its kind.
    """
    if options.variant == "pytorchjob" and job.nodes == 1:
        problem = "a PyTorchJob has a master and at least one worker: two nodes or more"
        raise LaunchError(problem, "for one node: --variant indexed-job")
    values: dict[str, str | None] = {
        "name": _name(job),
        "nodes": str(job.nodes),
        "nodes but one": str(job.nodes - 1),
        "image": _scalar(options.image),
        "gpus": str(job.devices) if job.devices else None,
        "cpus": options.cpus and str(options.cpus),
        "memory": options.memory,
        "queue": options.queue,
        "restricted": "" if options.restricted else None,
        "secret": secrets.token_hex(32),
    }
    lines = shipped(f"kubernetes/{options.variant}.yaml").split("\n")
    return "\n".join(_filled_lines(lines, values, job.command))


def _filled_lines(
    lines: list[str], values: Mapping[str, str | None], command: tuple[str, ...]
) -> Iterator[str]:
    """The lines, with the marked lines and those of the script replaced."""
    before = None
    for line in lines:
        script, marked = SCRIPT.fullmatch(line), MARKED.fullmatch(line)
        marks = [] if marked is None else marked["marks"].split(", ")
        if script is not None:
            if before is None:  # the kubelet would expand `$(...)`
                words = (_scalar(word.replace("$", "$$")) for word in command)
                yield from (f"{script['indent']}{word}  # script" for word in words)
        elif marked is not None and values.keys() >= {*marks}:
            known = [value for mark in marks if (value := values[mark]) is not None]
            if known:
                text = _with_value(marked["text"], known[0])
                yield f"{marked['indent']}{text}  # {marked['marks']}"
            elif marked["off"]:
                yield line
        else:
            yield line
        before = script


def _with_value(text: str, value: str) -> str:
    """A marked line's text with the job's value; unchanged if it holds none, or keeps its own."""
    match = VALUE.fullmatch(text)
    if match is None or not value:
        return text
    quoted = f'"{value}"' if match["value"].startswith('"') else value
    return match["key"] + quoted


def _name(job: TemplateJob) -> str:
    """The job's name.

    Raises:
        LaunchError: the name isn't valid in Kubernetes, and can't be made so if it is the script's.
    """
    wanted = job.name or re.sub(r"[^a-z0-9]+", "-", job.label.lower()).strip("-")
    if NAME.fullmatch(wanted):
        return wanted
    problem = f"--name {job.name!r}" if job.name else f"{job.label!r} isn't a valid job name"
    hint = "--name: at most 50 small letters, digits and hyphens, the first one a letter"
    raise LaunchError(problem, hint)


def _scalar(text: str) -> str:
    """A string in YAML, quoted if any version of YAML might read it differently."""
    is_plain = PLAIN.fullmatch(text) and yaml.safe_load(f"[{text}]") == [text]
    return text if is_plain else json.dumps(text, ensure_ascii=False)
