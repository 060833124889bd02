"""The time to stop a job of two nodes, from a failure on one to the last worker's end.

    python benchmarks/launch/stopping.py [--rounds N] [--workers N] [--cap SECONDS]

The nodes are simulated hosts on this machine, each with its own name, address and network
(`tests/support/hosts.py`; needs root), or else two launchers in parallel. Every round runs each
case under each launcher in turn, so that noise affects all equally. The workers write down their
process ids; the kernel reports their ends at once. Measured separately are the other ranks, all
ranks (the one that raised runs its exit handlers), and the launchers. A process that hasn't ended
after the cap counts with the cap, is killed, and isn't tried again in further rounds. Prints
medians in seconds and their ratio to torchrun's with its c10d rendezvous.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.hosts import LACKING, network  # noqa: E402

BIN = Path(sys.executable).parent
WORKER = """\
import os, pathlib, sys, time
import torch
import torch.distributed as dist

folder, how = pathlib.Path(sys.argv[1]), sys.argv[2]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if how == "collective":
    dist.init_process_group("gloo")
    dist.barrier()
part = folder / f"part-{rank}"
part.write_text(str(os.getpid()))
part.rename(folder / f"pid-{rank}")
if rank == world - 1 and how != "killed":
    while len(list(folder.glob("pid-*"))) < world:
        time.sleep(0.01)
    time.sleep(1)
    (folder / "failed").write_text(str(time.monotonic()))
    raise ValueError("on purpose")
if how == "collective":
    dist.all_reduce(torch.ones(1))
while True:
    time.sleep(1)
"""
"""The last rank, on node 1, fails; the others wait for it or don't notice."""
CASES = {
    "a rank raises, the others wait in a collective": "collective",
    "a rank raises, the others notice nothing": "alone",
    "node 1's launcher is killed": "killed",
}
Start = Callable[[int, Sequence[object], Path], "subprocess.Popen[bytes]"]
WHAT = ("other rank", "rank", "launcher")
LAUNCHERS = ("safe-launch", "torchrun c10d", "torchrun static")


def command(launcher: str, node: int, head: str, port: int, workers: int) -> list[str]:
    """A launcher's command on a node."""
    count = ["--nnodes", "2", "--nproc-per-node", str(workers)]
    if launcher == "torchrun c10d":
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{head}:{port}", "--rdzv-id", "x"]
    else:
        meeting = ["--node-rank", str(node), "--master-addr", head, "--master-port", str(port)]
    restarts = ["--max-restarts", "0"] if launcher != "safe-launch" else []
    return [str(BIN / launcher.split()[0]), *count, *meeting, *restarts]


@contextmanager
def nodes() -> Iterator[tuple[Start, str]]:
    """The command prefixes for both nodes, and node 0's name."""

    def here(_node: int, argv: Sequence[object], folder: Path) -> subprocess.Popen[bytes]:
        with (folder / f"{time.monotonic_ns()}.out").open("w") as out:
            return subprocess.Popen(list(map(str, argv)), cwd=folder, stdout=out, stderr=out)

    if LACKING:
        print(f"two launchers on one host, for lack of {', '.join(LACKING)}", file=sys.stderr)
        yield here, "127.0.0.1"
        return
    with network("alpha", "beta") as hosts:

        def there(node: int, argv: Sequence[object], folder: Path) -> subprocess.Popen[bytes]:
            return here(node, hosts[node].command(*argv, cwd=folder), folder)

        yield there, "alpha"


def measure(
    launcher: str, how: str, workers: int, cap: float, start: Start, head: str
) -> tuple[float, float, float]:
    """Seconds from the failure to the end of the last other rank, rank and launcher."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (script := folder / "worker.py").write_text(WORKER)
        port = free_port()
        launchers = [
            start(
                node,
                [*command(launcher, node, head, port, workers), script, folder, how],
                folder,
            )
            for node in (0, 1)
        ]
        pids = [started(folder / f"pid-{rank}") for rank in range(2 * workers)]
        watched = [os.pidfd_open(pid) for pid in (*pids, *(one.pid for one in launchers))]
        if how == "killed":
            time.sleep(1)
            failed = time.monotonic()
            launchers[1].kill()
        ends = ended(watched, cap)
        if how != "killed":
            failed = float((folder / "failed").read_text())
        for number in watched:
            os.close(number)
        for pid in pids:
            end(pid)
        for one in launchers:
            one.kill()
            one.wait()
    times = [at - failed for at in ends]
    others = times[: len(pids) - (how != "killed")]
    return max(others), max(times[: len(pids)]), max(times[len(pids) :])


def started(path: Path) -> int:
    """The process id that a worker writes when it runs."""
    limit = time.monotonic() + 300
    while not path.exists():
        if time.monotonic() > limit:
            raise SystemExit("the workers don't start")
        time.sleep(0.01)
    return int(path.read_text())


def ended(watched: Sequence[int], cap: float) -> list[float]:
    """The end of each process; infinite for those that still run after `cap` seconds."""
    poll = select.poll()
    for number in watched:
        poll.register(number, select.POLLIN)
    ends: dict[int, float] = {}
    limit = time.monotonic() + cap
    while len(ends) < len(watched) and (left := limit - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            ends[number] = time.monotonic()
            poll.unregister(number)
    return [ends.get(number, float("inf")) for number in watched]


def end(pid: int) -> None:
    """Kills a process that may have ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def free_port() -> int:
    """An unused port on this host."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def main() -> None:
    """Runs all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="of each node")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds")
    options = parser.parse_args()
    times: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with nodes() as (start, head):
        for _ in range(options.rounds):
            for case, how in CASES.items():
                for launcher in LAUNCHERS:
                    own = times.setdefault((case, launcher), [])
                    if own and own[-1][1] == float("inf"):
                        own.append(own[-1])
                        continue
                    own.append(measure(launcher, how, options.workers, options.cap, start, head))
                    print(case, launcher, *own[-1], file=sys.stderr, flush=True)
    print(f"| case | until the end of the last | {' | '.join(LAUNCHERS)} |")
    print(f"|---|---|{'---:|' * len(LAUNCHERS)}")
    for case in CASES:
        for what, name in enumerate(WHAT):
            medians = {
                launcher: statistics.median(one[what] for one in times[case, launcher])
                for launcher in LAUNCHERS
            }
            base = medians["torchrun c10d"]
            cells = [text(value, base, options.cap) for value in medians.values()]
            print(f"| {case} | {name} | {' | '.join(cells)} |")


def text(seconds: float, base: float, cap: float) -> str:
    """A time with its ratio to another, if both ended."""
    if seconds == float("inf"):
        return f"> {cap:g} s"
    ratio = f" ({seconds / base:.2f})" if base != float("inf") else f" (< {seconds / cap:.4f})"
    return f"{seconds:.3f} s{ratio}"


if __name__ == "__main__":
    main()
