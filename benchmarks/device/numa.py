"""`--numa-binding` binds workers near their devices, or is refused in words."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .bench import Bench, Figure, last_line, results_of

TITLE = "Binding to NUMA nodes"
NEEDS = ("torch",)
SECONDS = 45
SAYS = """\
import json, os
print("RESULT " + json.dumps({"cores": sorted(os.sched_getaffinity(0))}), flush=True)
"""


def run(bench: Bench) -> Iterator[Figure]:
    """A figure under safe-launch, and one under torchrun."""
    (bench.folder / "says.py").write_text(SAYS)
    ours = bound(bench, "safe-launch", f"--nproc={bench.ranks}", "--log-dir=runs")
    theirs = bound(bench, "torchrun", f"--nproc-per-node={bench.ranks}")
    yield Figure(
        f"--numa-binding node, {bench.ranks} workers",
        ours,
        f"torchrun: {theirs}",
        wrong="cores" not in ours and "--numa-binding" not in ours,
    )


def bound(bench: Bench, *command: str) -> str:
    """The workers' cores, or the last output and the exit code."""
    done = bench.run(*command, "--numa-binding=node", "says.py")
    found = {tuple(row["cores"]) for row in results_of(done.stdout)}
    whole = len(os.sched_getaffinity(0))
    if not done.returncode and found:
        each = " and ".join(str(len(cores)) for cores in sorted(found))
        return f"{each} of {whole} cores a worker"
    said = [line for line in done.stderr.splitlines() if "--numa-binding" in line]
    words = said[0].strip() if said else last_line(done.stderr)
    return f"exit code {done.returncode}: {words}"
