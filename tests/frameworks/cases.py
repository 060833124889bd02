"""What a case of a real framework is: the contract between a framework's folder and the runner.

A framework has a folder here with `case.py`, whose `CASES` the registry lists, and `prepare.py`,
which makes a tiny random model, a tiny tokenizer and a few samples (`tiny.py` helps). The runner
does five things with a case, each in a fresh copy of what was prepared:

1. the healthy arguments under the framework's own launcher;
2. the same through safe-launch: the same losses, and nothing changed;
3. the failing arguments under its own launcher: it dies, and of what is said;
4. the same through safe-launch: it is corrected, and trains to its end;
5. the reference's arguments under its own launcher: 4 must have its losses.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.stacks import ROOT, of_npus

ENVIRONMENTS = Path(os.environ.get("SAFE_LAUNCH_ENVIRONMENTS", ROOT / ".environments"))


@dataclass(frozen=True)
class Done:
    """A run that has ended.

    Attributes:
        code: its exit code; None where it hung and was killed.
        output: its stdout, then its stderr.
        folder: where it ran.
    """

    code: int | None
    output: str
    folder: Path


@dataclass(frozen=True)
class Failure:
    """Arguments that a framework's users give and that end the training; and the correction.

    Attributes:
        arguments: in place of the healthy ones.
        dies: what it prints on its way out under its own launcher, a pattern.
        entry: id of the known failure.
        change: the correction as safe-launch says it: "zero_stage: 3 -> 2".
        attempts: 1 where it is corrected before the launch, 2 where the failure teaches it.
        reference: arguments of a training that must have the same losses; the healthy ones if None.
        alone: variables that make the reference a single process on the CPU, without NPUs.
    """

    arguments: tuple[str, ...]
    dies: str
    entry: str
    change: str
    attempts: int
    reference: tuple[str, ...] | None = None
    alone: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One command of a framework.

    All paths in the arguments are relative: every run's working folder is a copy of what was
    prepared.

    Attributes:
        name: for people and for `scripts/frameworks NAME`: `ms-swift-sft`.
        framework: the row of the table: "ms-swift".
        environment: what `scripts/environment` calls the environment.
        packages: distributions whose versions the table tells, the framework first.
        prepare: a script that is run as `python PREPARE FOLDER` in the environment.
        own: how its users start it on two ranks, up to the arguments.
        launched: the same through safe-launch.
        healthy: arguments with which it trains well.
        failure: what its users meet.
        losses: reads a run's losses, one for each step.
        variables: environment variables of both launches.
        seconds: a run that takes longer is hanging.
        npus: how many it sees of those that tests/standins/npu pretends; without any it has CPUs.
    """

    name: str
    framework: str
    environment: str
    packages: tuple[str, ...]
    prepare: Path
    own: tuple[str, ...]
    launched: tuple[str, ...]
    healthy: tuple[str, ...]
    failure: Failure
    losses: Callable[[Done], list[float]]
    variables: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 900
    npus: int = 0

    @property
    def bin(self) -> Path:
        """The folder of the environment's commands."""
        return ENVIRONMENTS / self.environment / "bin"

    @property
    def _on_npus(self) -> dict[str, str]:
        if not self.npus:
            return {}
        return {
            **of_npus(self.bin),
            "PYTHONPATH": str(self.bin.parent / "npu/site-packages"),
            "DS_ACCELERATOR": "npu",
            "ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, range(self.npus))),
        }

    def run(self, folder: Path, *command: str, **variables: str) -> Done:
        """Runs a command of the environment in a folder to its end."""
        port = free_port()
        variables = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            # Two versions of DeepSpeed can't share what they build.
            "TORCH_EXTENSIONS_DIR": str(self.bin.parent / "extensions"),
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            # torchrun's, and what frameworks hand to it: two runs at once must not meet.
            "PET_MASTER_PORT": port,
            "MASTER_PORT": port,
            **self._on_npus,
            **self.variables,
            **variables,
        }
        try:
            done = subprocess.run(
                [str(self.bin / command[0]), *command[1:]],
                cwd=folder,
                env=variables,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = b"".join(filter(None, (late.stdout, late.stderr)))
            return Done(None, said.decode(errors="replace"), folder)
        return Done(done.returncode, f"{done.stdout}\n{done.stderr}", folder)


def free_port() -> str:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def printed_losses(done: Done) -> list[float]:
    """The losses that Hugging Face's Trainer prints, `{'loss': '2.31', ...}` in any version."""
    return [float(one) for one in re.findall(r"\{'loss': '?([-+.\deE]+)'?,", done.output)]


def logged_losses(done: Done) -> list[float]:
    """The losses in the Trainer's newest `trainer_state.json` in the run's folder."""
    found = sorted(done.folder.rglob("trainer_state.json"), key=lambda path: path.stat().st_mtime)
    history = json.loads(found[-1].read_text())["log_history"]
    return [float(one["loss"]) for one in history if "loss" in one]


def written_losses(done: Done) -> list[float]:
    """The losses that a script of ours has written as `losses.json`."""
    return [float(one) for one in json.loads((done.folder / "losses.json").read_text())]
