"""Launchers' costs compared: time, memory, and the training's own steps.

    python benchmarks/launch/launchers.py [REPEATS] [--plot docs/measured/launchers.svg]

Every round runs each case under each launcher in turn, so that noise affects all equally. Prints
medians and their ratio to torchrun's. `--plot` needs matplotlib.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import pidfd_open
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent
CORES = min(len(os.sched_getaffinity(0)), 8)
SAY = """\
import glob, os, sys, time
def say(*words):  # a line in one piece: the workers share a pipe
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""
LIGHT = f"""\
{SAY}
say("MARK", time.time(), os.getpid())
if sys.argv[1] == "raise":
    open(sys.argv[2] + os.environ["RANK"], "w").close()
    while len(glob.glob(sys.argv[2] + "*")) < 4:
        time.sleep(0.1)
    time.sleep(1)
    if os.environ["RANK"] == "1":
        say("FAILED", time.time())
        raise ValueError("on purpose")
    time.sleep(600)
"""
HEAVY = f"""\
{SAY}
import torch
import transformers
import deepspeed
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
say("MARK", time.time(), os.getpid())
if sys.argv[1] == "stay":
    time.sleep(600)
# Without a process group: gloo finds the first attempt's addresses in torchrun's store.
torch.nn.Linear(8, 8)(torch.ones(1, 8)).sum().backward()
again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
say("AGAIN" if again else "STEP", time.time())
if sys.argv[1] == "transient" and not again:
    if os.environ["RANK"] == "1":
        say("FAILED", time.time())
        raise ValueError("it passes by itself")
    time.sleep(600)
os._exit(0)
"""
STEPS = """\
import statistics, sys, time
import torch
from torch.optim import optimizer as optimizers
place, wait = torch.device("cpu"), lambda: None
if torch.accelerator.is_available():
    place, wait = torch.accelerator.current_accelerator(), torch.accelerator.synchronize
torch.distributed.init_process_group(torch.distributed.get_default_backend_for_device(place))
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
model = torch.nn.parallel.DistributedDataParallel(net.to(place))
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(16, 32, device=place)
def chunk():
    began = time.perf_counter()
    for _ in range(20):
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()
    wait()
    return (time.perf_counter() - began) / 20
chunk()
hooks = optimizers._global_optimizer_post_hooks
guards, each, without, more = dict(hooks), [], [], []
for pair in range(int(sys.argv[1]) if sys.argv[1:] else 500):
    for removes in (False, True) if pair % 2 else (True, False):
        hooks.clear() if removes else hooks.update(guards)
        (without if removes else each).append(chunk())
    more.append(each[-1] - without[-1])
quick = sorted(each)[: len(each) // 4]
if torch.distributed.get_rank() == 0:
    share = 100 * statistics.median(more) / statistics.median(without)
    print(f"EACH {sum(quick) / len(quick)} SHARE {share}", flush=True)
torch.distributed.destroy_process_group()
"""
"""10,000 steps with what the guards add to each and 10,000 without, in turn, by chunks of 20.

They are on the accelerator where there is one.

A step's time is that of the quicker quarter, which other processes have disturbed least.
"""


@dataclass(frozen=True)
class Launcher:
    """A command and its options.

    Attributes:
        command: the program.
        workers: its option for their number.
        options: always given.
        restarts: its option for one restart after a failure; None without one.
    """

    command: Path
    workers: str
    options: tuple[str, ...] = ()
    restarts: tuple[str, ...] | None = None

    def line(self, workers: int, *arguments: str) -> list[str]:
        """The command line of a launch."""
        return [str(self.command), self.workers, str(workers), *self.options, *arguments]


LAUNCHERS = {
    "safe-launch": Launcher(BIN / "safe-launch", "--nproc", restarts=("--max-restarts", "1")),
    "torchrun": Launcher(BIN / "torchrun", "--nproc-per-node", restarts=("--max-restarts", "1")),
    "deepspeed": Launcher(BIN / "deepspeed", "--num_gpus", ("--no_local_rank",)),
}
Measure = Callable[[Launcher, Path], float | None]


