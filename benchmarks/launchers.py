"""How long launchers take around the training, side by side, with workers that do nothing.

    python benchmarks/launchers.py [REPEATS]

Every round runs each case under each launcher in turn, so that a noisy moment hits all of them.
Prints medians in seconds and their ratio to torchrun's.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
WORKER = """\
import os, sys, time
if sys.argv[1] == "raise" and os.environ["RANK"] == "1":
    print(f"MARK {time.time()}", flush=True)
    raise ValueError("on purpose")
if os.environ["RANK"] == "0":
    print(f"MARK {time.time()}", flush=True)
if sys.argv[1] == "raise":
    time.sleep(600)
"""
LAUNCHERS = {
    "safe-launch": [str(BIN / "safe-launch"), "--nproc", "4"],
    "torchrun": [str(BIN / "torchrun"), "--nproc-per-node", "4"],
    "deepspeed": [str(BIN / "deepspeed"), "--num_gpus", "4", "--no_local_rank"],
}
CASES = {
    "start to a worker's first line": ("fine", False),
    "start to end of a run that does nothing": ("fine", True),
    "a rank raises to the launcher's end": ("raise", True),
}


def measure(command: list[str], how: str, to_end: bool, folder: Path) -> float:
    """Seconds from the start, or from the raising, to the first line, or to the end."""
    script = folder / "worker.py"
    script.write_text(WORKER)
    start = time.time()
    done = subprocess.run(
        [*command, str(script), how], cwd=folder, capture_output=True, text=True, check=False
    )
    end = time.time()
    mark = min(map(float, re.findall(r"MARK (\d+\.\d+)", done.stdout)))
    if how == "raise":
        return end - mark
    return end - start if to_end else mark - start


def main() -> None:
    """Runs all cases and prints the table."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    times: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(repeats):
            for case, (how, to_end) in CASES.items():
                for launcher, command in LAUNCHERS.items():
                    taken = measure(command, how, to_end, Path(name))
                    times.setdefault((case, launcher), []).append(taken)
    print(f"| case | {' | '.join(LAUNCHERS)} |")
    print(f"|---|{'---|' * len(LAUNCHERS)}")
    for case in CASES:
        base = statistics.median(times[case, "torchrun"])
        cells = []
        for launcher in LAUNCHERS:
            middle = statistics.median(times[case, launcher])
            cells.append(f"{middle:.2f} s ({middle / base:.2f})")
        print(f"| {case} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
