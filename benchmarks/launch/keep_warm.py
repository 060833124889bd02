"""The time saved by `--keep-warm`, and whether a run with it is ever stale.

    python benchmarks/launch/keep_warm.py [ROUNDS] [--edits N]

First the time from Enter to imports done (torch, transformers, deepspeed; two workers) by torchrun,
by safe-launch, and by a launch that follows another one with `--keep-warm`, in turns. Then a
developer's day: a script of four modules is edited N times and launched after each edit; some edits
are other people's: an upgraded package, a module edited in place, another variable, another data
file. Each launch is compared with a new interpreter's.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent
HEAVY = """\
import os, time
import torch
import transformers
import deepspeed
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
os.write(1, f"MARK {time.time()}\\n".encode())
"""
OWN = ("data", "model", "loop")
SCRIPT = """\
import os
import torch
import package
import data, model, loop
if os.environ["RANK"] == "0":
    print("SEEN", package.VERSION, package.part.VALUE, package.MODE, package.FILE, end=" ")
    print(data.VALUE, model.VALUE, loop.VALUE, 0, flush=True)
    print("STAMP", package.STAMP, flush=True)
"""
PACKAGE = """\
import importlib.metadata, os, time
from pathlib import Path
from . import part
VERSION = importlib.metadata.version("package")
MODE = os.environ.get("MODE")
FILE = (Path(__file__).parent / "file").read_text()
STAMP = time.time_ns()
"""


def first_lines(command: list[str], folder: Path) -> float:
    """Seconds until the imports of both workers are done."""
    began = time.time()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    marks = [float(mark) for mark in re.findall(r"MARK (\d+\.\d+)", done.stdout)]
    assert len(marks) == 2
    return max(marks) - began


def imports(folder: Path, rounds: int) -> None:
    """Prints the times of the three ways."""
    (folder / "heavy.py").write_text(HEAVY)
    ours = [str(BIN / "safe-launch"), "--nproc=2", "--log-dir=runs"]
    ways = {
        "torchrun": [str(BIN / "torchrun"), "--nproc-per-node=2", "heavy.py"],
        "safe-launch": [*ours, "heavy.py"],
        "safe-launch, kept warm": [*ours, "--keep-warm=60", "heavy.py"],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    first_lines(ways["safe-launch, kept warm"], folder)
    for _ in range(rounds):
        for name, command in ways.items():
            times[name].append(first_lines(command, folder))
    reference = statistics.median(times["torchrun"])
    for name, each in times.items():
        middle = statistics.median(each)
        spread = f"{min(each):.2f} to {max(each):.2f}"
        print(f"{name:24} {middle:.2f} s ({middle / reference:.2f}), {spread}")


def upgrade(folder: Path, number: int) -> None:
    """Installs a package's other version as an installer does."""
    packages = folder / "site-packages"
    for old in packages.glob("package-*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    information = packages / f"package-{number}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: package\nVersion: {number}\n")


def edit_in_place(folder: Path, number: int) -> None:
    """Replaces a module's text by one of equal size and restores the times."""
    path = folder / "site-packages" / "package" / "part.py"
    before = path.stat() if path.exists() else None
    path.write_text(f"VALUE = {number:06}\n".replace(" 0", " 1"))
    if before is not None:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def edit_file(folder: Path, number: int) -> None:
    """Changes a file that the package reads at import."""
    (folder / "site-packages" / "package" / "file").write_text(str(number))


def edit_own(folder: Path, number: int) -> None:
    """Changes one of the four modules."""
    name = random.choice([*OWN, "train"])
    if name == "train":
        text = re.sub(r"\d+, flush", f"{number}, flush", (folder / "train.py").read_text())
        (folder / "train.py").write_text(text)
    else:
        (folder / f"{name}.py").write_text(f"import torch\n\n\nVALUE = {number}\n")


FOREIGN: tuple[Callable[[Path, int], None], ...] = (upgrade, edit_in_place, edit_file)


def a_day(folder: Path, edits: int) -> None:
    """Prints how many launches were stale, and how many used a kept server."""
    (folder / "site-packages" / "package").mkdir(parents=True)
    (folder / "site-packages" / "package" / "__init__.py").write_text(PACKAGE)
    (folder / "train.py").write_text(SCRIPT)
    for name in OWN:
        (folder / f"{name}.py").write_text("VALUE = 0\n")
    for change in FOREIGN:
        change(folder, 0)
    environment = {**os.environ, "PYTHONPATH": str(folder / "site-packages"), "MODE": "0"}
    command = [str(BIN / "safe-launch"), "--nproc=2", "--keep-warm=60", "--log-dir=runs"]
    stale, kept, owned, stamp = 0, 0, 0, ""
    for number in range(1, edits + 1):
        is_own = random.random() < 2 / 3
        if is_own:
            edit_own(folder, number)
        else:
            change = random.choice([*FOREIGN, None])
            if change is None:
                environment["MODE"] = str(number)
            else:
                change(folder, number)
        ways = [sys.executable, "train.py"], [*command, "train.py"]
        seen = []
        for way in ways:
            own = environment if way is ways[1] else {**environment, "RANK": "0"}
            done = subprocess.run(
                way, cwd=folder, env=own, capture_output=True, text=True, check=True
            )
            seen.append(re.findall(r"SEEN (.*)", done.stdout))
        stale += seen[0] != seen[1]
        earlier, stamp = stamp, re.findall(r"STAMP (.*)", done.stdout)[0]
        owned += is_own
        kept += stamp == earlier
    print(f"{edits} edits, {owned} of one's own: {stale} stale runs, {kept} with what was kept")


def main() -> None:
    """Measures, and prints the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=9)
    parser.add_argument("--edits", type=int, default=50)
    given = parser.parse_args()
    random.seed(0)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        imports(Path(one), given.rounds)
        a_day(Path(other), given.edits)


if __name__ == "__main__":
    main()