def run(command: list[str], folder: Path) -> tuple[float, float, str]:
    """A command's start, end, and output."""
    began = time.time()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return began, time.time(), done.stdout


def marks(word: str, text: str) -> list[float]:
    """The times that workers print after a word."""
    return [float(one) for one in re.findall(rf"{word} (\d+\.\d+)", text)]


def first_line(launcher: Launcher, folder: Path) -> float:
    """From the start to the first line of the script, which imports no module; four workers."""
    began, _, text = run(launcher.line(4, "light.py", "fine"), folder)
    return min(marks("MARK", text)) - began


def whole(launcher: Launcher, folder: Path) -> float:
    """From the start to the end of an empty run; four workers."""
    began, ended, _ = run(launcher.line(4, "light.py", "fine"), folder)
    return ended - began


def imported(launcher: Launcher, folder: Path, workers: int) -> float:
    """From the start until all workers have imported torch, transformers and deepspeed."""
    began, _, text = run(launcher.line(workers, "heavy.py", "fine"), folder)
    return max(marks("MARK", text)) - began


def stopped(launcher: Launcher, folder: Path) -> float:
    """From a rank's exception until no worker is left; four workers."""
    process = subprocess.Popen(
        launcher.line(4, "light.py", "raise", f"up-{time.time_ns()}-"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    workers: list[int] = []
    failed = 0.0
    for line in process.stdout:
        if found := re.search(r"MARK \S+ (\d+)", line):
            workers.append(pidfd_open(int(found[1])))
        if found := re.search(r"FAILED (\S+)", line):
            failed = float(found[1])
            break
    assert len(workers) == 4
    for worker in workers:
        select.select([worker], [], [])
    gone = time.time()
    threading.Thread(target=process.stdout.read, daemon=True).start()
    process.wait()
    return gone - failed


def ended(launcher: Launcher, folder: Path) -> float:
    """From a rank's exception to the launcher's end; four workers."""
    _, end, text = run(launcher.line(4, "light.py", "raise", f"up-{time.time_ns()}-"), folder)
    return end - marks("FAILED", text)[0]


def relaunched(launcher: Launcher, folder: Path) -> float | None:
    """From a failure to the first step of the relaunch; two workers, heavy imports."""
    if launcher.restarts is None:
        return None
    line = launcher.line(2, *launcher.restarts, "heavy.py", "transient")
    _, _, text = run(line, folder)
    return max(marks("AGAIN", text)) - marks("FAILED", text)[0]


def step(launcher: Launcher, folder: Path) -> float:
    """Milliseconds of a tiny DDP step on one rank, which waits for no other."""
    _, _, text = run(launcher.line(1, "steps.py"), folder)
    return 1000 * float(re.findall(r"EACH (\S+)", text)[0])


def share(launcher: Launcher, folder: Path) -> float:
    """The percentage that hooks, such as the guards', add to such a step."""
    _, _, text = run(launcher.line(1, "steps.py"), folder)
    return float(re.findall(r"SHARE (\S+)", text)[0])


def memory(launcher: Launcher, folder: Path, count: int, with_workers: bool) -> float:
    """MiB of the launcher's processes during training, with shared pages divided."""
    process = subprocess.Popen(
        launcher.line(count, "heavy.py", "stay"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    workers: set[int] = set()
    for line in process.stdout:
        if found := re.search(r"MARK \S+ (\d+)", line):
            workers.add(int(found[1]))
        if len(workers) == count:
            break
    time.sleep(3)  # at rest
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    total = 0
    for one in tree:
        with suppress(psutil.Error):
            if with_workers or one.pid not in workers:
                total += one.memory_full_info().pss
    for one in tree:  # deepspeed leaves its workers if only it is stopped
        with suppress(psutil.Error):
            one.kill()
    process.communicate()
    return total / 2**20


def helped(launcher: Launcher, folder: Path) -> float:
    """Time of `--help`."""
    began, end, _ = run([str(launcher.command), "--help"], folder)
    return end - began


def planned(launcher: Launcher, folder: Path) -> float | None:
    """Time of `safe-launch plan`."""
    if launcher is not LAUNCHERS["safe-launch"]:
        return None
    began, end, _ = run([str(launcher.command), "plan", "--nproc", "4", "light.py"], folder)
    return end - began


CASES: dict[str, tuple[str, Measure]] = {
    "start to the first line of a script without imports": ("s", first_line),
    "start to imports done (torch, transformers, deepspeed), a worker a core": (
        "s",
        lambda one, folder: imported(one, folder, CORES),
    ),
    "the same, two workers a core": (
        "s",
        lambda one, folder: imported(one, folder, 2 * CORES),
    ),
    "start to end of a run that does nothing": ("s", whole),
    "an exception to all workers gone": ("s", stopped),
    "an exception to the launcher's end": ("s", ended),
    "a failure to the first step of the relaunch": ("s", relaunched),
    "a tiny step in steady state": ("ms", step),
    "what guards add to such a step (without any: noise)": ("%", share),
    "memory of the launcher, its server included, two workers": (
        "MiB",
        lambda one, folder: memory(one, folder, 2, False),
    ),
    "the same, eight workers": ("MiB", lambda one, folder: memory(one, folder, 8, False)),
    "memory of the launcher and two workers": (
        "MiB",
        lambda one, folder: memory(one, folder, 2, True),
    ),
    "the same with eight workers": ("MiB", lambda one, folder: memory(one, folder, 8, True)),
    "--help": ("s", helped),
    "plan": ("s", planned),
}


def plot(ratios: dict[str, dict[str, float]], path: Path) -> None:
    """Draws each case's ratios to torchrun's, on a logarithmic axis."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "launchers"
    names = [case for case in ratios if "torchrun" in ratios[case]]
    figure, axes = plt.subplots(figsize=(9, 0.55 * len(names) + 1))
    colours = {"safe-launch": "#1b7837", "deepspeed": "#999999"}
    for offset, (launcher, colour) in zip((-0.2, 0.2), colours.items(), strict=True):
        places = [index for index, case in enumerate(names) if launcher in ratios[case]]
        widths = [ratios[names[index]][launcher] for index in places]
        bottoms = [index + offset for index in places]
        axes.barh(bottoms, [one - 1 for one in widths], 0.38, left=1, color=colour, label=launcher)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("ratio to torchrun's, logarithmic; left of the line is less")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Runs all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("repeats", nargs="?", type=int, default=5)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    options = parser.parse_args()
    cases = {name: case for name, case in CASES.items() if options.only in name}
    taken: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script, text in (("light", LIGHT), ("heavy", HEAVY), ("steps", STEPS)):
            (folder / f"{script}.py").write_text(text)
        for _ in range(options.repeats):
            for case, (_, measure) in cases.items():
                for launcher, value in LAUNCHERS.items():
                    if (number := measure(value, folder)) is not None:
                        taken.setdefault((case, launcher), []).append(number)
    print(f"| case | {' | '.join(LAUNCHERS)} |")
    print(f"|---|{'---|' * len(LAUNCHERS)}")
    ratios: dict[str, dict[str, float]] = {}
    for case, (unit, _) in cases.items():
        cells = []
        for launcher in LAUNCHERS:
            if (case, launcher) not in taken:
                cells.append("-")
                continue
            middle = statistics.median(taken[case, launcher])
            shown = f"{middle:.0f}" if middle >= 100 else f"{middle:.2f}"
            text = f"{shown} {unit}"
            if (case, "torchrun") in taken and unit != "%":
                ratio = middle / statistics.median(taken[case, "torchrun"])
                ratios.setdefault(case, {})[launcher] = ratio
                text += f" ({ratio:.3f})" if unit == "ms" else f" ({ratio:.2f})"
            cells.append(text)
        print(f"| {case} | {' | '.join(cells)} |")
    if options.plot is not None:
        plot(ratios, options.plot)


if __name__ == "__main__":
    main()
