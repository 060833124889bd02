"""The checks' cost in the first hundred steps of a training and in later steps.

In one run of two workers, trainings with and without the checks take turns: each is a new model
under DDP or FSDP2, of which the first hundred steps are timed, and then as many later ones.
Without an accelerator the rank's own computing time counts, which other processes disturb less.
Each mean comes with its standard error: under FSDP2, gloo's threads alone make turns differ by
a tenth.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

BIN = Path(sys.executable).parent
SCRIPT = """\
import os, statistics, sys, time
import torch
from torch.distributed.fsdp import fully_shard
place, wait, clock = torch.device("cpu"), lambda: None, time.thread_time
if torch.accelerator.is_available():
    place, wait = torch.accelerator.current_accelerator(), torch.accelerator.synchronize
    clock = time.perf_counter
torch.distributed.init_process_group(torch.distributed.get_default_backend_for_device(place))
mesh = torch.distributed.init_device_mesh(place.type, (torch.distributed.get_world_size(),))
torch.set_num_threads(1)
width, layers, turns = map(int, sys.argv[1:4])
engine = sys.argv[4]
names = os.environ["SAFE_LAUNCH_CHECKS"]
batch = torch.randn(16, width, device=place)
def training(checks):
    os.environ["SAFE_LAUNCH_CHECKS"] = checks
    parts = [torch.nn.Linear(width, width) for _ in range(layers)]
    model = torch.nn.Sequential(*parts).to(place)
    if engine == "fsdp2":
        for unit in (*parts, model):
            fully_shard(unit, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    spans = []
    for _ in range(2):
        wait()
        began = clock()
        for _ in range(100):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        wait()
        spans.append(clock() - began)
    return spans
training(names)
with_checks, without = [], []
for turn in range(turns):
    for checks in (names, "") if turn % 2 else ("", names):
        (with_checks if checks else without).append(training(checks))
if torch.distributed.get_rank() == 0:
    for part, what in enumerate(("FIRST", "LATER")):
        base = statistics.median(each[part] for each in without)
        pairs = [a[part] - b[part] for a, b in zip(with_checks, without)]
        more, error = statistics.mean(pairs), statistics.stdev(pairs) / len(pairs) ** 0.5
        print(f"{what} step {base * 10:.3f} ms, more {more * 1000:.1f} +- {error * 1000:.1f} ms "
              f"in 100 steps, {100 * more / base:.2f} %", flush=True)
torch.distributed.destroy_process_group()
"""
CASES = ((32, 2, 40, "ddp"), (32, 2, 60, "fsdp2"), (768, 8, 4, "ddp"))
"""Width, layers, turns, engine."""


def main() -> None:
    """Prints a line for each size and part."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "steps.py")
        script.write_text(SCRIPT)
        for case in CASES:
            command = [BIN / "safe-launch", "--nproc=2", script, *map(str, case)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(*case, done.stdout, sep="\n", flush=True)


if __name__ == "__main__":
    main()
