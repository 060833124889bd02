"""The fork server uses no device, and its forked workers train on theirs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from safe_launch.machine.probes import has_nvidia_driver
from safe_launch.workers.forkserver.preload import DEVICES

from .bench import MIB, Bench, Figure, started

TITLE = "The fork server"
NEEDS = ("torch",)
SECONDS = 60
PROGRAM = Path(__file__).parent / "programs" / "forked.py"


def run(bench: Bench) -> Iterator[Figure]:
    """Which other processes have a device open while the workers do."""
    output = bench.folder / "output"
    before = compute_processes() if bench.kind == "cuda" else {}
    command = (bench.bin / "safe-launch", f"--nproc={bench.ranks}", "--log-dir=runs")
    with (
        output.open("w") as file,
        started(
            *(*command, PROGRAM, bench.kind, bench.folder),
            folder=bench.folder,
            stdout=file,
            stderr=file,
        ) as launcher,
    ):
        paths = [bench.folder / f"{rank}.json" for rank in range(bench.ranks)]
        while not all(path.exists() for path in paths):
            if launcher.poll() is not None:
                raise RuntimeError(output.read_text()[-1500:])
            time.sleep(0.1)
        said = [json.loads(path.read_text()) for path in paths]
        workers = {one["pid"] for one in said}
        tree = [psutil.Process(launcher.pid)]
        tree += tree[0].children(recursive=True)
        others = [process.pid for process in tree if process.pid not in workers]
        yield from who_holds(bench, others, workers, before)
        (bench.folder / "go").touch()
        code = launcher.wait()
    close = all(math.isclose(*pair, rel_tol=1e-4) for one in said for pair in _pairs(one))
    yield Figure(
        "the workers",
        f"{sum(one['forked'] for one in said)} of {len(said)} forked, "
        f"{sum(one['touched'] for one in said)} with a device before they asked for one; "
        f"losses {'equal to' if close else 'other than'} the CPU's; exit code {code}",
        "on a CPU all are forked (docs/design/forkserver.md)",
        wrong=not close or code != 0 or any(one["touched"] or not one["forked"] for one in said),
    )


def _pairs(said: dict[str, list[float]]) -> list[tuple[float, float]]:
    return list(zip(said["device"], said["cpu"], strict=True))


def who_holds(
    bench: Bench, others: Sequence[int], workers: set[int], before: Mapping[int, int]
) -> Iterator[Figure]:
    """Figures on device use by processes that aren't workers.

    Args:
        bench: the devices.
        others: the launcher and its servers.
        workers: the processes that may use a device.
        before: users of devices before the launch, which aren't ours.
    """
    opened = {pid: files for pid in others if (files := device_files(pid))}
    own = sum(bool(device_files(pid)) for pid in workers)
    yield Figure(
        "device files open in the launcher and its servers",
        f"{sum(map(len, opened.values()))} in {len(others)} processes",
        f"{own} of {len(workers)} workers have some",
        wrong=bool(opened),
        raw={"opened": {str(pid): files for pid, files in opened.items()}},
    )
    if bench.kind != "cuda":
        return
    held = {pid: size for pid, size in compute_processes().items() if pid not in before}
    strange = "" if held.keys() & workers else "; the numbers of processes aren't this container's"
    theirs = sum(held.get(pid, 0) for pid in others)
    yield Figure(
        "memory of the device that they hold, by NVML",
        f"{theirs / MIB:.0f} MiB",
        f"{len(held)} new processes hold {sum(held.values()) / MIB:.0f} MiB, for {len(workers)} "
        f"workers{strange}",
        wrong=theirs > 0 or len(held) > len(workers),
        raw={"held": {str(pid): size for pid, size in held.items()}},
    )


def device_files(pid: int) -> list[str]:
    """The accelerator files that a process has open."""
    found = []
    with suppress(OSError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed
                found.append(str(link.readlink()))
    return [target for target in found if target.startswith(DEVICES)]


def compute_processes() -> dict[int, int]:
    """Bytes of all GPUs by process, from NVML; 0 if unknown."""
    import pynvml

    held: dict[int, int] = {}
    assert has_nvidia_driver()
    pynvml.nvmlInit()
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                held[process.pid] = held.get(process.pid, 0) + (process.usedGpuMemory or 0)
    finally:
        pynvml.nvmlShutdown()
    return held
