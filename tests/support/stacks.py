"""The sets of framework versions that the tests run on, each in an environment of its own."""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SCENARIOS = TESTS / "scenarios"
EXAMPLES = ROOT / "examples"
COMPILES = """
import sys
from deepspeed.ops.op_builder import cpu
getattr(cpu, sys.argv[1])().load(verbose=False)
"""
"""What DeepSpeed does in the first training that needs an operation: a minute of a core, or two."""
ONE_THREAD = threading.Lock()
# What one test's run has learnt isn't another's to know.
os.environ["SAFE_LAUNCH_LESSONS"] = "off"
# Nor what a developer has set for launches of theirs.
os.environ["SAFE_LAUNCH_CONFIG"] = ""


@dataclass(frozen=True)
class Stack:
    """A Python with its own torch, DeepSpeed and transformers.

    Attributes:
        name: its environment in scripts/environment.
        bin: folder with its commands.
        extensions: where its DeepSpeed builds operations; two versions can't share one.
        packages: folders of packages that hide those of the environment.
        accelerator: what DeepSpeed is told to use.
        variables: further ones.
    """

    name: str
    bin: Path
    extensions: Path
    packages: tuple[Path, ...] = ()
    accelerator: str = "cpu"
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)

    def environment(self) -> dict[str, str]:
        """Variables for commands of this stack, whose operations are compiled by now."""
        if self.accelerator == "cpu":
            with ONE_THREAD:  # a cached function may run in two at once
                self._use()
        return self._variables()

    def _variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "TORCH_EXTENSIONS_DIR": str(self.extensions),
            "DS_ACCELERATOR": self.accelerator,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"PYTHONPATH": ":".join(map(str, self.packages))} if self.packages else {}),
            **self.variables,
        }

    @functools.cache  # noqa: B019 - few stacks, and the file stays open as long as this process
    def _use(self) -> IO[str]:
        """Compiles the operation of all trainings, or waits for who is just at it.

        A test may limit the memory, which no compiler bears. Every user of the folder holds its
        lock; who is alone there removes what a killed compiler has left, for which torch would
        wait for ever.
        """
        self.extensions.mkdir(parents=True, exist_ok=True)
        file = (self.extensions / "in-use").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
            return file
        for stale in self.extensions.glob("*/lock"):
            stale.unlink()
        self._compile("ShareMemCommBuilder")
        fcntl.flock(file, fcntl.LOCK_SH)
        return file

    def compile_adam(self) -> None:
        """Compiles the optimizer on the host, which few need."""
        self.environment()
        with (self.extensions / "adam").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._compile("CPUAdamBuilder")

    def _compile(self, operation: str) -> None:
        """Compiles an operation unless that was done in this place."""
        done = self.extensions / f"{operation}.compiled"
        if done.exists() and done.read_text() == str(self.extensions):
            return
        command = [str(self.bin / "python"), "-c", COMPILES, operation]
        subprocess.run(command, env=self._variables(), capture_output=True, check=True)
        done.write_text(str(self.extensions))

    def run(
        self, *command: str | Path, cwd: Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of this stack to its end; stdout and stderr are kept apart.

        The test's own time limit is the only one.
        """
        return subprocess.run(
            [str(self.bin / str(command[0])), *map(str, command[1:])],
            cwd=cwd,
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            check=False,
        )


def of_npus(bin_folder: Path) -> dict[str, str]:
    """What an environment's commands need to find npu-smi and CANN: those of the stand-in."""
    standin = TESTS / "standins/npu"
    path = f"{standin / 'bin'}:{bin_folder}:{os.environ['PATH']}"
    return {"PATH": path, "ASCEND_HOME_PATH": str(standin)}


CURRENT = Stack(
    "current",
    Path(sys.executable).parent,
    Path(os.environ.get("TORCH_EXTENSIONS_DIR", ROOT / ".environments/current/extensions")),
)
OLDER = Stack(
    "older",
    Path(os.environ.get("SAFE_LAUNCH_OLDER", ROOT / ".environments/older/bin")),
    ROOT / ".environments/older/extensions",
)
RELEASING = Stack(
    "deepspeed-0.19.2",
    CURRENT.bin,
    ROOT / ".environments/current/extensions-0.19.2",
    (ROOT / ".environments/current/deepspeed-0.19.2",),
)
"""The current one with the last DeepSpeed that releases parameters before they are recomputed."""
TORCH_2_6 = Stack(
    "torch-2.6",
    ROOT / ".environments/torch-2.6/bin",
    ROOT / ".environments/torch-2.6/extensions",
)
NPU = Stack(
    "npu",
    CURRENT.bin,
    CURRENT.extensions,
    (ROOT / ".environments/current/npu/site-packages",),
    "npu",
    of_npus(CURRENT.bin),
)
"""The current one on eight 910B4 that exist in the host's memory alone: standins/npu."""
STACKS = (CURRENT, OLDER)
"""Those for every test of frameworks; training/test_torch_2_6.py has some on the third."""
