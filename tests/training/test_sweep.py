"""A few cells of the sweep, others with every commit: measured results still hold here."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from safe_launch.planning.proven import shipped_sweeps
from support.stacks import CURRENT, OLDER, ROOT, Stack

LETTERS = {"equal": "=", "wrong": "x"}
FEW = 8
"""Cells of each library."""


def sample(library: str, version: str) -> dict[str, str]:
    """Measured cells with their letters, chosen by the commit."""
    sweep = shipped_sweeps()[library]
    place = sweep.versions.index(version)
    measured = {key: text[place] for key, text in sweep.cells.items() if text[place] != "."}
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    chosen = random.Random(commit.stdout).sample(sorted(measured), FEW)
    return {key: measured[key] for key in chosen}


@pytest.mark.parametrize(
    ("stack", "library", "version"),
    [
        (CURRENT, "deepspeed", "0.19.8"),
        (OLDER, "deepspeed", "0.16.9"),
        (CURRENT, "torch", "2.13.0"),
    ],
)
def test_a_sample(stack: Stack, library: str, version: str, tmp_path: Path) -> None:
    """Each cell gives its shipped result."""
    expected = sample(library, version)
    module = ("-m", "benchmarks.sweep.run", library)
    done = stack.run("python", *module, "--results", tmp_path, "--cells", *expected, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    (path,) = tmp_path.glob("*.jsonl")
    assert path.name.startswith(f"{library}-{version}")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {line["cell"]: LETTERS.get(line["outcome"], "!") for line in lines}
    assert found == expected, lines
