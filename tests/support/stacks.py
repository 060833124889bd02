"""The sets of framework versions that the tests run on, each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SCENARIOS = TESTS / "scenarios"
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Stack:
    """A Python with its own torch, DeepSpeed and transformers.

    Attributes:
        name: its environment in scripts/environment.
        bin: folder with its commands.
        extensions: where its DeepSpeed builds operations; two versions can't share one.
    """

    name: str
    bin: Path
    extensions: Path

    def environment(self) -> dict[str, str]:
        """Variables for commands of this stack."""
        return {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "TORCH_EXTENSIONS_DIR": str(self.extensions),
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(
        self, *command: str | Path, cwd: Path, seconds: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of this stack to its end; stdout and stderr are kept apart."""
        return subprocess.run(
            [str(self.bin / str(command[0])), *map(str, command[1:])],
            cwd=cwd,
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


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
TORCH_2_6 = Stack(
    "torch-2.6",
    ROOT / ".environments/torch-2.6/bin",
    ROOT / ".environments/torch-2.6/extensions",
)
STACKS = (CURRENT, OLDER)
"""Those for every test of frameworks; training/test_torch_2_6.py has some on the third."""
