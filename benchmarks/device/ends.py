"""A script that never destroys its process group exits, under each way to start it.

Most plain loops never call `destroy_process_group`; on an H200 a worker of ours hung there at its
exit. torchrun is the comparison, and a new process of ours against a forked one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from .bench import Bench, Figure, last_line

TITLE = "The end of a script that keeps its process group"
NEEDS = ("torch",)
SECONDS = 90
LIMIT = 60.0
"""Seconds for a launch, imports of torch included."""
KEEPS = """\
import os, sys, torch, torch.distributed as dist

kind = sys.argv[1]
torch.get_device_module(kind).set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(dist.get_default_backend_for_device(kind))
value = torch.ones(1, device=kind)
dist.all_reduce(value)
print("TRAINED", value.item(), flush=True)
"""
LAUNCHERS = {
    "torchrun": ("torchrun", "--standalone", "--nproc-per-node={}"),
    "safe-launch": ("safe-launch", "--nproc={}", "--log-dir=runs"),
    "safe-launch --start-method spawn": (
        *("safe-launch", "--nproc={}", "--log-dir=runs", "--start-method=spawn"),
    ),
}


def run(bench: Bench) -> Iterator[Figure]:
    """A figure for each launcher, in parallel except in a dry run."""
    with ThreadPoolExecutor(1 if bench.tiny else len(LAUNCHERS)) as pool:
        yield from pool.map(lambda name: figure_of(bench, name), LAUNCHERS)


def figure_of(bench: Bench, name: str) -> Figure:
    """Whether it exits, and if not, where its threads wait."""
    folder = bench.folder / name.replace(" ", "_")
    folder.mkdir()
    (folder / "keeps.py").write_text(KEEPS)
    launcher, *options = (part.format(bench.ranks) for part in LAUNCHERS[name])
    process = subprocess.Popen(
        [str(bench.bin / launcher), *options, "keeps.py", bench.kind],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=(folder / "output").open("w"),
        stderr=subprocess.STDOUT,
    )
    begun = time.monotonic()
    what = f"{name}, {bench.ranks_told}"
    try:
        code = process.wait(LIMIT * (10 if bench.tiny else 1))
    except subprocess.TimeoutExpired:
        waits = [words for child in tree(process.pid) for words in threads(child.pid)]
        return Figure(
            what, f"hangs after {LIMIT:g} s", "it must end", wrong=True, raw={"threads": waits}
        )
    finally:
        for child in tree(process.pid):
            child.kill()
    output = (folder / "output").read_text(errors="replace")
    seconds = time.monotonic() - begun
    if code or output.count("TRAINED") != bench.ranks:
        return Figure(what, f"exit code {code}: {last_line(output)}", wrong=True)
    return Figure(what, f"ends with code 0 after {seconds:.0f} s", "it must end")


def tree(pid: int) -> list[psutil.Process]:
    """The process and its living descendants."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def threads(pid: int) -> Iterator[str]:
    """Each thread's name, state and kernel wait channel (proc(5))."""
    for folder in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            name, waits = ((folder / file).read_text().strip() for file in ("comm", "wchan"))
            call = (folder / "syscall").read_text().split()[0]
        except OSError:
            continue
        yield f"{pid}/{folder.name} {name}: {waits}, system call {call}"
