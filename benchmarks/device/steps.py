"""The guards' overhead in a step on the device, against torchrun in the same run."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from .bench import Bench, Figure

TITLE = "The cost of a step"
NEEDS = ("torch",)
SECONDS = 120
LAUNCHERS = {
    "safe-launch": ("safe-launch", "--nproc=1", "--log-dir=runs"),
    "torchrun": ("torchrun", "--nproc-per-node=1"),
}


def run(bench: Bench) -> Iterator[Figure]:
    """In turns, twice each; a single rank doesn't wait for others."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "launch"))
    from launchers import STEPS

    (bench.folder / "steps.py").write_text(STEPS)
    rounds, pairs = (1, 4) if bench.tiny else (2, 100)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in LAUNCHERS}
    for _ in range(rounds):
        for name, command in LAUNCHERS.items():
            done = bench.run(*command, "steps.py", pairs)
            if not (found := re.search(r"EACH (\S+) SHARE (\S+)", done.stdout)):
                raise RuntimeError(f"{name}: exit code {done.returncode}: {done.stderr[-1500:]}")
            taken[name].append((1000 * float(found[1]), float(found[2])))
    ours, theirs = (
        [statistics.median(column) for column in zip(*taken[name], strict=True)]
        for name in LAUNCHERS
    )
    yield Figure(
        "a tiny step of DDP, one rank",
        f"{ours[0]:.3f} ms",
        f"torchrun {theirs[0]:.3f} ms; on a CPU 0.37 and 0.39 ms (docs/measured/launchers.md)",
        raw=taken,
    )
    yield Figure(
        "what hooks add to it, in turns in one process",
        f"{ours[1]:+.2f} %",
        f"torchrun, which has none, {theirs[1]:+.2f} %; on a CPU +0.48 and -0.05 %",
    )
