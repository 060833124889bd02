"""The peer: NVIDIA's resiliency extension on the same loop, with manual heartbeats.

    python benchmarks/hangs/heartbeats.py [--package FOLDER] [--timeout SECONDS]

For each fault: seconds from the last line in any rank's log until the extension's monitor reports a
missing heartbeat, and the ranks that it blames. Each step sends a heartbeat, which the user writes;
`--package` is a folder with nvidia-resiliency-ext (`pip install --no-deps --target`).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "tests" / "programs" / "hangs"
CASES = {
    "sleep": ("--fault=sleep",),
    "sleep before the first step": ("--fault=sleep", "--phase=loading"),
    "gil": ("--fault=gil",),
    "stop": ("--fault=stop",),
    "data": ("--fault=data",),
    "branch": ("--fault=branch",),
    "nap of 8 s": ("--fault=nap",),
    "busy for 8 s": ("--fault=busy",),
}
BEATS = f"""\
import runpy, sys
sys.path.insert(0, {str(SCRIPTS)!r})
import loop
import torch.distributed as dist
import nvidia_resiliency_ext.fault_tolerance as ft
log, init, client = loop.Trainer.log, dist.init_process_group, ft.RankMonitorClient()
def begin(*args, **kwargs):
    init(*args, **kwargs)
    client.init_workload_monitoring()
def beat(self, step, loss):
    log(self, step, loss)
    client.send_heartbeat()
dist.init_process_group, loop.Trainer.log = begin, beat
loop.main()
"""
STAMP = r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]"
MISSED = re.compile(STAMP + r".*RankMonServer.*:(\d+)\] Did not get (\w+) heartbeat")
BLAMED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")


def measured(arguments: tuple[str, ...], timeout: float, package: Path | None) -> str:
    """A table row: seconds, ranks with a missing heartbeat, ranks blamed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(BEATS)
        launcher = "nvidia_resiliency_ext.fault_tolerance.launcher"
        command = [sys.executable, "-m", launcher, "--nproc-per-node=3", "--max-restarts=0"]
        command += [f"--ft-rank-heartbeat-timeout={timeout:g}"]
        command += [f"--ft-initial-rank-heartbeat-timeout={10 * timeout:g}"]
        own = {} if package is None else {"PYTHONPATH": str(package)}
        output = folder / "output"
        with output.open("w") as file:
            process = subprocess.Popen(
                [*command, "train.py", *arguments],
                cwd=folder,
                env={**os.environ, **own},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            code: int | str = process.wait(90)
        except subprocess.TimeoutExpired:
            code = "none in 90 s"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        text = output.read_text(errors="replace")
        last = max((path.stat().st_mtime for path in folder.glob("rank-*.log")), default=0.0)
        missed = [(_seconds(at), int(rank)) for at, rank, _ in MISSED.findall(text)]
        blamed = BLAMED.search(text)
        seconds = f"{min(missed)[0] - last:.1f}" if missed else ""
        ranks = ", ".join(str(rank) for rank in sorted({rank for _, rank in missed}))
        who = "" if blamed is None else f"rank {blamed[2]} (exit code {blamed[1]})"
        return f"{seconds} | {ranks} | {who} | {code} |"


def _seconds(stamp: str) -> float:
    return time.mktime(datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timetuple()) + (
        int(stamp[-3:]) / 1000
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", type=Path)
    parser.add_argument("--timeout", type=float, default=3)
    options = parser.parse_args()
    print("| what rank 1 does | seconds | heartbeats missed of | first failure | exit code |")
    print("|---|---|---|---|---|")
    for name, arguments in CASES.items():
        package = None if options.package is None else options.package.absolute()
        print(f"| {name} | {measured(arguments, options.timeout, package)}", flush=True)


if __name__ == "__main__":
    main()
